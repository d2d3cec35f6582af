"""A small process that ends what a run left behind, however the run ended.

The run tells it through a pipe what it has started. When the pipe closes, because the
run ended or was killed, the keeper ends all that was not ended yet, youngest first.
It kills by exact process group and start time, never by a name.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

CHECK_EVERY_S = 1.0
STOPS_WITHIN_S = 30.0


class Keeper:
    """The run's end of the pipe. One per run; started by the first thing to keep."""

    _only: Keeper | None = None

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    @classmethod
    def of_this_run(cls) -> Keeper:
        if cls._only is None:
            cls._only = cls()
            atexit.register(cls._only.end_all)
        return cls._only

    def keep_process(self, pid: int) -> None:
        """End the process group of ``pid`` with the run."""
        self._tell("+", "process", str(pid), _start_time(pid))

    def forget_process(self, pid: int) -> None:
        self._tell("-", "process", str(pid))

    def keep_directory(self, path: Path) -> None:
        """Delete a directory with the run, after the processes started since."""
        self._tell("+", "directory", str(path))

    def forget_directory(self, path: Path) -> None:
        self._tell("-", "directory", str(path))

    def keep_containers(self, session: str) -> None:
        """Remove, with the run, containers and networks of a testcontainers session."""
        self._tell("+", "containers", session)

    def end_all(self) -> None:
        """End all that is left, and wait until it is gone. The run's last act."""
        if self._process.returncode is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOPS_WITHIN_S)

    def _tell(self, sign: str, kind: str, name: str, detail: str = "") -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            line = "\t".join([sign, kind, name, detail]) + "\n"
            os.write(self._process.stdin.fileno(), line.encode())


def _start_time(pid: int) -> str:
    """Ticks since boot: with the pid, it names one process for ever. Empty if gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19]


# --- the keeper's own process -------------------------------------------------------


def main(parent: int) -> None:
    """Note what the parent starts until it is gone, then end the rest."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kept: dict[tuple[str, str], str] = {}
    unread = b""
    while os.getppid() == parent:
        if not select.select([0], [], [], CHECK_EVERY_S)[0]:
            continue
        piece = os.read(0, 65536)
        if not piece:
            break
        *lines, unread = (unread + piece).split(b"\n")
        for line in lines:
            _note(kept, line.decode())
    for (kind, name), detail in reversed(kept.items()):
        with contextlib.suppress(Exception):
            _END[kind](name, detail)


def _note(kept: dict[tuple[str, str], str], line: str) -> None:
    sign, kind, name, detail = line.split("\t")
    if sign == "+":
        kept[kind, name] = detail
    else:
        kept.pop((kind, name), None)


def _end_process(pid: str, start_time: str) -> None:
    if start_time and _start_time(int(pid)) == start_time:
        os.killpg(int(pid), signal.SIGKILL)


def _end_directory(name: str, _detail: str) -> None:
    shutil.rmtree(name, ignore_errors=True)


def _end_containers(session: str, _detail: str) -> None:
    import docker

    engine = docker.from_env()
    mine = {"label": f"org.testcontainers.session-id={session}"}
    for container in engine.containers.list(all=True, filters=mine):
        with contextlib.suppress(docker.errors.APIError):  # the others are to go, too
            container.remove(force=True, v=True)
    for network in engine.networks.list(filters=mine):
        network.remove()


_END = {
    "process": _end_process,
    "directory": _end_directory,
    "containers": _end_containers,
}

if __name__ == "__main__":
    main(int(sys.argv[1]))
