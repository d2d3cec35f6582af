"""A job over typed records, into sinks of all kinds, whose schema gets a newer version.

Run in a driver that ``test_schemas`` kills at a named point of a batch, and in the
process of the tests.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import kafka_tx
from integration.bounded import read_out
from integration.capabilities import CAPABILITIES, ICE, LAKE
from integration.cluster.spark_local import delta_session, iceberg_session
from integration.consuming import committed_records
from integration.log_ends import log_ends
from integration.pausing import LASTS_S
from integration.reading import reader
from integration.sizes import EVERYTHING
from integration.source.pausing_job import Pause
from kafka_tx.model import TransactionAttempt

POINTS = ("planned", "map", "kafka-part", "table-part", "all")
"""In the order of a batch. Of a part: some rows are written, and others never come."""

PARTITIONS, ORDERS = 2, 1_000
"""Of a batch that is killed."""

LAST = str(ORDERS)
"""The id of its last row."""

_EXECUTION = "spark.sql.execution"
AT_ONCE = {
    f"{_EXECUTION}.arrow.maxRecordsPerBatch": "100",
    f"{_EXECUTION}.pandas.udf.buffer.size": "4",
}
"""Rows that are there reach their writer without waiting for others."""

_NOWHERE = Pause("none", 0, "")
_POLL_EVERY_S = 0.1
_PART_WITHIN_S = 60


class Sinks:
    """Counts the ids of batches in a map, a topic and, in `make test-all`, tables.

    ``behind`` is called when all of them have a batch.
    """

    def __init__(
        self,
        work: Path,
        out: str,
        servers: str,
        spark: SparkSession,
        pause: Pause = _NOWHERE,
    ) -> None:
        self.map = kafka_tx.TransactionalMap(f"sqlite:///{work}/counts.db", "counts")
        self.work, self.out, self.servers, self.pause = work, out, servers, pause
        self.behind: Callable[[], None] = lambda: None
        self._tables: list[tuple[SparkSession, str]] = []
        if EVERYTHING and CAPABILITIES[LAKE]:
            self._tables.append((delta_session(spark), f"{work}/delta"))
        if EVERYTHING and CAPABILITIES[ICE]:
            self._tables.append(
                (iceberg_session(spark, work / "ice"), "lake.db.counts")
            )

    def __call__(self, df: DataFrame, attempt: TransactionAttempt) -> None:
        look(df, self.work)
        reach = partial(self.pause.reach, txid=attempt.txid)
        reach("planned")
        text = df.select(F.col("value.id").cast("string").alias("value"))
        kafka_tx.update_map(text, attempt, self.map, key="value", reducer="count")
        reach("map")
        has_part = partial(_has_records, self.servers, self.out)
        kafka_tx.write_transaction(
            self._in_part(text, "kafka-part", has_part),
            attempt,
            {
                "kafka.bootstrap.servers": self.servers,
                "topic": self.out,
                "tx.id": self.out,
            },
        )
        rows = [tuple(row) for row in text.collect()]
        for session, table in self._tables:
            made = session.createDataFrame(rows, "value string")
            has_part = partial(_has_files, self.work)
            made = self._in_part(made, "table-part", has_part)
            kafka_tx.append_to_table(made, attempt, table)
        reach("all")
        self.behind()

    def counts(self) -> list[dict[str, int]]:
        """Of each id, in each of the sinks."""
        counts = self.map.to_arrow().to_pylist()
        found = [{row["key"]: row["value"] for row in counts}]
        records = committed_records(self.servers, self.out)
        found.append(Counter(record.text for record in records))
        for session, table in self._tables:
            is_path = table.startswith("/")
            df = (
                session.read.format("delta").load(table)
                if is_path
                else session.table(table)
            )
            found.append(Counter(row.value for row in df.collect()))
        return found

    def _in_part(
        self, df: DataFrame, point: str, has_part: Callable[[], bool]
    ) -> DataFrame:
        """At its point: rows of which the last one never comes, behind the others."""
        if point != self.pause.point:
            return df
        marker = self.pause.marker

        def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if LAST in batch.column("value").to_pylist():
                    until_s = time.monotonic() + _PART_WITHIN_S
                    while not has_part() and time.monotonic() < until_s:
                        time.sleep(_POLL_EVERY_S)
                    marker.with_suffix(".part").write_text(str(has_part()))
                    marker.touch()
                    time.sleep(LASTS_S)
                yield batch

        return df.mapInArrow(wait, df.schema)


def _has_records(servers: str, topic: str) -> bool:
    """Also those of an open transaction."""
    return any(log_ends(servers, topic, PARTITIONS).values())


def _has_files(work: Path) -> bool:
    return any(work.rglob("*.parquet"))


def had_part(work: Path) -> bool:
    """Whether other rows were written when the driver was killed at such a point."""
    return (work / "reached.part").read_text() == str(True)


def look(df: DataFrame, work: Path) -> None:
    """Note the rows of a batch that has the newer column."""
    if "vip" in df.select("value.*").columns:
        found = sorted(tuple(r) for r in df.select("value.id", "value.vip").collect())
        with (work / "seen").open("a") as file:
            file.write(json.dumps(found) + "\n")


def seen(work: Path) -> list[Any]:
    """What batches of the newer schema held, each time they were tried."""
    path = work / "seen"
    lines = path.read_text().splitlines() if path.exists() else []
    return [[tuple(row) for row in json.loads(line)] for line in lines]


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    names = ("work", "servers", "topic", "out", "registry", "checkpoint", "point")
    for name in names:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--txid", type=int, default=1)
    return parser.parse_args(words)


def run(spark: SparkSession, given: argparse.Namespace) -> None:
    """Count what there is, or up to the pause."""
    work = Path(given.work)
    pause = Pause(given.point, given.txid, f"{work}/reached")
    for name, value in AT_ONCE.items():
        spark.conf.set(name, value)
    sinks = Sinks(work, given.out, given.servers, spark, pause)
    read_out(writer(spark, given, sinks), LASTS_S)


def writer(
    spark: SparkSession, given: argparse.Namespace, sinks: Any, **more: Any
) -> Any:
    """The query, which has not started."""
    source = reader(
        spark,
        given.servers,
        subscribe=given.topic,
        tx__id=given.topic,
        tx__store=f"sqlite:///{given.work}/store.db",
        tx__ifOwned="fence",  # what was killed owns it for ten seconds
        value__format="avro",
        schema__registry__url=given.registry,
        **more,
    )
    function = kafka_tx.for_each_transaction(sinks)
    made = source.load().writeStream.foreachBatch(function)
    return made.option("checkpointLocation", f"{given.work}/{given.checkpoint}")
