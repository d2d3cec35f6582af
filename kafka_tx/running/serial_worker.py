"""A thread that does one thing after the other, or answers one question at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

from kafka_tx.logs import same_events

R = TypeVar("R")
T = TypeVar("T")

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
        known = same_events(function)

        def work() -> None:
            try:
                result = known()
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


Post = Callable[[Callable[[], None]], None]
"""Has a call made on the topology's thread."""


class Asker(Generic[T]):
    """All methods are the topology's thread's, and so is ``take``.

    Args:
        name: Of the thread that asks.
        question: Called there.
        take: Given the number of the question and the answer, or what was raised.
        post: Brings the answer back.
    """

    def __init__(
        self,
        name: str,
        question: Callable[[], T],
        take: Callable[[int, T | BaseException], None],
        post: Post,
    ) -> None:
        self._worker = SerialWorker(name)
        self._question = question
        self._take = take
        self._post = post
        self.is_busy = False
        """Whether an answer is awaited."""
        self.asked = 0
        """How many questions were asked."""

    def ask(self) -> None:
        """Ask once more; not while it is busy."""
        self.is_busy = True
        self.asked += 1
        number = self.asked

        def work() -> None:
            answer: T | BaseException
            try:
                answer = self._question()
            except BaseException as error:  # noqa: BLE001 - raised where it is taken
                answer = error
            self._post(lambda: self._answered(number, answer))

        self._worker.submit(work)

    def _answered(self, number: int, answer: T | BaseException) -> None:
        self.is_busy = False
        self._take(number, answer)

    def close(self, timeout_s: float) -> bool:
        """End the thread; False if that takes longer."""
        return self._worker.close(timeout_s)
