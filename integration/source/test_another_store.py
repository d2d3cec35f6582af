"""A query over a store that begins anew, and under another ``tx.id``: real sinks."""

from __future__ import annotations

import shutil

import pytest
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.bounded import read_out
from integration.cluster.records import Record
from integration.consuming import committed_records
from integration.stored import sets
from kafka_tx.sql.maps import TransactionalMap


class Job:
    """Counts a topic into a map and copies it, with the options of each run."""

    def __init__(self, spark, servers, topics, work):
        self.spark, self.servers, self.work = spark, servers, work
        self.topic, self.out = topics
        self.counts = TransactionalMap(f"sqlite:///{work}/sink.db", "counts")

    def run(self, store="right", **options):
        named = {key.replace("__", "."): value for key, value in options.items()}
        given = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "tx.id": "numbered",
            "tx.store": f"sqlite:///{self.work}/{store}.db",
        }
        read_out(
            self.spark.readStream.format("kafka_tx")
            .options(**given | named)
            .load()
            .writeStream.foreachBatch(kafka_tx.for_each_transaction(self._save))
            .option("checkpointLocation", f"{self.work}/checkpoint")
        )

    def refused(self, **options):
        with pytest.raises(StreamingQueryException) as error:
            self.run(**options)
        return str(error.value)

    def forget_checkpoint(self):
        shutil.rmtree(self.work / "checkpoint")

    def seen(self):
        """What is in the topic; in the map; and whether each is there once."""
        written = committed_records(self.servers, self.out)
        table = self.counts.to_arrow()
        once = set(table["value"].to_pylist()) <= {1}
        return sorted(r.text for r in written), table["key"].to_pylist(), once

    def _save(self, df, attempt):
        keys = df.selectExpr("string(value) AS key")
        kafka_tx.update_map(keys, attempt, self.counts, reducer="count")
        sink = {
            "kafka.bootstrap.servers": self.servers,
            "topic": self.out,
            "tx.id": f"{self.out}-sink",
            "tx.markerTopic": f"{self.out}-markers",
        }
        kafka_tx.write_transaction(df.select("key", "value"), attempt, sink)


@pytest.fixture
def job(spark, kafka, topic, tmp_path):
    topics = topic(name="numbered"), topic(1)
    job = Job(spark, kafka.bootstrap_servers, topics, tmp_path)
    yield job
    job.counts.close()


@pytest.mark.all
def test_nothing_is_skipped_or_doubled_under_another_store_or_id(job, produce):
    """As from another folder, where the store was a file of the current one."""
    produce(job.topic, [Record("a"), Record("b")])
    job.run()
    produce(job.topic, [Record("c")])

    refusal = job.refused(store="another")
    assert "KAFKA_TX_CHECKPOINT_DISAGREES" in refusal  # its checkpoint knows better
    job.forget_checkpoint()
    refusal = job.refused(store="another")
    assert "KAFKA_TX_ANOTHER_NUMBERING" in refusal
    assert job.seen() == (["a", "b"], ["a", "b"], True)
    job.forget_checkpoint()
    job.run()
    assert job.seen() == (["a", "b", "c"], ["a", "b", "c"], True)

    produce(job.topic, [Record("d")])
    refusal = job.refused(tx__id="renamed", startingOffsets="latest")
    assert "Set tx.id back" in refusal
    job.run(tx__id="renamed", tx__onDisagreement="checkpoint")
    produce(job.topic, [Record("e")])
    job.run(tx__id="renamed")
    assert job.seen() == (list("abcde"), list("abcde"), True)


def test_store_map_and_checkpoint_of_another_version_are_named_and_left(job, produce):
    produce(job.topic, [Record("a")])
    before = sets.opened(sets.BEFORE, job.work)
    reported = job.refused(store="store", tx__id="source")
    assert "KAFKA_TX_FORMAT" in reported
    assert "no release reads it" in reported
    assert "no such column" not in reported
    job.forget_checkpoint()

    counts, job.counts = job.counts, TransactionalMap(before, "counts")
    reported = job.refused()
    assert "KAFKA_TX_FORMAT" in reported
    assert "the table 'kafka_tx_progress'" in reported
    assert job.counts.address
    job.counts.close()
    job.counts = counts
    job.run()
    assert job.seen() == (["a"], ["a"], True)

    produce(job.topic, [Record("b")])
    for entry in (job.work / "checkpoint" / "offsets").iterdir():
        if entry.name.isdecimal():
            entry.write_text(entry.read_text().replace('"v": 3', '"v": 4'))
    for check_sum in job.work.glob("checkpoint/offsets/.*.crc"):
        check_sum.unlink()
    reported = job.refused()
    assert "KAFKA_TX_FORMAT" in reported
    assert "an offset in the checkpoint of this query has format 4" in reported
    assert job.seen() == (["a"], ["a"], True)
