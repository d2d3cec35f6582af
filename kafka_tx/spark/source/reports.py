"""Task reports of reads, from the tasks to the user's process: both ends.

Spark's progress has no bytes, nothing from inside a task, and counts a row as often as
the user's function reads it. So ``attach`` opens a socket and puts its address into a
local property, which Spark hands to the tasks of every query started after it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any

from pyspark import TaskContext

from kafka_tx.logs import event_log
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.running.task_reports import DriverAddress, ReportListener, send_report
from kafka_tx.source.read_reports import ReadReport, ReadReports
from kafka_tx.spark.versions.names import BATCH_ID, QUERY_ID

logger = event_log(__name__)

PROPERTY = "kafka_tx.reports.token"
"""Spark's event log and pages hide what has such a name."""

_GIVEN_UP_S = 100.0
"""Ten times as long as a blocked network holds up the task that tries."""
_given_up_until: dict[str, float] = {}


def send_read_report(read_report: ReadReport) -> None:
    """Report a range that was read to its end (executor). Never raises.

    After a failure this process tries again some time later: the driver may have been
    busy for a moment.
    """
    context = TaskContext.get()
    address = context.getLocalProperty(PROPERTY) if context else None
    if context is None or address is None:
        return
    query, batch = (
        context.getLocalProperty(QUERY_ID),
        context.getLocalProperty(BATCH_ID),
    )
    if query is None or batch is None:  # a read outside any stream, by the same thread
        return
    if time.monotonic() < _given_up_until.get(address, 0.0):
        return
    wanted = read_report.wanted
    report = {
        "query": query,
        "batch": batch,
        "topic": wanted.topic_partition.topic,
        "partition": wanted.topic_partition.partition,
        "start": wanted.start,
        "end": wanted.end,
        "records": read_report.records,
        "bytes": read_report.bytes,
        "skipped": read_report.skipped,
        "newest_ms": read_report.newest_ms,
    }
    try:
        send_report(address, report)
    except OSError as error:
        logger.info("what was read is not reported from here: %s", error)
        _given_up_until[address] = time.monotonic() + _GIVEN_UP_S


_KEPT_BATCHES = 64


class ReadReportListener:
    """Sorts the reports of tasks by batch.

    Raises:
        ConfigError: It cannot listen.
    """

    def __init__(self, driver: DriverAddress) -> None:
        self._batches: OrderedDict[tuple[str, int], ReadReports] = OrderedDict()
        self._lock = threading.Lock()
        self._reports = ReportListener(driver, self._take, "kafka_tx-reports")
        self.address = self._reports.address

    def collect(self, query_id: str, batch_id: int) -> ReadReports | None:
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
        read_report = ReadReport(
            OffsetRange(partition, int(report["start"]), int(report["end"])),
            int(report["records"]),
            int(report["bytes"]),
            int(report["skipped"]),
            None if newest is None else int(newest),
        )
        with self._lock:
            self._batches.setdefault(key, ReadReports()).add(read_report)
            while len(self._batches) > _KEPT_BATCHES:
                self._batches.popitem(last=False)
