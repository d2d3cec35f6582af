"""Limits the bytes of a batch by samples of the records that it would read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TypeAlias

import pyarrow as pa

from kafka_tx.errors import KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.planning.split import ASSUMED_RECORD_BYTES, rate_limit
from kafka_tx.protocols import Clock, RangeReader

_log = event_log(__name__)

_SAMPLE_OFFSETS = 100
_SAMPLED_PARTITIONS = 4
"""Of each topic, those with the most unread offsets."""
_FAR_BELOW = 4
"""So many times smaller than its limit, a batch is not worth a new sample …"""
_MOST_AGE_MS = 10_000
"""… if the last one is not older."""

Offsets: TypeAlias = Mapping[TopicPartition, int]


class ByteLimit:
    """Ends of batches of about so many bytes of keys and values (driver).

    Before a batch, the first records of a few partitions are read, and then those in
    the middle of what the batch would take. Their bytes for each offset, by topic,
    decide how many offsets fit; partitions share them in proportion, as with
    ``rate_limit``: each that has unread offsets gets at least one. Where a sample
    cannot be read, the topic's last one counts, or else 1 KiB an offset.

    How exact: as exact as these samples. Where records are alike, within a few per
    cent; a batch may be larger where large records lie between the samples.

    Args:
        max_bytes: From 1.
        read: Makes a reader; not before the first sample.
    """

    def __init__(
        self, max_bytes: int, read: Callable[[], RangeReader], clock: Clock
    ) -> None:
        self._max_bytes = max_bytes
        self._read = read
        self._clock = clock
        self._reader: RangeReader | None = None
        self._rates: dict[str, float] = {}
        self._sampled_ms: dict[str, int] = {}

    def ends(self, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
        """The end of each partition; none is below its start."""
        if self._is_far_below(_unread(starts, ends)):
            return dict(ends)
        self._sample(starts, ends, again=False)
        fitting = self._fitting(starts, ends)
        self._sample(_middles(starts, fitting), fitting, again=True)
        return self._fitting(starts, ends)

    def _is_far_below(self, unread: Offsets) -> bool:
        topics = {partition.topic for partition in unread}
        oldest_ms = self._clock.monotonic_ms() - _MOST_AGE_MS
        is_known = all(self._sampled_ms.get(t, oldest_ms) > oldest_ms for t in topics)
        return is_known and self._bytes_of(unread) * _FAR_BELOW <= self._max_bytes

    def _bytes_of(self, unread: Offsets) -> float:
        return sum(
            count * self._rates.get(partition.topic, ASSUMED_RECORD_BYTES)
            for partition, count in unread.items()
        )

    def _fitting(self, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
        unread = _unread(starts, ends)
        size = self._bytes_of(unread)
        if size <= self._max_bytes:
            return dict(ends)
        offsets = int(sum(unread.values()) * self._max_bytes / size)
        return rate_limit(max(offsets, 1), starts, ends)

    def _sample(self, starts: Offsets, ends: Offsets, *, again: bool) -> None:
        """Learn each topic's bytes for an offset; ``again``: half as before."""
        by_topic: defaultdict[str, list[OffsetRange]] = defaultdict(list)
        unread = _unread(starts, ends)
        for p, count in sorted(unread.items(), key=lambda each: -each[1]):
            last = starts[p] + min(count, _SAMPLE_OFFSETS)
            by_topic[p.topic].append(OffsetRange(p, starts[p], last))
        for topic, wanted in by_topic.items():
            found = [self._sizes(each) for each in wanted[:_SAMPLED_PARTITIONS]]
            offsets = sum(count for count, _ in found)
            if not offsets:
                continue
            rate = max(sum(size for _, size in found) / offsets, 1.0)
            former = self._rates.get(topic, rate)
            self._rates[topic] = (former + rate) / 2 if again else rate
            self._sampled_ms[topic] = self._clock.monotonic_ms()

    def _sizes(self, wanted: OffsetRange) -> tuple[int, int]:
        """Offsets and bytes of the beginning of a range; zeros: it cannot be read."""
        try:
            self._reader = self._reader or self._read()
            first = next(self._reader.read(wanted), None)
        except KafkaTxError as error:
            _log.info("no sample of %s: %s", wanted.topic_partition, error)
            return 0, 0
        if first is None or not first.num_rows:
            return len(wanted), 0  # nothing to read in it
        is_whole = first.num_rows == len(wanted)
        last: int = wanted.end - 1 if is_whole else first["offset"][-1].as_py()
        return last + 1 - wanted.start, _bytes_of_rows(first)


def _unread(starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    return {p: ends[p] - at for p, at in starts.items() if ends.get(p, at) > at}


def _middles(starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    return {p: at + (ends.get(p, at) - at) // 2 for p, at in starts.items()}


def _bytes_of_rows(batch: pa.RecordBatch) -> int:
    from pyarrow import compute as pc  # 1.5 MB that most planners never need

    sizes = (pc.sum(pc.binary_length(batch[name])).as_py() for name in ("key", "value"))
    return sum(size or 0 for size in sizes)
