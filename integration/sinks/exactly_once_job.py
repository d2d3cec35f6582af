"""A job that copies a topic into another, each record once, and stops where it is told.

Run as a program by ``test_exactly_once``. Run by Spark instead of its own daemon, it
makes the Python workers stop inside of the Kafka transactions that they write.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.listener import StreamingQueryListener

import kafka_tx
from integration.bounded import read_out
from kafka_tx.kafka import part_transaction
from kafka_tx.kafka.out_batch import OutBatch
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.transaction import Transaction
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.sink_parts import Digest

POINTS = (
    "before-begin",
    "mid-transaction",
    "before-commit",
    "after-commit",
    "before-spark-commit",
)
LOGGED = "after-commit-log"
PARTS = 2
PAUSES = "KAFKA_TX_TEST_PAUSES"
RELEASED_AFTER_S = 300


class Pauses:
    """Points where a process waits, each once: until it is killed, or told to go on.

    Args:
        place: A directory that every process sees.
        at: For each point, the first txid that waits there.
    """

    def __init__(self, place: Path, at: dict[str, int]) -> None:
        self.place, self.at = place, at

    @classmethod
    def of_environment(cls) -> Pauses:
        given = json.loads(os.environ[PAUSES])
        return cls(Path(given["place"]), given["at"])

    def reach(self, point: str, txid: int) -> None:
        if txid < self.at.get(point, sys.maxsize):
            return
        reached, released = self.place / f"reached-{point}", self.place / f"go-{point}"
        if reached.exists():
            return
        waiting = self.place / f"waiting-{point}"
        waiting.write_text(str(txid))
        waiting.rename(reached)
        deadline = time.monotonic() + RELEASED_AFTER_S
        while not released.exists() and time.monotonic() < deadline:
            time.sleep(0.05)


class StoppingPart(part_transaction.PartTransaction):
    """Waits at the points of its transaction, which say so if it is not part 0."""

    pauses: ClassVar[Pauses]

    def _send(
        self, transaction: Transaction, records: Iterable[OutRecord | OutBatch]
    ) -> None:
        self._reach("before-begin")
        super()._send(transaction, self._stopping(transaction, records))

    def _commit(self, transaction: Transaction, digest: Digest) -> None:
        self._reach("before-commit")
        super()._commit(transaction, digest)
        self._reach("after-commit")

    def _stopping(
        self, transaction: Transaction, records: Iterable[OutRecord | OutBatch]
    ) -> Iterator[OutRecord]:
        one_by_one = chain.from_iterable(
            some.records() if isinstance(some, OutBatch) else [some] for some in records
        )
        for number, record in enumerate(one_by_one):
            if number == 50:
                transaction.client.flush_for(10)
                self._reach("mid-transaction")
            yield record

    def _reach(self, point: str) -> None:
        of = f" of part {self._part.index}" if self._part.index else ""
        self.pauses.reach(point + of, self._part.txid)


def copy(options: dict[str, str], pauses: Pauses) -> Any:
    """The function of each batch."""

    def write(df: DataFrame, attempt: TransactionAttempt) -> None:
        kafka_tx.write_transaction(
            df.select("key", "value"), attempt, options, parts=PARTS
        )
        pauses.reach("before-spark-commit", attempt.txid)

    return kafka_tx.for_each_transaction(write)


def counts(df: DataFrame, width: str) -> DataFrame:
    """Counts of keys by event time, which come without new records of the source."""
    return (
        df.withWatermark("timestamp", "0 seconds")
        .groupBy(F.window("timestamp", width), F.col("key").cast("string").alias("of"))
        .agg(F.count("*").alias("number"))
        .select(
            F.concat_ws("|", F.unix_seconds("window.start"), "of").alias("key"),
            F.col("number").cast("string").alias("value"),
        )
    )


class Logged(StreamingQueryListener):  # type: ignore[misc]
    """Waits once a batch is in Spark's commit log; Spark does not wait for it.

    Attributes:
        is_over: Set when it has seen all of the query.
    """

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self.is_over = threading.Event()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Spark counts batches from 0; here each is a transaction."""
        if event.progress.stateOperators:
            self._pauses.reach(LOGGED, event.progress.batchId + 1)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.is_over.set()


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("work", "servers", "source", "target", "batch"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--windows", help="count by event time, such as '10 seconds'")
    return parser.parse_args(words)


def run(spark: SparkSession, given: argparse.Namespace, pauses: Pauses) -> None:
    """Copy what is there."""
    work = Path(given.work)
    options = {
        "kafka.bootstrap.servers": given.servers,
        "topic": given.target,
        "tx.id": given.target,
        # what this leaves open holds up no other sink
        "tx.markerTopic": f"{given.target}-markers",
    }
    df = (
        spark.readStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", given.servers)
        .option("subscribe", given.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.batch)
        .option("tx.id", given.target)
        .option("tx.store", f"sqlite:///{work}/store.db")
        .load()
    )
    logged = Logged(pauses)
    if given.windows:
        df = counts(df, given.windows)
        spark.streams.addListener(logged)
    read_out(
        df.writeStream.foreachBatch(copy(options, pauses)).option(
            "checkpointLocation", str(work / "checkpoint")
        )
    )
    if given.windows:
        logged.is_over.wait()
    (work / "finished").touch()


def main() -> None:
    given = arguments()

    from integration.cluster.spark_local import local_session

    spark = local_session(
        Path(given.work),
        {"spark.python.daemon.module": "integration.sinks.exactly_once_job"},
    )
    run(spark, given, Pauses.of_environment())
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("pyspark."):
        from pyspark import daemon

        StoppingPart.pauses = Pauses.of_environment()
        part_transaction.PartTransaction = StoppingPart  # type: ignore[misc]
        daemon.manager()
    else:
        main()
