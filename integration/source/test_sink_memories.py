"""Sinks that remember Spark's batch ids, which start again with a new checkpoint."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import kafka_tx
from integration.bounded import read_out
from integration.reading import reader
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger.ledger import Ledger

AGAIN = "KAFKA_TX_BATCH_IDS_AGAIN"


class Job:
    """A query with an id: its topic, its store, its checkpoint and its folder."""

    def __init__(self, spark: Any, servers: str, topic: str, work: Path) -> None:
        self._spark, self._servers, self.topic = spark, servers, topic
        self.store = f"sqlite:///{work}/store.db"
        self.id = topic
        self.checkpoint, self.folder = work / "checkpoint", work / "folder"
        self.held: dict[int, list[str]] = {}
        """What code has written that stores Spark's batch ids."""

    def writer(self, **options: Any) -> Any:
        given: dict[str, Any] = {"maxOffsetsPerTrigger": 10, "tx__id": self.id}
        given |= {"tx__store": self.store, "subscribe": self.topic, **options}
        df = reader(self._spark, self._servers, **given).load()
        writer = df.selectExpr("string(value) AS value").writeStream
        return writer.option("checkpointLocation", str(self.checkpoint))

    def files(self, **options: Any) -> None:
        read_out(self.writer(**options).format("parquet").option("path", self.folder))

    def by_batch_id(self, **options: Any) -> None:
        """Spark's documented pattern: a batch id that is stored is skipped."""
        read_out(self.writer(**options).foreachBatch(self.write_once))

    def write_once(self, df: DataFrame, batch_id: int) -> None:
        if batch_id not in self.held:
            self.held[batch_id] = [row.value for row in df.collect()]

    def by_txid(self, **options: Any) -> None:
        def write(df: DataFrame, attempt: kafka_tx.TransactionAttempt) -> None:
            self.held.setdefault(-attempt.txid, [row.value for row in df.collect()])

        read_out(
            self.writer(**options).foreachBatch(kafka_tx.for_each_transaction(write))
        )

    def console(self, **options: Any) -> None:
        read_out(self.writer(**options).format("noop"))

    def in_files(self, *folders: Path) -> list[str]:
        rows = [
            row.value
            for folder in (folders or (self.folder,))
            for row in self._spark.read.parquet(str(folder)).collect()
        ]
        return sorted(rows)

    def in_code(self) -> list[str]:
        return sorted(value for batch in self.held.values() for value in batch)

    def txid(self) -> int:
        ledger = Ledger(SqlStore(self.store, self.id))
        try:
            return ledger.load().txid
        finally:
            ledger.close()

    def forget_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)


@pytest.fixture
def job(spark, kafka, topic, tmp_path):
    return Job(spark, kafka.bootstrap_servers, topic(1), tmp_path)


@pytest.fixture
def attached(spark):
    attached = kafka_tx.attach(spark, metrics_port=0)
    yield attached
    attached.close()


def values(first: int, end: int) -> list[str]:
    return sorted(f"{n:03}" for n in range(first, end))


def stopped(run: Callable[..., None], **options: Any) -> str:
    """The text of the error with which the run ends."""
    with pytest.raises(StreamingQueryException) as error:
        run(**options)
    assert AGAIN in str(error.value), error.value
    return str(error.value)


def word_of(text: str) -> str:
    """What the text says to set for a sink that was emptied."""
    found = re.search(r"tx\.sinkBatchIds=(forgotten@\d+)", text)
    assert found is not None, text
    return found[1]


def test_files_get_every_record_after_the_checkpoint_was_deleted(
    job, produce, tmp_path
):
    """And after an older copy of it was put back, where the store decides."""
    produce(job.topic, values(0, 25))
    job.files()
    shutil.copytree(job.checkpoint, tmp_path / "copy")
    produce(job.topic, values(25, 35))
    job.files()
    done = job.txid()
    job.forget_checkpoint()
    produce(job.topic, values(35, 50))

    refusal = stopped(job.files)

    assert job.txid() == done
    shutil.rmtree(job.checkpoint, ignore_errors=True)
    shutil.copytree(tmp_path / "copy", job.checkpoint)
    refusal = stopped(job.files, tx__onDisagreement="store")
    former, job.folder = job.folder, tmp_path / "new-folder"
    job.checkpoint = tmp_path / "new-checkpoint"
    job.files(tx__sinkBatchIds=word_of(refusal))

    assert job.in_files(former, job.folder) == values(0, 50)
    job.forget_checkpoint()  # left in place, the word vouches for nothing
    produce(job.topic, values(50, 55))
    stopped(job.files, tx__sinkBatchIds=word_of(refusal))


@pytest.mark.all
def test_code_that_stores_batch_ids_is_not_committed_after_code_that_asks_for_txids(
    job, produce, tmp_path
):
    """Somebody has asked for txids once, so that the start is not refused."""
    produce(job.topic, values(0, 5))
    job.by_txid()
    job.held[0] = []  # of another time
    job.checkpoint = tmp_path / "second"
    produce(job.topic, values(5, 15))

    refusal = stopped(job.by_batch_id)

    assert job.txid() == 1
    assert "The batch stays planned" in refusal
    del job.held[0]
    job.checkpoint = tmp_path / "third"
    job.by_batch_id(tx__sinkBatchIds=word_of(refusal))
    produce(job.topic, values(15, 20))
    job.by_batch_id()
    assert job.in_code() == values(0, 20)


@pytest.mark.all
def test_sinks_that_ask_for_txids_and_sinks_without_ids_go_on(job, produce, tmp_path):
    """The latter stop once, without a repeated record."""
    produce(job.topic, values(0, 5))
    job.by_txid()
    job.forget_checkpoint()
    produce(job.topic, values(5, 10))
    job.by_txid()
    assert job.in_code() == values(0, 10)

    job.id, job.checkpoint = f"{job.id}-console", tmp_path / "console"
    job.console()
    job.forget_checkpoint()
    produce(job.topic, values(10, 15))
    assert "tx.sinkBatchIds=ignored" in stopped(job.console)
    job.console(tx__sinkBatchIds="ignored")
    done = job.txid()
    produce(job.topic, values(15, 20))
    job.console()
    assert job.txid() == done + 1


@pytest.mark.all
def test_attach_knows_console_and_file_sinks(job, produce, attached, tmp_path, caplog):
    """Also a folder of another time, under an id without a history."""
    produce(job.topic, values(0, 5))
    job.files()
    job.forget_checkpoint()
    produce(job.topic, values(5, 10))
    used = stopped(job.files)
    assert "already holds batches up to Spark's batch id 0" in used
    assert "drops each batch whose Spark batch id it holds" in caplog.text

    former, job.folder = job.folder, tmp_path / "new-folder"
    job.checkpoint = tmp_path / "new-checkpoint"
    job.files()
    assert job.in_files(former, job.folder) == values(0, 10)

    job.checkpoint, job.id = tmp_path / "console", f"{job.id}-console"
    job.console()
    job.forget_checkpoint()
    produce(job.topic, values(10, 15))
    job.console()
    assert job.txid() == 2

    job.checkpoint, job.id = tmp_path / "renamed", f"{job.id}-renamed"
    assert "Nothing was read or written" in stopped(job.files)
    assert attached.port
