"""A driver that dies at a write to its store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kafka_tx.protocols import Expected, Paths, Store, Texts
from kafka_tx.transactions.state_of_id import StoreAround

_T = TypeVar("_T")


class Crash(BaseException):
    """The simulated end of a process; nothing but a test should catch it."""


class CrashingStore(StoreAround):
    """A store whose owner dies at one write, before or after it landed.

    After a crash every use of it raises ``Crash``, as a dead process does nothing
    more; the store inside is unharmed, and a new owner opens that. Try every write, on
    both sides of it, and a protocol's crash points are complete.

    Args:
        inside: The store that keeps the state.
        at_write: Which write, from 1; 0: none.
        landed: Whether that write arrives before the end.
        error: Raised instead of ``Crash``, for this one write: an owner that gets an
            error, lives on, and cannot know whether the write arrived.
    """

    def __init__(
        self,
        inside: Store,
        *,
        at_write: int,
        landed: bool,
        error: Exception | None = None,
    ) -> None:
        super().__init__(inside)
        self.writes = 0
        self.is_dead = False
        self._at_write = at_write
        self._landed = landed
        self._error = error

    def _call(self, call: Callable[[Store], _T]) -> _T:
        if self.is_dead:
            raise Crash(f"dead since write {self.writes}")
        return call(self.inside)

    def write(
        self, epoch: int, put: Texts, delete: Paths = (), *, expect: Expected = None
    ) -> None:
        """Write, unless it is the one at which the owner dies.

        Raises:
            Crash: It is, or it has been.
        """
        self.writes += not self.is_dead
        is_last = self.writes == self._at_write and not self.is_dead
        if self._landed or not is_last:
            super().write(epoch, put, delete, expect=expect)
        if is_last:
            self.is_dead = self._error is None
            raise self._error or Crash(f"write {self.writes}, landed={self._landed}")

    def close(self) -> None:
        """Close the store inside, unless the owner is dead."""
        if not self.is_dead:
            self.inside.close()
