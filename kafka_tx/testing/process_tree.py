"""Processes of Spark for demonstrations and tests: started quickly, killed whole.

Two things are left out, because they cost time where Spark is started often:

* Spark puts ``python/lib/pyspark.zip`` before everything else on the path of its Python
  processes. Nothing compiled is kept for sources in a zip file, so each process
  compiles PySpark anew, for more than a second. Without the file, the same sources are
  imported from the installed package.
* MLlib registers its functions with each session through Scala's reflection, which
  takes half of a session's start.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kafka_tx.errors import KafkaTxError

_KILL_TIMEOUT_S = 20.0
_LINES = 20


class ProcessTree:
    """A Python program in a session of its own, with a pipe for its events.

    Whatever it starts (a JVM, Python workers in process groups of their own) stays in
    its session, and ``kill`` ends every process of that session.

    Args:
        module: What ``python -m`` runs; its argument is what ``argument`` makes of the
            number of the pipe's file descriptor.
        log: File that takes what the programs print.
    """

    def __init__(
        self,
        module: str,
        argument: Callable[[int], str],
        log: Path,
        environment: Mapping[str, str],
    ) -> None:
        self._log = log
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._unread = b""
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - this Python, our module
                [sys.executable, "-m", module, argument(writing)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                pass_fds=[writing],
                start_new_session=True,
            )
        os.close(writing)

    @property
    def pid(self) -> int:
        """The program's process id, which is also the number of its session."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def say(self, line: str) -> None:
        """Write a line to its standard input; nothing happens when it is gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def events(self) -> list[dict[str, Any]]:
        """The process's output since the last call."""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._reading, 65536):
                self._unread += piece
        *lines, self._unread = self._unread.split(b"\n")
        return [json.loads(line) for line in lines]

    def kill(self) -> None:
        """SIGKILL to every process of the session; returns when all are gone.

        Raises:
            KafkaTxError: One is still there after 20 s.
        """
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        if self.code is None:  # where there is no /proc: the JVM's workers follow it
            os.killpg(self.pid, signal.SIGKILL)
        while left := session_members(self.pid) or self.code is None:
            for pid in left if isinstance(left, list) else []:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise KafkaTxError(f"killed, and still there: processes {left}")
            time.sleep(0.02)
        self.close()

    def close(self) -> None:
        """Release the pipes. Calling it twice is harmless."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._reading >= 0:
            os.close(self._reading)
            self._reading = -1

    def tail(self) -> str:
        """The last lines that were printed."""
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LINES:])


def session_members(session: int) -> list[int]:
    """Living processes of a session, from /proc.

    Systems without /proc: only the process group, whose pids are not known, so none.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        state, _parent, _group, member_of = fields[:4]
        if int(member_of) == session and state not in "ZX":
            found.append(int(entry.parent.name))
    return found


UNUSED_JARS = "spark-mllib_*.jar"
QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
)
"""Options of a JVM that lives for minutes: it starts in half the time, and code that
runs for long would be slower. With the first one alone, Java keeps 48 MB of compiled
code. Spark fills them within a minute, and compiles again and again what was dropped.
"""


def spark_directory() -> Path:
    """Where PySpark is installed; it is not imported."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).resolve().parent


def quick_spark(place: Path) -> dict[str, str]:
    """Make a folder of links to PySpark's files; links that are there already stay.

    Returns variables for the environment of a program that starts a session. Spark
    Connect and MLlib do not work with it.
    """
    installed = spark_directory()
    (place / "jars").mkdir(parents=True, exist_ok=True)
    links = {place / "bin": installed / "bin"}
    for jar in (installed / "jars").iterdir():
        if not jar.match(UNUSED_JARS):
            links[place / "jars" / jar.name] = jar
    for link, target in links.items():
        with contextlib.suppress(FileExistsError):
            link.symlink_to(target)
    return {"SPARK_HOME": str(place), "SPARK_LAUNCHER_OPTS": " ".join(QUICK_JAVA)}
