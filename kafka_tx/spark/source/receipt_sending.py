"""How tasks report to the user's process what they read.

Spark's progress tells no bytes, nothing from inside a task, and counts a row as often
as the user's function reads it. So ``attach`` opens a socket and puts its address into
a local property, which Spark hands to the tasks of every query started after it.
"""

from __future__ import annotations

import logging
import time

from pyspark import TaskContext

from kafka_tx.running.task_reports import send_report
from kafka_tx.source.receipts import Receipt

logger = logging.getLogger(__name__)

PROPERTY = "kafka_tx.receipts.token"
"""Spark's event log and pages hide what has such a name."""
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"

_GIVEN_UP_S = 30.0
_given_up_until: dict[str, float] = {}


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
        "records": receipt.records,
        "bytes": receipt.bytes,
        "skipped": receipt.skipped,
        "newest_ms": receipt.newest_ms,
    }
    try:
        send_report(address, report)
    except OSError as error:
        logger.info("what was read is not reported from here: %s", error)
        _given_up_until[address] = time.monotonic() + _GIVEN_UP_S
