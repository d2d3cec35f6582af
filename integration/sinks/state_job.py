"""A job that counts a topic into maps and tables of two databases.

Run in a driver by ``test_crashes``: it stops dead at a named point of a batch's life,
to be killed there. ``Results`` is what it writes, also for runs in a test's process.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import create_engine, text

import kafka_tx
from integration.bounded import read_out
from integration.cluster.postgresql import PostgresServer
from integration.pausing import LASTS_S
from integration.source.pausing_job import Pause
from kafka_tx.model import TransactionAttempt

POINTS = ("in-transaction", "between-databases", "after-state")


Save = Callable[[DataFrame, TransactionAttempt], None]


class Results:
    """Maps and tables in several databases, all written by every batch.

    Opaque batches need opaque ones.
    """

    def __init__(self, urls: list[str], mode: str, pause: Pause | None = None) -> None:
        self._urls = urls
        self._pause = pause
        self._is_opaque = mode == "opaque"
        plain = kafka_tx.OpaqueMap if self._is_opaque else kafka_tx.TransactionalMap
        self._maps = [
            {
                "counts": plain(url, "counts"),
                "sums": kafka_tx.OpaqueMap(url, "sums"),
                "newest": kafka_tx.OpaqueMap(url, "newest"),
                "batches": plain(url, "batches"),
            }
            for url in urls
        ]

    def __call__(self, df: DataFrame, attempt: TransactionAttempt) -> None:
        rows = df.selectExpr(
            "cast(key AS string) AS key",
            "cast(cast(value AS string) AS bigint) AS value",
            "partition",
            "offset",
        ).persist()
        for url, maps in zip(self._urls, self._maps, strict=True):
            kafka_tx.update_map(rows, attempt, maps["counts"], reducer="count")
            kafka_tx.update_map(rows, attempt, maps["sums"])
            kafka_tx.update_map(
                rows, attempt, maps["newest"], reducer="last", order="offset"
            )
            with maps["batches"].batch(attempt) as batch:
                batch.update(pa.table({"key": ["all"]}), "count")
                if url is self._urls[-1]:
                    self._reach("in-transaction", attempt)
            kafka_tx.append_once(rows, attempt, url, "kept", opaque=self._is_opaque)
            kafka_tx.append_once(rows, attempt, url, "replaced", opaque=True)
            if url is self._urls[0]:
                self._reach("between-databases", attempt)
        rows.unpersist()
        self._reach("after-state", attempt)

    def dump(self) -> list[dict[str, Any]]:
        """All that is stored, for each database."""
        return [
            {name: _pairs(one.to_arrow()) for name, one in maps.items()}
            | {name: _records(url, name) for name in ("kept", "replaced")}
            for url, maps in zip(self._urls, self._maps, strict=True)
        ]

    def close(self) -> None:
        for maps in self._maps:
            for one in maps.values():
                one.close()

    def _reach(self, point: str, attempt: TransactionAttempt) -> None:
        if self._pause is not None:
            self._pause.reach(point, attempt.txid)


def _pairs(table: pa.Table) -> dict[str, int]:
    keys, values = table["key"].to_pylist(), table["value"].to_pylist()
    return dict(zip(keys, values, strict=True))


def _records(url: str, table: str) -> list[tuple[Any, ...]]:
    engine = create_engine(url)
    query = text(
        f'SELECT "partition", "offset", "key", "value" FROM {table} ORDER BY 1, 2, 3'
    )
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        connection = stack.enter_context(engine.connect())
        return [tuple(row) for row in connection.execute(query)]


def urls_of(file: Path, server: PostgresServer) -> list[str]:
    """Two databases: a file, and a fresh one of PostgreSQL."""
    name = f"state_{uuid.uuid4().hex[:12]}"
    server.execute(f"CREATE DATABASE {name}")
    return [f"sqlite:///{file}", server.url(name)]


def counting(
    spark: Any, results: Save, *, servers: str, topic: str, store: str, mode: str
) -> Any:
    """A writer of the query, to be given a checkpoint."""
    return (
        spark.readStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "60")
        .option("tx.id", f"state-{topic}")
        .option("tx.mode", mode)
        .option("tx.ifOwned", "fence")  # what was killed owns it for ten seconds
        .option("tx.store", store)
        .load()
        .writeStream.foreachBatch(kafka_tx.for_each_transaction(results))
    )


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("work", "servers", "topic", "checkpoint", "point", "mode"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--txid", type=int, default=2)
    parser.add_argument("--url", action="append", required=True)
    return parser.parse_args(words)


def run(spark: SparkSession, given: argparse.Namespace) -> None:
    """Count what is there, or up to the pause."""
    pause = Pause(given.point, given.txid, f"{given.work}/reached")
    results = Results(given.url, given.mode, pause)
    writer = counting(
        spark,
        results,
        servers=given.servers,
        topic=given.topic,
        store=f"sqlite:///{given.work}/store.db",
        mode=given.mode,
    )
    read_out(writer.option("checkpointLocation", given.checkpoint), LASTS_S)
    results.close()
