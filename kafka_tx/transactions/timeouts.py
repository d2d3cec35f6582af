"""Time-outs by rotation: entries age in buckets, the oldest bucket falls out whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from kafka_tx.errors import ConfigError

K = TypeVar("K")
V = TypeVar("V")


class RotatingMap(Generic[K, V]):
    """A map whose entries fall out after a number of rotations.

    An entry falls out with the ``buckets``-th rotation after it was put. Putting it
    again starts anew, reading it does not. Source: Storm, RotatingMap.

    Raises:
        ConfigError: Fewer than 2 buckets.
    """

    def __init__(self, buckets: int = 3) -> None:
        if buckets < 2:
            raise ConfigError.illegal("buckets", buckets, "a whole number >= 2")
        # youngest first
        self._buckets: deque[dict[K, V]] = deque({} for _ in range(buckets))

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def __contains__(self, key: object) -> bool:
        return any(key in bucket for bucket in self._buckets)

    def __iter__(self) -> Iterator[K]:
        """The keys, youngest bucket first."""
        for bucket in self._buckets:
            yield from bucket

    def put(self, key: K, value: V) -> None:
        """Set it in the youngest bucket; it is in no other one afterwards."""
        youngest, *older = self._buckets
        youngest[key] = value
        for bucket in older:
            if bucket.pop(key, None) is not None:
                return

    def get(self, key: K) -> V | None:
        """Its value, or None."""
        for bucket in self._buckets:
            if key in bucket:
                return bucket[key]
        return None

    def remove(self, key: K) -> V | None:
        """Take it out and return its value, or None."""
        for bucket in self._buckets:
            if key in bucket:
                return bucket.pop(key)
        return None

    def rotate(self) -> dict[K, V]:
        """Make everything one bucket older; return what fell out."""
        fallen = self._buckets.pop()
        self._buckets.appendleft({})
        return fallen


class ExpiringMap(RotatingMap[K, V]):
    """A RotatingMap that is told the time instead of being told to rotate.

    An entry lives at least ``timeout_ms`` and less than ``timeout_ms * buckets /
    (buckets - 1)``, as long as ``expire`` is called often enough: with 3 buckets 1.0 to
    1.5 time-outs, with 2 buckets 1 to 2. Source: Storm, TimeCacheMap.

    Raises:
        ConfigError: Fewer than 2 buckets, or a time-out below 1 ms.
    """

    def __init__(self, timeout_ms: int, now_ms: int, buckets: int = 3) -> None:
        super().__init__(buckets)
        if timeout_ms < 1:
            raise ConfigError.illegal("timeout_ms", timeout_ms, "a whole number >= 1")
        # rounded up: an entry never falls out early
        self._period_ms = -(-timeout_ms // (buckets - 1))
        self._rotated_ms = now_ms

    def rotates_at_ms(self) -> int:
        """When ``expire`` has something to do next."""
        return self._rotated_ms + self._period_ms

    def expire(self, now_ms: int) -> dict[K, V]:
        """Rotate once if it is time; return what fell out.

        Once, however late: entries must not fall out early because nobody looked.
        ``now_ms`` is monotonic.
        """
        if now_ms < self.rotates_at_ms():
            return {}
        self._rotated_ms = now_ms
        return self.rotate()
