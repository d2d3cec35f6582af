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
