"""Queries that count a topic each into an opaque map, and wait at a point each.

Run as a program by ``test_overtaken``, which freezes it when all wait, and lets it go
on when other queries have taken their places.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from threading import Thread
from typing import Any

from pyspark.sql import DataFrame

import kafka_tx
from integration.bounded import with_a_planner
from kafka_tx.model import TransactionAttempt

POINTS = ("before-first-call", "before-the-map")


class Point:
    """Makes the file ``reached`` where it is told, and waits for the file ``go``."""

    def __init__(self, work: Path, name: str) -> None:
        self._work, self._name = work, name

    def reach(self, name: str) -> None:
        if name != self._name or (self._work / "reached").exists():
            return
        (self._work / "reached").touch()
        while not (self._work / "go").exists():
            time.sleep(0.02)


def counting(
    spark: Any, work: Path, servers: str, topic: str, point: Point | None = None
) -> Any:
    """A writer of the query, to be given a checkpoint."""
    state = kafka_tx.OpaqueMap(map_in(work), "counts")

    def count(df: DataFrame, attempt: TransactionAttempt) -> None:
        if point is not None:
            point.reach("before-the-map")
        rows = df.selectExpr("cast(key AS string) AS key")
        kafka_tx.update_map(rows, attempt, state, reducer="count")

    handle = kafka_tx.for_each_transaction(count)

    def called(df: DataFrame, batch_id: int) -> None:
        if point is not None:
            point.reach("before-first-call")
        handle(df, batch_id)

    return (
        spark.readStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("tx.id", topic)
        .option("tx.mode", "opaque")
        .option("tx.store", f"sqlite:///{work}/store.db")
        .option("tx.ifOwned", "fence")
        .load()
        .writeStream.foreachBatch(called)
        .trigger(availableNow=True)
    )


def map_in(work: Path) -> str:
    """Where a query counts."""
    return f"sqlite:///{work}/map.db"


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("work", "servers"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("points", "topics"):
        parser.add_argument(f"--{name}", nargs="+")
    given = parser.parse_args()

    from integration.cluster.spark_local import local_session

    spark = local_session(Path(given.work), cores=2 + len(given.points))
    threads = []
    for point, topic in zip(given.points, given.topics, strict=True):
        work = Path(given.work, point)
        session = spark.newSession()
        writer = counting(session, work, given.servers, topic, Point(work, point))
        writer = writer.option("checkpointLocation", str(work / "checkpoint"))
        threads.append(Thread(target=run_to_its_end, args=(writer, work)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spark.stop()


def run_to_its_end(writer: Any, work: Path) -> None:
    """Leave its error in a file."""
    try:
        with_a_planner(lambda: writer.start().awaitTermination())
    except Exception as error:  # noqa: BLE001 - whatever ended it is looked at
        (work / "error").write_text(str(error))
    (work / "finished").touch()


if __name__ == "__main__":
    main()
