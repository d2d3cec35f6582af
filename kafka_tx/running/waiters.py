"""Threads that wait until a running topology has nothing left to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Waiters:
    """User threads wait; the topology's thread changes what they wait for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._is_over = False

    @property
    def are_there(self) -> bool:
        """Whether somebody waits."""
        return self._count > 0

    def wait(
        self, ask: Callable[[], Callable[[], bool]], timeout_s: float | None
    ) -> bool:
        """Wait for what ``ask`` wants, which nothing changes meanwhile.

        Returns:
            False when the time was over before; True also when the topology has ended.
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
        """Have them look again at what is changed here."""
        with self._changed:
            yield
            self._changed.notify_all()

    def end(self) -> None:
        """Let nobody wait any longer."""
        with self.changing():
            self._is_over = True
