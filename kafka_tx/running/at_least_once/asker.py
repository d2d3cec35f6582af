"""Asks what takes long on a thread of its own, one question at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kafka_tx.running.serial_worker import SerialWorker

T = TypeVar("T")

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
