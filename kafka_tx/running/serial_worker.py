"""Threads: one that runs call after call, and those that wait for a topology."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
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
    """Runs submitted functions in their order, on one daemon thread.

    Unlike an executor of ``concurrent.futures``, it lets the interpreter end while a
    call hangs.
    """

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread = _WorkerThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], R]) -> Future[R]:
        """Run the function later; the future gets its result or error."""
        future: Future[R] = Future()
        known = same_events(function)

        def work() -> None:
            try:
                result = known()
            except BaseException as error:  # noqa: BLE001 - for the future
                future.set_exception(error)
            else:
                future.set_result(result)

        self._work.put(work)
        return future

    def close(self, timeout_s: float) -> bool:
        """End after all submitted functions; False if that takes longer."""
        self._work.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


Post = Callable[[Callable[[], None]], None]
"""Runs a function on the topology's thread."""


class Asker(Generic[T]):
    """Runs one request at a time. The topology's thread calls its methods and ``take``.

    Args:
        question: The request; called on a thread called ``name``.
        take: Called with the number of the request, and its answer or error.
        post: Brings the answer to the topology's thread.
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
        """Number of requests so far."""

    def ask(self) -> None:
        """Start a request; not while ``is_busy``."""
        self.is_busy = True
        self.asked += 1
        number = self.asked

        def work() -> None:
            answer: T | BaseException
            try:
                answer = self._question()
            except BaseException as error:  # noqa: BLE001 - for ``take``
                answer = error
            self._post(lambda: self._answered(number, answer))

        self._worker.submit(work)

    def _answered(self, number: int, answer: T | BaseException) -> None:
        self.is_busy = False
        self._take(number, answer)

    def close(self, timeout_s: float) -> bool:
        """End the thread; False if that takes longer."""
        return self._worker.close(timeout_s)


class Waiters:
    """Lets user threads wait for a state that the topology's thread changes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._is_over = False

    @property
    def are_there(self) -> bool:
        """Whether a thread waits."""
        return self._count > 0

    def wait(
        self, ask: Callable[[], Callable[[], bool]], timeout_s: float | None
    ) -> bool:
        """Wait for the condition that ``ask`` returns; no change comes before the wait.

        False if the time was over first, or the topology has ended before.
        """
        with self._changed:
            is_reached = ask()
            self._count += 1
            try:
                self._changed.wait_for(lambda: self._is_over or is_reached(), timeout_s)
                return is_reached()
            finally:
                self._count -= 1

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change the state in the body; then all waiting threads check it again."""
        with self._changed:
            yield
            self._changed.notify_all()

    def end(self) -> None:
        """Let no thread wait any longer."""
        with self.changing():
            self._is_over = True
