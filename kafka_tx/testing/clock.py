"""Time that a test moves."""

from __future__ import annotations


class ManualClock:
    """A clock that moves when it is told to. Sleeping moves it, and takes no time."""

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        """Wall clock, Unix epoch."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Never goes back."""
        return self._monotonic_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Let so much time pass."""
        self.advance(duration_ms)

    def advance(self, duration_ms: int) -> None:
        """Let so much time pass, 0 or more."""
        if duration_ms < 0:
            raise ValueError(f"time passes forward, not by {duration_ms} ms")
        self._now_ms += duration_ms
        self._monotonic_ms += duration_ms

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, as people and NTP do; the monotonic one goes on."""
        self._now_ms = now_ms
