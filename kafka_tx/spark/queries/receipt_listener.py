"""Takes what tasks report, in the user's process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from pyspark import SparkContext

from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.running.task_reports import DriverAddress, ReportListener
from kafka_tx.source.receipts import Receipt, Receipts
from kafka_tx.spark.source.receipt_sending import PROPERTY

_KEPT_BATCHES = 64


class ReceiptListener:
    """Sorts the reports of tasks by batch.

    Args:
        driver: Where executors find this process.

    Raises:
        OSError: It cannot listen.
    """

    def __init__(self, driver: DriverAddress) -> None:
        self._batches: OrderedDict[tuple[str, int], Receipts] = OrderedDict()
        self._lock = threading.Lock()
        self._reports = ReportListener(driver, self._take, "kafka_tx-receipts")
        self.address = self._reports.address

    def announce(self, context: SparkContext) -> None:
        """Let queries that this thread starts from now on know the address."""
        context.setLocalProperty(PROPERTY, self.address)

    def collect(self, query_id: str, batch_id: int) -> Receipts | None:
        """Take out the reports of a finished batch; None when there were none."""
        with self._lock:
            return self._batches.pop((query_id, batch_id), None)

    def close(self) -> None:
        """Stop listening."""
        self._reports.close()

    def _take(self, report: dict[str, Any]) -> None:
        key = (str(report["query"]), int(report["batch"]))
        partition = TopicPartition(str(report["topic"]), int(report["partition"]))
        newest = report["newest_ms"]
        receipt = Receipt(
            OffsetRange(partition, int(report["start"]), int(report["end"])),
            int(report["records"]),
            int(report["bytes"]),
            int(report["skipped"]),
            None if newest is None else int(newest),
        )
        with self._lock:
            self._batches.setdefault(key, Receipts()).add(receipt)
            while len(self._batches) > _KEPT_BATCHES:
                self._batches.popitem(last=False)
