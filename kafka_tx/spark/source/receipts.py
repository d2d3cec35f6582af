"""What tasks report to the user's process: bytes, newest timestamps, skipped offsets.

Spark's progress tells rows and no bytes, and nothing from inside a task. So ``attach``
opens a socket and puts its address into a local property, which Spark hands to the
tasks of every query started after it. Reports are measurements: nothing else depends
on them, and a batch of which some are missing is known as such.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark import TaskContext

from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.spark.word_desk import send_word

logger = logging.getLogger(__name__)

PROPERTY = "kafka_tx.receipts.token"
"""Spark's event log and pages hide what has such a name."""
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"

_GIVEN_UP_S = 30.0
_given_up_until: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one task read.

    Attributes:
        wanted: The range it was given, and has read to its end.
        bytes: Of keys and values.
        skipped: Offsets at its beginning that were gone.
        newest_ms: Newest record timestamp (Unix time); None where there was none.
    """

    wanted: OffsetRange
    bytes: int
    skipped: int = 0
    newest_ms: int | None = None


@dataclass(slots=True)
class Receipts:
    """The reports of one batch, by range: a task that ran twice counts once."""

    by_range: dict[tuple[TopicPartition, int], Receipt] = field(default_factory=dict)

    def add(self, receipt: Receipt) -> None:
        """Take one more."""
        where = (receipt.wanted.topic_partition, receipt.wanted.start)
        self.by_range[where] = receipt

    def cover(self, ranges: Iterable[OffsetRange]) -> bool:
        """Whether every offset of these ranges was reported."""
        return all(self._covers(wanted) for wanted in ranges)

    def total_bytes(self) -> int:
        """Key and value bytes of the batch."""
        return sum(each.bytes for each in self.by_range.values())

    def newest_ms(self) -> int | None:
        """The newest of all record timestamps."""
        found = [each.newest_ms for each in self.by_range.values()]
        return max((ms for ms in found if ms is not None), default=None)

    def skipped_offsets(self) -> dict[tuple[TopicPartition, str], int]:
        """Offsets that were gone when a task came to read them."""
        found: dict[tuple[TopicPartition, str], int] = {}
        for receipt in self.by_range.values():
            if receipt.skipped:
                key = (receipt.wanted.topic_partition, "retention")
                found[key] = found.get(key, 0) + receipt.skipped
        return found

    def _covers(self, wanted: OffsetRange) -> bool:
        position = wanted.start
        while position < wanted.end:
            found = self.by_range.get((wanted.topic_partition, position))
            if found is None or not len(found.wanted):
                return False
            position = found.wanted.end
        return True


def send_receipt(receipt: Receipt) -> None:
    """Report a range that was read to its end (executor). Never raises.

    Where nobody takes it, this process tries again some time later: a driver that was
    busy for a moment is not given up for ever.
    """
    context = TaskContext.get()
    address = context.getLocalProperty(PROPERTY) if context else None
    if context is None or address is None:
        return
    if time.monotonic() < _given_up_until.get(address, 0.0):
        return
    wanted = receipt.wanted
    report = {
        "query": context.getLocalProperty(QUERY_ID),
        "batch": context.getLocalProperty(BATCH_ID),
        "topic": wanted.topic_partition.topic,
        "partition": wanted.topic_partition.partition,
        "start": wanted.start,
        "end": wanted.end,
        "bytes": receipt.bytes,
        "skipped": receipt.skipped,
        "newest_ms": receipt.newest_ms,
    }
    try:
        send_word(address, report)
    except OSError as error:
        logger.info("what was read is not reported from here: %s", error)
        _given_up_until[address] = time.monotonic() + _GIVEN_UP_S
