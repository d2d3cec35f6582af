"""The machine's clocks, for what waits at the edges."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Wall clock, milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the Unix epoch."""
        return now_ms()

    def monotonic_ms(self) -> int:
        """Milliseconds since some point."""
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        """Wait so long."""
        time.sleep(duration_ms / 1000)
