"""The jobs as driver processes: kept running, found in parts, frozen and overtaken."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from integration.chaos.job import STARTED, TRIED
from integration.cluster.child import Child, WorkDirectory
from integration.cluster.waiting import wait_until
from kafka_tx.testing.process_tree import session_members

REPOSITORY = Path(__file__).parents[2]
_POLL_EVERY_S = 0.2


class Driver:
    """One job. A driver that ends is started again, as a cluster manager would."""

    def __init__(self, kind: str, addresses: Mapping[str, str]) -> None:
        self.kind = kind
        self.work = WorkDirectory(f"chaos-{kind}")
        self.starts = 0
        self._addresses = addresses
        self._child: Child | None = None
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def log(self) -> Path:
        """What all its drivers printed."""
        return self.work.path / "log"

    @property
    def pid(self) -> int:
        """Of the driver that runs now."""
        assert self._child is not None
        return self._child.pid

    def start(self) -> None:
        """Start it, and keep it running."""
        self.begin()
        self._thread.start()

    def stop(self) -> None:
        """End it for good."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._child is not None:
            self._end(self._child)
        self.work.delete()

    def begin(self) -> None:
        """Start a driver, whatever became of the one before."""
        with self._lock:
            self.starts += 1
            arguments = {"kind": self.kind, "work": self.work.path, **self._addresses}
            words = [w for n, v in arguments.items() for w in (f"--{n}", str(v))]
            self._child = Child(
                [sys.executable, "-m", "integration.chaos.job", *words],
                self.log,
                directory=REPOSITORY,
                environment={"PYSPARK_PYTHON": sys.executable},
            )

    def kill(self) -> int:
        """SIGKILL to the driver with all that it started; its pid."""
        with self._lock:
            assert self._child is not None
            pid = self._child.pid
            self._end(self._child)
            return pid

    def part(self, word: str) -> int | None:
        """A process that the driver started, by a word of its command line."""
        for pid in session_members(self.pid):
            if word in command_of(pid):
                return pid
        return None

    def freeze(self) -> Child:
        """SIGSTOP to all of the driver, and begin another; the frozen one."""
        with self._lock:
            frozen = self._child
            assert frozen is not None
            signal_all(frozen, signal.SIGSTOP)
            self.begin()
            return frozen

    def lose_commit_entry(self) -> bool:
        """Kill the driver between two batches, delete the newest commit-log entry.

        False, and nothing is done, where a batch is on its way: Spark would go on with
        that one, whatever became of the entry before it.
        """
        with self._lock:
            assert self._child is not None
            signal_all(self._child, signal.SIGSTOP)
            newest = newest_entry(self.work.path / "checkpoint" / "commits")
            if newest < 1 or newest < newest_entry(
                self.work.path / "checkpoint" / "offsets"
            ):
                signal_all(self._child, signal.SIGCONT)
                return False
            self.kill()
            entry = self.work.path / "checkpoint" / "commits" / str(newest)
            entry.unlink()
            entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
            self.begin()
            return True

    def tried(self) -> list[tuple[int, int]]:
        """Txid and attempt id of each batch that its drivers began."""
        pairs = (line.split() for line in self._lines(TRIED))
        return [(int(txid), int(attempt)) for txid, attempt in pairs]

    def started(self) -> list[float]:
        """When each of its drivers had Spark ready, in seconds since 1970."""
        return [float(line) for line in self._lines(STARTED)]

    def _lines(self, name: str) -> list[str]:
        try:
            return (self.work.path / name).read_text().splitlines()
        except OSError:
            return []

    def _run(self) -> None:
        while not self._over.wait(_POLL_EVERY_S):
            with self._lock:
                if self._child is not None and not self._child.is_running:
                    self._end(self._child)
                    self.begin()

    def _end(self, child: Child) -> None:
        def is_gone() -> bool:  # what it forked meanwhile too
            signal_all(child, signal.SIGKILL)
            return not session_members(child.pid)

        wait_until(f"all of '{self.kind}' is gone", is_gone)
        child.kill()


def newest_entry(log: Path) -> int:
    """Of the batches of one of Spark's logs; -1 without any."""
    names = (path.name for path in log.glob("*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def signal_all(child: Child, number: signal.Signals) -> None:
    """Send it to every process of a driver: workers have groups of their own."""
    for pid in session_members(child.pid):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def command_of(pid: int) -> str:
    """Its command line; empty when it is gone."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return text.replace(b"\0", b" ").decode(errors="replace")
