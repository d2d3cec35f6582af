"""A thread that does one thing after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

R = TypeVar("R")

_Work = Callable[[], None]


class _WorkerThread(threading.Thread):
    pass


def is_worker() -> bool:
    """Whether this code was submitted to a ``SerialWorker``."""
    return isinstance(threading.current_thread(), _WorkerThread)


class SerialWorker:
    """Runs what it is given in the order given, on one daemon thread.

    Unlike an executor of ``concurrent.futures`` it never keeps the interpreter from
    ending when a call hangs.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread = _WorkerThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], R]) -> Future[R]:
        """Run it later; the future tells how it went."""
        future: Future[R] = Future()

        def work() -> None:
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - told to who asked
                future.set_exception(error)
            else:
                future.set_result(result)

        self._work.put(work)
        return future

    def close(self, timeout_s: float) -> bool:
        """End after what was submitted; False if that takes longer."""
        self._work.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
