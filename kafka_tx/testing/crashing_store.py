"""A driver that dies at a write to its store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_tx.protocols import Store


class Crash(BaseException):
    """The simulated end of a process; nothing but a test should catch it."""


class CrashingStore:
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
        self.inside = inside
        self.writes = 0
        self.is_dead = False
        self._at_write = at_write
        self._landed = landed
        self._error = error

    @property
    def url(self) -> str:
        """The address of the store inside."""
        return self.inside.url

    @property
    def id(self) -> str:
        """Whose state this is."""
        return self.inside.id

    def acquire(self) -> int:
        """Become the owner; not counted as a write."""
        return self._alive().acquire()

    def epoch(self) -> int:
        """The stored epoch now."""
        return self._alive().epoch()

    def read(self, prefix: str = "") -> dict[str, str]:
        """Every path that begins with ``prefix``."""
        return self._alive().read(prefix)

    def get(self, path: str) -> str | None:
        """One value."""
        return self._alive().get(path)

    def write(
        self,
        epoch: int,
        put: Mapping[str, str],
        delete: Iterable[str] = (),
        *,
        expect: Mapping[str, str | None] | None = None,
    ) -> None:
        """Write, unless it is the one at which the owner dies.

        Raises:
            Crash: It is, or it has been.
        """
        store = self._alive()
        self.writes += 1
        is_last = self.writes == self._at_write
        if self._landed or not is_last:
            store.write(epoch, put, delete, expect=expect)
        if is_last:
            self.is_dead = self._error is None
            raise self._error or Crash(f"write {self.writes}, landed={self._landed}")

    def close(self) -> None:
        """Close the store inside, unless the owner is dead."""
        if not self.is_dead:
            self.inside.close()

    def _alive(self) -> Store:
        if self.is_dead:
            raise Crash(f"dead since write {self.writes}")
        return self.inside
