"""Topologies whose bolts and committers run in different ways, over the same tally.

Also a program: a session that schedules fairly must be a process of its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import kafka_tx
from integration.topologies.topology_job import Keep, Opaque, Transactional, Trouble


class ByRow(kafka_tx.BasicBolt):
    """Row by row."""

    fields = "partition int, offset bigint"

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble

    def prepare(self, context: kafka_tx.TaskContext) -> None:
        self.trouble.visit("by-row", context.attempt)

    def execute(self, row: Any, collector: Any) -> None:
        assert row.tx.txid >= 1
        collector.emit((row.partition, row.offset))


class ByArrow(kafka_tx.BasicBolt):
    """One Arrow batch after the other."""

    fields = "partition int, offset bigint, square bigint"

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble

    def prepare(self, context: kafka_tx.TaskContext) -> None:
        self.attempt = context.attempt

    def execute_arrow(self, batch: Any, collector: Any) -> None:
        self.trouble.visit("by-arrow", self.attempt)
        offset = batch.column("offset")
        columns = [batch.column("partition"), offset, pc.multiply(offset, offset)]
        collector.emit_arrow(
            pa.RecordBatch.from_arrays(columns, ["partition", "offset", "square"])
        )


def add_up(frame: Any) -> Any:
    """As a DataFrame, with an exchange of Spark's own."""
    from pyspark.sql import functions as f

    assert frame.columns[0] == "tx"
    return frame.groupBy("partition").agg(
        f.count("offset").alias("records"),
        f.sum("offset").alias("offsets"),
        f.sum("square").alias("squares"),
    )


SUMS = "partition int, records bigint, offsets bigint, squares bigint"


def mixed(
    servers: str, topic: str, mode: str, sink: Path, trouble: Trouble, batch: int
) -> Any:
    """Row by row, then Arrow, then a DataFrame, then a committer."""
    builder = _over_kafka(servers, topic, mode, batch, trouble)
    builder.set_bolt("by-row", ByRow(trouble), 2).shuffle_grouping("spout")
    builder.set_bolt("by-arrow", ByArrow(trouble), 2).shuffle_grouping("by-row")
    frame = builder.set_bolt("by-frame", kafka_tx.DataFrameBolt(add_up, SUMS))
    frame.shuffle_grouping("by-arrow")
    keep = Keep(trouble, str(sink / "sink.db"), mode)
    builder.set_bolt("keep", keep).global_grouping("by-frame")
    return builder.build()


class SumAndKeep(Keep):
    """A committer of many tasks, each with a table of its own."""

    fields = "pool string"

    def prepare(self, context: kafka_tx.TaskContext, collector: Any) -> None:
        super().prepare(context, collector)
        self.path = f"{self.path}/sink{context.task}.db"
        self.collector = collector

    def execute(self, row: Any) -> None:
        sums = self.sums.setdefault(row.partition, [0, 0, 0])
        for n, value in enumerate((1, row.offset, row.offset * row.offset)):
            sums[n] += value

    def finish_batch(self) -> None:
        super().finish_batch()
        from pyspark import TaskContext

        task = TaskContext.get()
        pool = None if task is None else task.getLocalProperty("spark.scheduler.pool")
        self.collector.emit((pool,))


class NotePool(kafka_tx.BatchBolt):
    """Below the committer: notes in which pool its tasks ran."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def prepare(self, context: kafka_tx.TaskContext, collector: Any) -> None:
        pass

    def execute(self, row: Any) -> None:
        (self.place / f"pool-{row.pool}").touch()

    def finish_batch(self) -> None:
        pass


def distributed(
    servers: str, topic: str, mode: str, sink: Path, trouble: Trouble, batch: int
) -> Any:
    """A committer of two tasks on executors, and a bolt below it."""
    builder = _over_kafka(servers, topic, mode, batch, trouble)
    keep = builder.set_bolt("keep", SumAndKeep(trouble, str(sink), mode), 2)
    keep.fields_grouping("spout", ["partition"]).on_executors()
    builder.set_bolt("note", NotePool(sink)).global_grouping("keep")
    return builder.build()


def _over_kafka(
    servers: str, topic: str, mode: str, batch: int, trouble: Trouble
) -> kafka_tx.TransactionalTopologyBuilder:
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "maxOffsetsPerTrigger": batch,
        "kafkaConsumer.pollTimeoutMs": "10000",
    }
    kind = Opaque if mode == "opaque" else Transactional
    spout = kind(options, scheme=kafka_tx.MetadataScheme())
    spout.trouble = trouble
    return kafka_tx.TransactionalTopologyBuilder("kinds", "spout", spout, 2)


def main() -> None:
    from integration.cluster.spark_local import local_session

    parser = argparse.ArgumentParser()
    for name in ("work", "servers", "topic"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    work = Path(given.work)
    spark = local_session(work, {"spark.scheduler.mode": "FAIR"})
    trouble = Trouble(given.work)
    built = distributed(
        given.servers, given.topic, "transactional", work, trouble, batch=200
    )
    store = f"sqlite:///{work}/state.db"
    handle = built.start(spark, {"tx.store": store, "tx.maxPending": 3})
    assert handle.process_all_available(100)
    handle.stop()
    spark.stop()
    (work / "finished").touch()


if __name__ == "__main__":
    main()
