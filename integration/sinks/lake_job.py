"""A job that appends a topic to a Delta table, and counts its keys in another by MERGE.

Run in a driver by ``test_crashes``: it stops dead at a named point of a batch's life,
to be killed there.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaMember
from pyspark.sql import DataFrame, SparkSession

import kafka_tx
from integration.bounded import read_out
from integration.cluster.spark_local import delta_session
from integration.pausing import LASTS_S
from integration.source.pausing_job import Pause
from kafka_tx.model import TransactionAttempt

POINTS = ("before-write", "after-files", "after-commit", "between-tables", "after-both")
COMMIT = "commitIfNeeded"
"""What an append calls once its files are there."""


def merge(df: DataFrame, target: str) -> None:
    counted = df.groupBy("key").count()
    counted.createOrReplaceTempView("batch")
    counted.sparkSession.sql(
        f"MERGE INTO {target} t USING batch b ON t.key = b.key"
        " WHEN MATCHED THEN UPDATE SET t.count = t.count + b.count"
        " WHEN NOT MATCHED THEN INSERT *"
    )


def tables(work: Path) -> tuple[str, str]:
    return f"{work}/kept", f"{work}/counts"


def saving(
    work: Path, reach: Callable[[str, int], None]
) -> Callable[[DataFrame, TransactionAttempt], None]:
    kept, counts = tables(work)

    def save(df: DataFrame, attempt: TransactionAttempt) -> None:
        rows = df.selectExpr("string(key) AS key", "partition", "offset").persist()
        reach("before-write", attempt.txid)
        with around_commits(lambda point: reach(point, attempt.txid)):
            kafka_tx.append_to_table(rows, attempt, kept)
        reach("between-tables", attempt.txid)
        kafka_tx.write_to_table(rows, attempt, counts, merge)
        rows.unpersist()
        reach("after-both", attempt.txid)

    return save


@contextmanager
def around_commits(reach: Callable[[str], None]) -> Iterator[None]:
    _thread.reach = reach
    try:
        yield
    finally:
        del _thread.reach


_thread = threading.local()
_call = JavaMember.__call__


def _reported(member: Any, *given: Any) -> Any:
    """A call of the JVM; jobs beside this one have threads of their own."""
    reach = getattr(_thread, "reach", None)
    if reach is None or member.name != COMMIT:
        return _call(member, *given)
    reach("after-files")
    found = _call(member, *given)
    reach("after-commit")
    return found


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("work", "servers", "topic", "checkpoint", "point"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--txid", type=int, default=2)
    return parser.parse_args(words)


def run(spark: SparkSession, given: argparse.Namespace) -> None:
    """Write what is there, or up to the pause, in a driver that is killed."""
    if given.point != "none":
        JavaMember.__call__ = _reported
    lake = delta_session(spark)
    pause = Pause(given.point, given.txid, f"{given.work}/reached")
    _, counts = tables(Path(given.work))
    lake.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{counts}` (key STRING, count BIGINT)"
        " USING delta"
    )
    writer = (
        lake.readStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", given.servers)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "60")
        .option("tx.id", f"lake-{given.topic}")
        .option("tx.ifOwned", "fence")  # what was killed owns it for ten seconds
        .option("tx.store", f"sqlite:///{given.work}/store.db")
        .load()
        .writeStream.foreachBatch(
            kafka_tx.for_each_transaction(saving(Path(given.work), pause.reach))
        )
    )
    read_out(writer.option("checkpointLocation", given.checkpoint), LASTS_S)
