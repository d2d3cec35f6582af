"""A job that appends a topic to files, and stops dead at a named point of a batch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

import kafka_tx
from integration.bounded import read_out
from integration.pausing import LASTS_S
from integration.source.pausing_job import Pause
from kafka_tx.model import TransactionAttempt
from kafka_tx.running.file_sink import FileSink, OpaqueFileSink
from kafka_tx.sinks.publications import Form
from kafka_tx.spark.sinks.files import _HadoopFolder

POINTS = ("before-write", "after-files", "after-publishing")


class PausingFolder(_HadoopFolder):
    """The real folder, with pauses."""

    pause: Pause

    def write(self, rows, name, form, options):
        self.pause.reach("before-write", name.txid)
        found = super().write(rows, name, form, options)
        self.pause.reach("after-files", name.txid)
        return found

    def put(self, name, text):
        super().put(name, text)
        self.pause.reach("after-publishing", name.txid)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("work", "servers", "topic", "checkpoint", "point", "mode"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--txid", type=int, default=2)
    return parser.parse_args(words)


def run(spark: SparkSession, given: argparse.Namespace) -> None:
    """Write what is there, or up to the pause, in a driver that is killed."""
    pause = Pause(given.point, given.txid, f"{given.work}/reached")

    class Folder(PausingFolder):
        pass

    Folder.pause = pause

    def save(df: DataFrame, attempt: TransactionAttempt) -> None:
        rows = df.selectExpr("string(key) AS key", "partition", "offset")
        opaque = given.mode == "opaque"
        sink = OpaqueFileSink if opaque else FileSink
        folder = Folder(df.sparkSession, f"{given.work}/kept")
        sink(folder, Form(format="parquet"), {})(rows, attempt)

    writer = (
        spark.readStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", given.servers)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "30")
        .option("tx.id", f"files-{given.topic}")
        .option("tx.mode", given.mode)
        .option("tx.ifOwned", "fence")  # what was killed owns it for ten seconds
        .option("tx.store", f"sqlite:///{given.work}/store.db")
        .load()
        .writeStream.foreachBatch(kafka_tx.for_each_transaction(save))
    )
    read_out(writer.option("checkpointLocation", given.checkpoint), LASTS_S)
