"""``foreachBatch`` that knows which transaction it processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.queries import jvm
from kafka_tx.spark.source.offset_json import MARK

QUERY_ID = "sql.streaming.queryId"


def for_each_transaction(
    function: Callable[[DataFrame, TransactionAttempt], None],
    tx_id: str | None = None,
) -> Callable[[DataFrame, int], None]:
    """Wrap ``function(df, attempt)`` for ``writeStream.foreachBatch``.

    ``attempt.txid`` is the same on every replay of the batch, also from a new
    checkpoint (Spark's batch id starts again there): store it with the result and skip
    what is stored. ``attempt.attempt_id`` is greater for a later run of the query, as
    far as the clocks of its machines agree: opaque state refuses what an overtaken run
    still writes.

    Runs in the user's process. Spark also runs batches without new records, to emit
    late state. They have no txid to be counted by: an empty one is passed over, one
    that holds rows stops the query with an error that says what to set.

    Args:
        function: Handles one batch; may be called again with the same txid.
        tx_id: Which source's transaction, where the query reads several.

    Raises:
        ConfigError: From the query: no source of it has ``tx.id``, or several and
            ``tx_id`` was not given, or rows came without a transaction.
    """
    attempt_ids: dict[str, int] = {}

    def handle(df: DataFrame, batch_id: int) -> None:
        spark = df.sparkSession
        query_id = spark.sparkContext.getLocalProperty(QUERY_ID)
        txid = _txid(jvm.logged_offsets(spark, query_id, batch_id), tx_id)
        if batch_id:
            before = _txid(jvm.logged_offsets(spark, query_id, batch_id - 1), tx_id)
        else:
            before = 0  # the log does not say; an empty first batch is harmless
        if txid == before:
            _refuse_rows(df, batch_id)
            return
        run = jvm.run_id(spark, query_id)
        attempt_id = attempt_ids.setdefault(run, time.time_ns() // 1_000)
        function(df, TransactionAttempt(txid, attempt_id))

    return handle


def _txid(offsets: list[dict[str, Any] | None], tx_id: str | None) -> int:
    marks = {
        offset[MARK]["id"]: int(offset[MARK]["txid"])
        for offset in offsets
        if offset is not None and MARK in offset
    }
    if tx_id is None and len(marks) == 1:
        return next(iter(marks.values()))
    if tx_id is None or tx_id not in marks:
        raise ConfigError(
            f"which transaction? tx_id is {tx_id!r} and the sources of this query have"
            f" {sorted(marks) or 'no tx.id'}. Set the option tx.id on the source and,"
            " where there are several, give its value to for_each_transaction.",
            option="tx_id",
            value=tx_id,
        )
    return marks[tx_id]


def _refuse_rows(df: DataFrame, batch_id: int) -> None:
    if not df.isEmpty():
        raise ConfigError(
            f"Spark's batch {batch_id} holds rows without new records: late results of"
            " a stateful operator. They have no txid to be counted by. Set"
            " spark.sql.streaming.noDataMicroBatches.enabled=false: they come with the"
            " next transaction then.",
            option="spark.sql.streaming.noDataMicroBatches.enabled",
        )
