"""What tasks report to the user's process: bytes read, offsets they had to skip.

Spark's progress tells rows and no bytes, and nothing from inside a task. So ``attach``
opens a socket and puts its address into a local property, which Spark hands to the
tasks of every query started after it. Reports are measurements: one that is lost is
missing in the metrics, and nothing else depends on it.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from pyspark import SparkContext, TaskContext

from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.spark.word_desk import WordDesk, send_word

logger = logging.getLogger(__name__)

PROPERTY = "kafka_tx.receipts"
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"

_KEPT_BATCHES = 64
_unreachable: set[str] = set()


@dataclass(slots=True)
class Receipts:
    """The reports of one batch, by range: a task that ran twice counts once."""

    bytes: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, tuple[TopicPartition, int]] = field(default_factory=dict)

    def total_bytes(self) -> int:
        """Key and value bytes of the batch."""
        return sum(self.bytes.values())

    def skipped_offsets(self) -> dict[tuple[TopicPartition, str], int]:
        """Offsets that were gone when a task came to read them."""
        found: dict[tuple[TopicPartition, str], int] = {}
        for partition, count in self.skipped.values():
            key = (partition, "retention")
            found[key] = found.get(key, 0) + count
        return found


class ReceiptDesk:
    """Takes reports in the user's process, one thread, no reply."""

    def __init__(self, host: str) -> None:
        self._batches: OrderedDict[tuple[str, int], Receipts] = OrderedDict()
        self._lock = threading.Lock()
        self._words = WordDesk(host, self._take, "kafka_tx-receipts")
        self.address = self._words.address

    def announce(self, context: SparkContext) -> None:
        """Let queries that this thread starts from now on know the address."""
        context.setLocalProperty(PROPERTY, self.address)

    def collect(self, query_id: str, batch_id: int) -> Receipts | None:
        """Take out the reports of a finished batch; None when there were none."""
        with self._lock:
            return self._batches.pop((query_id, batch_id), None)

    def close(self) -> None:
        """Stop listening."""
        self._words.close()

    def _take(self, report: dict[str, Any]) -> None:
        key = (str(report["query"]), int(report["batch"]))
        partition = TopicPartition(str(report["topic"]), int(report["partition"]))
        span = f"{partition} {int(report['start'])}"
        size, skipped = int(report["bytes"]), int(report["skipped"])
        with self._lock:
            receipts = self._batches.setdefault(key, Receipts())
            receipts.bytes[span] = size
            if skipped:
                receipts.skipped[span] = (partition, skipped)
            while len(self._batches) > _KEPT_BATCHES:
                self._batches.popitem(last=False)


def send_receipt(wanted: OffsetRange, read_bytes: int, skipped: int) -> None:
    """Report a range that was read to its end (executor). Never raises."""
    context = TaskContext.get()
    address = context.getLocalProperty(PROPERTY) if context else None
    if context is None or address is None or address in _unreachable:
        return
    report = {
        "query": context.getLocalProperty(QUERY_ID),
        "batch": context.getLocalProperty(BATCH_ID),
        "topic": wanted.topic_partition.topic,
        "partition": wanted.topic_partition.partition,
        "start": wanted.start,
        "bytes": read_bytes,
        "skipped": skipped,
    }
    try:
        send_word(address, report)
    except OSError as error:
        _unreachable.add(address)
        logger.info("bytes read are not reported from here: %s", error)
