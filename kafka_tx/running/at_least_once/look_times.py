"""When a spout's poller looks at its logs."""

from __future__ import annotations

from kafka_tx.planning import quiet

LOOK_MS = 100
"""Between two looks at the logs while there is nothing to read; longer and longer."""

BUSY_LOOK_MS = 1_000
"""The same while there is."""

_DEAR_LOOK_MS = 5_000
"""The same where a look takes long; it takes a fiftieth of the time at most."""

_LOOK_SHARE = 50


class LookTimes:
    """One look at a time, in monotonic ms; the topology's thread only.

    Attributes:
        is_wanted: The next look is due at once.
        had_nothing: Nothing was to be read when records were wanted last.
    """

    def __init__(self) -> None:
        self.is_wanted = True
        self.had_nothing = True
        self._fruitless = 0
        self._took_ms = 0
        self._began_ms = self._ended_ms = 0

    def began(self, now_ms: int) -> None:
        """A look begins."""
        self.is_wanted = False
        self._began_ms = now_ms

    def ended(self, now_ms: int, *, is_news: bool) -> None:
        """Its answer was taken in, and told of a log that changed, or of none."""
        self._ended_ms = now_ms
        self._took_ms = now_ms - self._began_ms
        self._fruitless = 0 if is_news else self._fruitless + 1

    def failed(self, now_ms: int) -> None:
        """There was no answer."""
        self._ended_ms = now_ms

    def due_ms(self, partitions: int) -> int:
        """When to look at so many partitions again; 0: at once."""
        if self.is_wanted:
            return 0
        return self._ended_ms + self._pause_ms(partitions)

    def _pause_ms(self, partitions: int) -> int:
        if self.had_nothing:
            longest_ms = quiet.longest_pause_ms(partitions)
            return quiet.pause_ms(max(self._fruitless, 1), LOOK_MS, longest_ms)
        return max(BUSY_LOOK_MS, min(self._took_ms * _LOOK_SHARE, _DEAR_LOOK_MS))
