"""How large a batch for a topic may be, learned from its limit and from refusals.

A broker refuses a batch that is larger than its topic takes as a whole, innocent
records included, and does not say by how much. Java's client splits such a batch;
librdkafka does not, and its batches are larger. So batches follow the topic's limit
where it is known, and what is refused is sent again in batches of half the size, until
a record fails alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

DEFAULT = 1_000_000
"""Bytes of librdkafka's batches unless it is told otherwise."""

_BATCH = 61
"""Bytes of a batch beside its records."""
_RECORD, _HEADER = (7, 36), (2, 10)
"""Bytes of a record, and of a header, beside what they hold: at least and at most."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What a client was told of one record.

    Attributes:
        partition: Of its topic.
        size: Bytes of key, value and headers.
        headers: How many.
        is_refused: With its whole batch; else it is delivered.
    """

    partition: int
    size: int
    headers: int = 0
    is_refused: bool = True

    @property
    def at_least(self) -> int:
        """Bytes that it takes in a batch, with short lengths and offsets."""
        return self.size + _RECORD[0] + _HEADER[0] * self.headers

    @property
    def at_most(self) -> int:
        """The same with long ones, which librdkafka reserves."""
        return self.size + _RECORD[1] + _HEADER[1] * self.headers


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of records, by their place in what was told.

    Attributes:
        alone: Refused alone: these can never be written.
        again: To be sent again, in this order.
        size: The size of batches for that.
    """

    alone: tuple[int, ...]
    again: tuple[int, ...]
    size: int


class BatchSize:
    """The size of batches for one topic, as one process knows it.

    1. It begins with what the user gave, or librdkafka's own size, and at most the
       topic's limit (``told``). A user's size for *compressed* batches stays: the limit
       is on what is left of them.
    2. A refusal (``settle``) halves it, never below half of the topic's limit, and that
       is remembered.
    3. Another limit makes it forget refusals.

    Args:
        given: What the user gave, in bytes.
        is_compressed: Whether batches are.
    """

    def __init__(
        self, given: int | None = None, *, is_compressed: bool = False
    ) -> None:
        self._start = DEFAULT if given is None else given
        self._follows = given is None or not is_compressed
        self._limit: int | None = None
        self._learned: int | None = None

    @property
    def size(self) -> int:
        """In bytes, from 1."""
        sizes = [self._start]
        if self._limit is not None and self._follows:
            sizes.append(self._limit)
        if self._learned is not None:
            sizes.append(self._learned)
        return max(1, min(sizes))

    @property
    def limit(self) -> int | None:
        """The topic's, in bytes; None where nobody may know it."""
        return self._limit

    def reported(self, limit: int | None) -> None:
        """Take the topic's limit, or None where brokers do not tell it."""
        if limit is not None and limit != self._limit:
            self._limit, self._learned = limit, None

    def settle(
        self, reported: Sequence[Reported], at: int, *, remembers: bool = True
    ) -> Verdict:
        """Decide on refused records, and on those delivered behind them.

        Records of a partition keep their order: what was delivered behind a refused
        record is sent again behind it.

        Args:
            reported: All that the client was told since the first refusal; those of one
                partition in the order in which they were sent. Nothing of a refused
                batch is missing.
            at: The size of batches that they were sent in.
            remembers: Whether they were refused for the size of their batch, and not
                for something else in one of them.
        """
        partitions: defaultdict[int, list[int]] = defaultdict(list)
        for place, one in enumerate(reported):
            partitions[one.partition].append(place)
        alone: list[int] = []
        again: list[int] = []
        largest = 0
        for places in partitions.values():
            refused = [place for place in places if reported[place].is_refused]
            apart = _apart(reported, refused, at)
            together = [place for place in refused if place not in apart]
            alone += sorted(apart)
            if together:
                again += [p for p in places if p >= together[0] and p not in apart]
                whole = _BATCH + sum(reported[place].at_most for place in together)
                largest = max(largest, whole)
        size = max(1, min(self.size, min(at, largest) // 2)) if largest else self.size
        if remembers and largest:
            self._learned = size
        return Verdict(tuple(alone), tuple(again), size)


def _apart(reported: Sequence[Reported], refused: Sequence[int], at: int) -> set[int]:
    """Those of a partition's refused records that shared a batch with no other."""
    sizes = sorted(reported[place].at_least for place in refused)
    apart = set()
    for place in refused:
        own = reported[place].at_least
        others = sizes[1:] if own == sizes[0] else sizes
        if not others or _BATCH + own + others[0] > at:
            apart.add(place)
    return apart
