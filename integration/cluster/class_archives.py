"""Archives of loaded classes: a JVM that maps one starts in half the time.

``rehearsals`` makes them. A JVM whose archive is absent, or was made by another Java or
from other jars, loads its classes from the jars as ever.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from integration.cluster.jars import cache_directory, only_one
from integration.cluster.java import java

MAKING = "KAFKA_TX_MAKES_CLASS_ARCHIVE"
"""The variable that names what is being made, for the JVMs that are started then."""

_SILENT = ("-Xlog:disable", "-Xlog:all=error:stderr")
_HEAD_BYTES = 4


def class_archive(name: str, jars: Sequence[Path]) -> list[str]:
    """Java's flags to start with an archive if it is there, or to make it at the end.

    Args:
        name: Of the archive; JVMs of one name run the same code.
        jars: Of the class path, in its order.
    """
    if os.environ.get(MAKING) == name:
        return [f"-XX:ArchiveClassesAtExit={_beside(_place(name, jars))}", *_SILENT]
    place = _place(name, jars)
    return [f"-XX:SharedArchiveFile={place}", *_SILENT] if place.is_file() else []


def make(name: str, jars: Sequence[Path], work: Callable[[], None]) -> None:
    """Make an archive if it is missing.

    Args:
        name: As the JVMs that ``work`` starts give it to ``class_archive``.
        jars: As they give it.
        work: Starts one JVM, lets it work, and lets it end by itself or by SIGTERM.
    """
    place = _place(name, jars)
    place.parent.mkdir(exist_ok=True)
    with only_one(place.parent / f"{name}.lock"):
        if place.is_file():
            return
        with _making(name):
            work()
        made = _beside(place)
        if _is_whole(made):
            made.rename(place)


def _place(name: str, jars: Sequence[Path]) -> Path:
    return cache_directory() / "classes" / f"{name}-{_fingerprint(tuple(jars))}.jsa"


def _beside(place: Path) -> Path:
    return place.with_suffix(".part")


def _is_whole(made: Path) -> bool:
    """Whether it was written to its end: Java writes the head last."""
    if not made.is_file():
        return False
    with made.open("rb") as file:
        return file.read(_HEAD_BYTES) not in (b"", bytes(_HEAD_BYTES))


@cache
def _fingerprint(jars: tuple[Path, ...]) -> str:
    """Of what the JVM compares with the archive: Java, paths, sizes, times."""
    text = [_java_version()]
    for jar in jars:
        found = jar.stat()
        text.append(f"{jar} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:12]


@cache
def _java_version() -> str:
    answer = subprocess.run(
        [java(), "-version"], capture_output=True, text=True, check=True
    )
    return answer.stderr + answer.stdout


@contextmanager
def _making(name: str) -> Iterator[None]:
    os.environ[MAKING] = name
    try:
        yield
    finally:
        del os.environ[MAKING]
