"""A server process of this run: started, watched, hurt and ended by its pid."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from integration.cluster.keeper import Keeper
from integration.cluster.waiting import NotReadyError, free_port, wait_until

TAIL_LINES = 40


class Child:
    """A process in a group of its own, with its output in a file.

    It dies with the run (see ``keeper``). Signals go to the whole group, so also to
    what the process has started itself.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        user: str | None = None,
    ) -> None:
        self.log = log
        self._command = [str(word) for word in command]
        keeper = Keeper.of_this_run()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                cwd=directory,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                start_new_session=True,
            )
        keeper.keep_process(self.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Also true of a paused process."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def terminate(self, timeout_s: float = 30.0) -> None:
        """SIGTERM, and wait until it is gone; SIGKILL after the time-out."""
        self.unpause()
        self._end(signal.SIGTERM, timeout_s)

    def interrupt(self, timeout_s: float = 30.0) -> None:
        """SIGINT, and wait until it is gone; SIGKILL after the time-out."""
        self._end(signal.SIGINT, timeout_s)

    def wait(self, timeout_s: float = 180.0) -> None:
        """Let a tool run to its end.

        Raises:
            NotReadyError: It failed, or runs too long and is killed.
        """
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.returncode
        Keeper.of_this_run().forget_process(self.pid)
        if code:
            raise NotReadyError(f"{self._command} ended with {code}\n{self.tail()}")

    def pause(self) -> None:
        """SIGSTOP, and wait until it stands still; its connections stay open.

        Harmless when repeated.
        """
        self._signal(signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):  # it has ended
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def unpause(self) -> None:
        self._signal(signal.SIGCONT)

    def tail(self) -> str:
        """The last lines that it printed."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _end(self, number: signal.Signals, timeout_s: float = 30.0) -> None:
        self._signal(number)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        Keeper.of_this_run().forget_process(self.pid)


def state_of(pid: int) -> str:
    """``R``, ``S``, ``T`` (stopped), ``Z`` and so on; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


class WorkDirectory:
    """A new temporary directory that is deleted with the run at the latest."""

    def __init__(self, purpose: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"kafka-tx-{purpose}-"))
        Keeper.of_this_run().keep_directory(self.path)

    def delete(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        Keeper.of_this_run().forget_directory(self.path)


class ServerProcess:
    """One server: a process with a directory and a port of its own, the same for ever.

    A subclass has ``start``, which ends with ``_serve``.

    Args:
        purpose: What its directory is called.
        owner: The system's user that runs it when we are root; None: the same as us.
    """

    def __init__(self, purpose: str, owner: str | None = None) -> None:
        self._port = free_port()
        self._work = WorkDirectory(purpose)
        self._user = owner if os.geteuid() == 0 else None
        self._child: Child | None = None
        if self._user is not None:
            shutil.chown(self._work.path, self._user, self._user)

    def kill(self) -> None:
        """SIGKILL, with what it has started; ``start`` brings it back with its data."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def stop(self) -> None:
        """End it and delete its data. Harmless when repeated."""
        self.kill()
        self._work.delete()

    def _serve(
        self,
        command: Sequence[str | Path],
        is_ready: Callable[[], object],
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        """Start the process, and return when it is ready."""
        child = self._child = Child(
            command,
            self._work.path / "output.log",
            directory=directory or self._work.path,
            environment=environment,
            user=self._user,
        )
        wait_until(
            f"{type(self).__name__} serves",
            is_ready,
            complain=lambda: None if child.is_running else child.tail(),
        )

    def _run(self, command: Sequence[str | Path], **environment: str) -> None:
        """Run a tool that prepares the data, as the user that runs the server."""
        subprocess.run(
            command,
            cwd=self._work.path,
            env={**os.environ, **environment},
            user=self._user,
            group=self._user,
            extra_groups=None if self._user is None else [],
            stdout=subprocess.DEVNULL,
            check=True,
        )
