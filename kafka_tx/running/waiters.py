"""Threads that wait until a running topology has nothing left to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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

        Returns:
            False if the time was over first; True also if the topology has ended.
        """
        with self._changed:
            is_reached = ask()
            self._count += 1
            try:
                return self._changed.wait_for(
                    lambda: self._is_over or is_reached(), timeout_s
                )
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
