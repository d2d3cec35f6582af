"""A Java process that serves, in a directory of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from integration.cluster import versions
from integration.cluster.child import Child
from integration.cluster.class_archives import class_archive
from integration.cluster.jars import class_path, jar_paths
from integration.cluster.java import java
from integration.cluster.versions import JarSet
from kafka_tx.testing import QUICK_JAVA

DATA = "data"
"""The folder of a server's data, in its place."""

SMALL_HEAP = ("-Xms64m", "-Xmx256m")
HEAP = "KAFKA_HEAP_OPTS"
"""Kafka's own variable for another heap."""

LOG4J_1 = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""

LOG4J_2 = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
"""


def archive_of(jars: JarSet, main: str) -> str:
    """The name of the archive of classes of servers with this class of these jars."""
    return f"{jars.name}-{main.rpartition('.')[2]}"


class JavaServer:
    """A ``Node`` as a process.

    ``format_with``, if given, is another class of the same jars and its arguments,
    which makes the folder ``data``. It is run before the first start, unless
    ``formatted`` holds what it has made for another server of the same kind.
    """

    def __init__(
        self,
        place: Path,
        jars: JarSet,
        main: Sequence[str],
        format_with: Sequence[str] = (),
        formatted: Path | None = None,
    ) -> None:
        self.place = place
        self.is_paused = False
        self._jars = jars
        self._main = main
        self._format_with = format_with
        self._formatted = formatted
        self._formatter: Child | None = None
        self._child: Child | None = None
        place.mkdir()

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._child is not None
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.is_running

    def prepare(self) -> None:
        if self._format_with:
            if self._formatted is not None and self._formatted.is_dir():
                shutil.copytree(self._formatted, self.place / DATA)
            else:
                self._formatter = self._java(self._format_with)
            self._format_with = ()

    def start(self) -> None:
        self.prepare()
        if self._formatter is not None:
            self._formatter.wait()
            self._formatter = None
            self._keep_formatted()
        self.is_paused = False
        self._child = self._java(self._main)

    def _keep_formatted(self) -> None:
        if self._formatted is None:
            return
        self._formatted.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._formatted.parent) as name:
            made = shutil.copytree(self.place / DATA, Path(name) / DATA)
            with contextlib.suppress(OSError):  # another run was first
                made.rename(self._formatted)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def terminate(self) -> None:
        if self._child is not None:
            self._child.terminate()
            self._child = None

    def delete(self) -> None:
        if self._formatter is not None:
            self._formatter.kill()
        self.kill()

    def pause(self) -> None:
        assert self._child is not None
        self._child.pause()
        self.is_paused = True

    def unpause(self) -> None:
        assert self._child is not None
        self._child.unpause()
        self.is_paused = False

    def complaint(self) -> str | None:
        if self._child is None or self._child.is_running:
            return None
        return f"the process has ended\n{self._child.tail()}"

    def _java(self, main: Sequence[str]) -> Child:
        return Child(
            [
                java(),
                *QUICK_JAVA,
                *class_archive(archive_of(self._jars, main[0]), jar_paths(self._jars)),
                *os.environ.get(HEAP, " ".join(SMALL_HEAP)).split(),
                self._logging(),
                *("-cp", class_path(self._jars)),
                *main,
            ],
            self.place / "output.log",
            directory=self.place,
        )

    def _logging(self) -> str:
        if self._jars is versions.KAFKA_JARS:
            file, text, name = "log4j2.properties", LOG4J_2, "log4j2.configurationFile"
        else:
            file, text, name = "log4j.properties", LOG4J_1, "log4j.configuration"
        path = self.place / file
        path.write_text(text)
        return f"-D{name}={path.as_uri()}"
