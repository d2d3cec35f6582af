"""How large a batch for a topic may be, learned from its limit and from refusals.

A broker refuses a whole batch that is larger than its topic's limit, small records
included, and does not report the limit. Java's client splits such a batch; librdkafka
does not, and its batches are larger. So batches follow the topic's limit where the
limit is known. Refused records are sent again in batches of half the size, until a
record fails alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

DEFAULT = 1_000_000
"""Default size of librdkafka's batches, in bytes."""

_BATCH = 61
"""Bytes of a batch without its records."""
_RECORD, _HEADER = (7, 36), (2, 10)
"""Overhead of a record and of a header in bytes: (least, most)."""


@dataclass(frozen=True, slots=True)
class SentRecord:
    """A record that was sent, and the broker's answer.

    Attributes:
        size: Bytes of key, value and headers.
        headers: Number of headers.
        is_refused: The whole batch was refused; False: the record was delivered.
    """

    partition: int
    size: int
    headers: int = 0
    is_refused: bool = True

    @property
    def at_least(self) -> int:
        """Bytes of the record in a batch, if lengths and offsets are short."""
        return self.size + _RECORD[0] + _HEADER[0] * self.headers

    @property
    def at_most(self) -> int:
        """Bytes of the record in a batch, as librdkafka reserves them."""
        return self.size + _RECORD[1] + _HEADER[1] * self.headers


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on records, by their index.

    Attributes:
        alone: Refused in a batch of one record: these can never be written.
        again: Send these again, in this order, in batches of ``size``.
    """

    alone: tuple[int, ...]
    again: tuple[int, ...]
    size: int


class BatchSize:
    """The size of batches for one topic, as learned by one process.

    1. It begins with the user's size, or librdkafka's default, but at most the topic's
       limit (``set_limit``). A user's size for *compressed* batches stays: the limit
       applies after compression.
    2. A refusal (``settle``) halves the size for later batches, never below half of the
       topic's limit.
    3. A new limit undoes these halvings.

    Attributes:
        limit: The topic's limit in bytes; None: unknown.
    """

    def __init__(
        self, given: int | None = None, *, is_compressed: bool = False
    ) -> None:
        self._start = DEFAULT if given is None else given
        self._follows = given is None or not is_compressed
        self.limit: int | None = None
        self._learned: int | None = None

    @property
    def size(self) -> int:
        """Batch size in bytes, at least 1."""
        sizes = [self._start]
        if self.limit is not None and self._follows:
            sizes.append(self.limit)
        if self._learned is not None:
            sizes.append(self._learned)
        return max(1, min(sizes))

    def set_limit(self, limit: int | None) -> None:
        """Set the topic's limit; None where brokers do not report it."""
        if limit is not None and limit != self.limit:
            self.limit, self._learned = limit, None

    def settle(
        self, records: Sequence[SentRecord], at: int, *, remembers: bool = True
    ) -> Verdict:
        """Decide on refused records; later ones of their partition are sent again, too.

        Args:
            records: All answered records since the first refusal; those of one
                partition in the order of sending. No record of a refused batch is
                missing.
            at: The batch size that these records were sent with.
            remembers: Whether the size of the batch was refused, not a record's fault.
        """
        partitions: defaultdict[int, list[int]] = defaultdict(list)
        for place, one in enumerate(records):
            partitions[one.partition].append(place)
        alone: list[int] = []
        again: list[int] = []
        largest = 0
        for places in partitions.values():
            refused = [place for place in places if records[place].is_refused]
            apart = _apart(records, refused, at)
            together = [place for place in refused if place not in apart]
            alone += sorted(apart)
            if together:
                again += [p for p in places if p >= together[0] and p not in apart]
                whole = _BATCH + sum(records[place].at_most for place in together)
                largest = max(largest, whole)
        size = max(1, min(self.size, min(at, largest) // 2)) if largest else self.size
        if remembers and largest:
            self._learned = size
        return Verdict(tuple(alone), tuple(again), size)


def _apart(records: Sequence[SentRecord], refused: Sequence[int], at: int) -> set[int]:
    """Refused records of one partition that were alone in their batch."""
    sizes = sorted(records[place].at_least for place in refused)
    apart = set()
    for place in refused:
        own = records[place].at_least
        others = sizes[1:] if own == sizes[0] else sizes
        if not others or _BATCH + own + others[0] > at:
            apart.add(place)
    return apart
