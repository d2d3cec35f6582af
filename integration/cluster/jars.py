"""Jar sets in a local cache, fetched by the Ivy that comes with PySpark.

``python -m integration.cluster.jars`` fetches them all. The cache is ``.cache`` in the
repository, or ``KAFKA_TX_CACHE``. The repository is, in this order: the variable that
Spark itself reads (``DEFAULT_ARTIFACT_REPOSITORY``), a mirror in Maven's
``settings.xml``, Ivy's default.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from integration.cluster.java import JavaMissingError, java
from integration.cluster.versions import JAR_SETS, Coordinate, JarSet
from kafka_tx.testing import spark_directory

REPOSITORY = Path(__file__).resolve().parents[2]


class JarsUnavailableError(RuntimeError):
    """A jar set is not in the cache and could not be fetched."""


def cache_directory() -> Path:
    """Where everything that is downloaded is kept; made if absent."""
    chosen = os.environ.get("KAFKA_TX_CACHE")
    path = Path(chosen).expanduser() if chosen else REPOSITORY / ".cache"
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def jar_directory(jars: JarSet) -> Path:
    """Give the directory of a jar set, fetching it first if it is not in the cache.

    Complete or absent: a set is fetched beside its place and then moved there. Several
    processes may ask at once; one fetches, the others wait.

    Raises:
        JavaMissingError: There is no Java to run Ivy with.
        JarsUnavailableError: Ivy failed; its last lines are in the text.
    """
    place = cache_directory() / "jars" / f"{jars.name}-{_fingerprint(jars)}"
    if place.is_dir():
        return place
    place.parent.mkdir(exist_ok=True)
    with only_one(place.parent / f"{jars.name}.lock"):
        if not place.is_dir():
            _fetch(jars, place)
    return place


def jar_paths(jars: JarSet) -> list[Path]:
    """Give the jars of a set, by name."""
    return sorted(jar_directory(jars).glob("*.jar"))


def class_path(jars: JarSet) -> str:
    """Give a set as Java's ``-cp`` wants it, always in the same order."""
    return os.pathsep.join(map(str, jar_paths(jars)))


def _fingerprint(jars: JarSet) -> str:
    text = f"{jars.transitive} " + " ".join(map(str, jars.coordinates))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Keep other processes that ask for the same file waiting."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# --- Ivy ----------------------------------------------------------------------------


def _fetch(jars: JarSet, place: Path) -> None:
    command = java()
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".fetch-") as name:
        work = Path(name)
        (work / "ivy.xml").write_text(_module_file(jars))
        settings = _settings_file(work / "ivy", jars)
        (work / "settings.xml").write_text(settings)
        finished = subprocess.run(
            [
                command,
                *_proxy_flags(),
                *("-cp", str(_ivy_jar()), "org.apache.ivy.Main"),
                *("-settings", "settings.xml", "-ivy", "ivy.xml"),
                *("-types", "jar", "bundle", "tar.gz"),
                *("-retrieve", "jars/[artifact]-[revision](-[classifier]).[ext]"),
            ],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if finished.returncode or not _holds_all(work / "jars", jars.coordinates):
            raise JarsUnavailableError(_complaint(jars, finished.stdout))
        (work / "jars").rename(place)


def _holds_all(directory: Path, wanted: tuple[Coordinate, ...]) -> bool:
    return all((directory / jar.file).is_file() for jar in wanted)


def _complaint(jars: JarSet, output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip(" .\t")]
    return "\n".join(
        [
            f"The jars '{jars.name}' could not be fetched:",
            *lines[-25:],
            "Without a way to the default repository, name one in the variable"
            " DEFAULT_ARTIFACT_REPOSITORY or as a mirror in Maven's settings.xml;"
            " a proxy is taken from HTTPS_PROXY.",
        ]
    )


def _ivy_jar() -> Path:
    (jar,) = spark_directory().joinpath("jars").glob("ivy-*.jar")
    return jar


def _module_file(jars: JarSet) -> str:
    modules: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for group, artifact, version, classifier, kind in jars.coordinates:
        files = modules.setdefault((group, artifact, version), [])
        files.append((classifier, kind))
    needs = "default,runtime" if jars.transitive else "default"
    lines = [
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)}"
        f' rev={quoteattr(version)} transitive="{str(jars.transitive).lower()}"'
        f' conf="default->{needs}">{_artifacts(artifact, which)}'
        "</dependency>"
        for (group, artifact, version), which in modules.items()
    ]
    return "\n".join(
        [
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
            f'<info organisation="kafka_tx" module={quoteattr(jars.name)}/>',
            '<configurations><conf name="default"/></configurations>',
            "<dependencies>",
            *lines,
            "</dependencies>",
            "</ivy-module>",
        ]
    )


def _artifacts(module: str, which: list[tuple[str, str]]) -> str:
    """Which files of a module: nothing where it is its main jar alone."""
    if which == [("", "jar")]:
        return ""
    name = quoteattr(module)
    return "".join(
        f"<artifact name={name} type={quoteattr(kind)} ext={quoteattr(kind)}"
        f"{f' m:classifier={quoteattr(classifier)}' if classifier else ''}/>"
        for classifier, kind in which
    )


def _settings_file(ivy_cache: Path, jars: JarSet) -> str:
    address = repository_address()
    root = f" root={quoteattr(address)}" if address else ""
    if not jars.transitive:  # a parent of a module may not be published everywhere
        root += ' usepoms="false"'
    return "\n".join(
        [
            "<ivysettings>",
            '<settings defaultResolver="maven"/>',
            f"<caches defaultCacheDir={quoteattr(str(ivy_cache))}/>",
            f'<resolvers><ibiblio name="maven" m2compatible="true"{root}/></resolvers>',
            "</ivysettings>",
        ]
    )


def repository_address() -> str | None:
    """Where jars come from; None leaves it to Ivy."""
    return os.environ.get("DEFAULT_ARTIFACT_REPOSITORY") or _maven_mirror()


def _maven_mirror() -> str | None:
    """Give the address that Maven would use instead of the central repository."""
    homes = [Path.home() / ".m2", Path("/etc/maven")]
    for settings in (home / "settings.xml" for home in homes):
        if not settings.is_file():
            continue
        for mirror in ElementTree.parse(settings).iterfind(".//{*}mirror"):
            replaces = (mirror.findtext("{*}mirrorOf") or "").split(",")
            if {"central", "*", "external:*"} & {name.strip() for name in replaces}:
                return mirror.findtext("{*}url")
    return None


def _proxy_flags() -> list[str]:
    flags = []
    for scheme in ("http", "https"):
        name = f"{scheme}_proxy"
        proxy = os.environ.get(name) or os.environ.get(name.upper())
        if proxy and (host := urlsplit(proxy).hostname):
            port = urlsplit(proxy).port or 80
            flags += [f"-D{scheme}.proxyHost={host}", f"-D{scheme}.proxyPort={port}"]
    return flags


def main() -> None:
    """Fetch every set that is missing, several at a time, and say where it is."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        try:
            for line in pool.map(_fetched, JAR_SETS):
                print(line, file=sys.stderr)
        except (JavaMissingError, JarsUnavailableError) as error:
            raise SystemExit(str(error)) from None


def _fetched(jars: JarSet) -> str:
    began = time.monotonic()
    place = jar_directory(jars)
    took = time.monotonic() - began
    size = sum(jar.stat().st_size for jar in place.iterdir()) / 1e6
    return f"{jars.name}: {size:.0f} MB in {place} ({took:.1f} s)"


if __name__ == "__main__":
    main()
