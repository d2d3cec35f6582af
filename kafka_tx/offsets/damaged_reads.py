"""Pauses before damaged records are read again, and the number of tries."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kafka_tx.offsets.retry import BackOff

K = TypeVar("K", bound=Hashable)

OF_BATCHES = BackOff(initial_delay_ms=1_000, multiplier=2, max_delay_ms=16_000, limit=5)
"""Six tries in half a minute: nothing else of the batch can go on."""

OF_PARTITIONS = BackOff(
    initial_delay_ms=1_000, multiplier=2, max_delay_ms=30_000, limit=8
)
"""Nine tries in two minutes: the other partitions go on."""


class DamagedReads(Generic[K]):
    """What has failed, such as reads of damaged records, and when it is tried again.

    ``K`` names what is tried: a txid, or a partition and an offset.
    Times are milliseconds of the caller's monotonic clock.
    """

    def __init__(self, back_off: BackOff) -> None:
        self._back_off = back_off
        self._failures: dict[K, int] = {}
        self._at_ms: dict[K, int] = {}

    def failed(self, what: K, now_ms: int) -> bool:
        """Count a failure, after which it waits; False if that was the last try."""
        failures = self._failures[what] = self._failures.get(what, 0) + 1
        self._at_ms[what] = now_ms + self._back_off.delay_ms(failures)
        return self._back_off.allows(failures)

    def opens_at_ms(self, what: K) -> int:
        """When its next try is due; 0: it does not wait."""
        return self._at_ms.get(what, 0)

    def started(self, what: K) -> None:
        """Its next try begins."""
        self._at_ms.pop(what, None)

    def landed(self, what: K) -> None:
        """It was read: its next failure is the first one again."""
        self._failures.pop(what, None)
        self._at_ms.pop(what, None)

    def landed_where(self, is_read: Callable[[K], bool]) -> None:
        """As ``landed``, for all that were read."""
        for what in [*filter(is_read, self._failures)]:
            self.landed(what)

    def wakes_after(self, now_ms: int) -> int | None:
        """The time of the first try after ``now_ms``; None: there is none."""
        return min((at for at in self._at_ms.values() if at > now_ms), default=None)
