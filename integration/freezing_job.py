"""A job that counts a topic into an opaque map, and waits where it is told.

Run as a program by ``test_overtaken``, which freezes it there, and lets it go on when
another query has taken its place.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import kafka_tx
from kafka_tx.model import TransactionAttempt

POINTS = ("before-first-call", "before-the-map")
ID = "overtaken"


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
    spark: Any, url: str, store: str, servers: str, topic: str, point: Point | None
) -> Any:
    """A writer of the query, to be given a checkpoint."""
    state = kafka_tx.OpaqueMap(url, "counts")

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
        .option("tx.id", ID)
        .option("tx.mode", "opaque")
        .option("tx.store", store)
        .load()
        .writeStream.foreachBatch(called)
        .trigger(availableNow=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("work", "url", "store", "servers", "topic", "point"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    work = Path(given.work)

    from integration.cluster.spark_local import local_session

    spark = local_session(work)
    query = counting(
        spark,
        given.url,
        given.store,
        given.servers,
        given.topic,
        Point(work, given.point),
    )
    try:
        query.option(
            "checkpointLocation", str(work / "checkpoint")
        ).start().awaitTermination()
    except Exception as error:  # noqa: BLE001 - whatever ended it is what is looked at
        (work / "error.part").write_text(str(error))
        (work / "error.part").rename(work / "error")
    spark.stop()
    (work / "finished").touch()


if __name__ == "__main__":
    main()
