"""Settings of Spark that change what a batch is, or when a checkpoint is written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.bounded import read_out
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.reading import reader

SETTINGS = {
    "spark.sql.streaming.minBatchesToRetain": "1",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.maxBatchesToRetainInMemory": "0",
    "spark.sql.streaming.checkpoint.renamedFileCheck.enabled": "true",
    "spark.sql.streaming.multipleWatermarkPolicy": "max",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.adaptive.enabled": "false",
}
RECORDS = 30


@contextmanager
def set_to(spark: Any, settings: dict[str, str]) -> Iterator[None]:
    former = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in former.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


@pytest.mark.all
@pytest.mark.parametrize(
    "names",
    [
        pytest.param([*SETTINGS], id="together"),
        *(pytest.param([name], id=name) for name in SETTINGS),
    ],
)
def test_crashes_and_a_deleted_checkpoint_lose_nothing(
    spark, kafka, topic, produce, tmp_path, names
):
    name = topic(1)
    produce(name, ["v"] * RECORDS)
    counts = kafka_tx.TransactionalMap(f"sqlite:///{tmp_path}/counts.db", "counts")
    calls = []

    def count(df: Any, attempt: kafka_tx.TransactionAttempt) -> None:
        calls.append(attempt.txid)
        kafka_tx.update_map(df, attempt, counts, key="topic", reducer="count")
        if len(calls) in (2, 4):
            raise RuntimeError("killed after the sink's commit")

    options = {"subscribe": name, "maxOffsetsPerTrigger": 10, "tx__id": name}
    options["tx__store"] = f"sqlite:///{tmp_path}/store.db"
    writer = (
        reader(spark, kafka.bootstrap_servers, **options)
        .load()
        .writeStream.foreachBatch(kafka_tx.for_each_transaction(count))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )

    with set_to(spark, {each: SETTINGS[each] for each in names}):
        for _ in range(2):
            with pytest.raises(StreamingQueryException, match="killed"):
                read_out(writer)
        read_out(writer)
        shutil.rmtree(tmp_path / "checkpoint")
        produce(name, ["v"] * 5)
        read_out(writer)

    assert sum(counts.to_arrow()["value"].to_pylist()) == RECORDS + 5


@pytest.mark.all
def test_asynchronous_progress_tracking_is_named_by_attach_and_by_the_next_start(
    spark, kafka, topic, produce, tmp_path, sparks_own, caplog
):
    name, out = topic(1), topic(1)
    produce(name, ["v"] * RECORDS)
    options = {"subscribe": name, "maxOffsetsPerTrigger": 10, "tx__id": name}
    options["tx__store"] = f"sqlite:///{tmp_path}/store.db"
    writer = (
        reader(spark, kafka.bootstrap_servers, **options)
        .load()
        .select("key", "value")
        .writeStream.format(sparks_own)
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("topic", out)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("asyncProgressTrackingEnabled", "true")
        .option("asyncProgressTrackingCheckpointIntervalMs", "600000")
    )
    attached = kafka_tx.attach(spark, metrics_port=None)
    try:
        query = writer.start()
        try:
            wait_until("all is read", lambda: _read(query) >= RECORDS)
        finally:
            query.stop()
    finally:
        attached.close()
    assert "asyncProgressTrackingEnabled=true does not work with tx.id" in caplog.text

    query = writer.start()
    try:
        with pytest.raises(StreamingQueryException) as error:
            query.awaitTermination(PATIENT_S)
    finally:
        query.stop()
    assert "with asyncProgressTrackingEnabled=true, which" in str(error.value)


def _read(query: Any) -> int:
    return sum(progress.numInputRows for progress in query.recentProgress)
