"""The demo's job: a streaming word count, and its result.

``kafka-tx demo`` starts it as a program, with its orders as JSON in the argument. It
starts Spark, waits until it reads ``count``, and then starts its query. It writes its
phases as JSON lines to a pipe. If its orders name a point of a batch, it halts there,
and the demo kills it. It ends when it reads ``finish``, and at once when the demo ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

import kafka_tx
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.quiet_stop import stop_quietly
from kafka_tx.spark.versions.names import quick_checkpoints
from kafka_tx.testing import QUICK_JAVA

READING = "while its tasks read"
BEFORE_SINK = "before the sink's commit"
AFTER_SINK = "after the sink's commit, before Spark's"

BATCHES_BEFORE_HALT = 1
TX_ID = "word-count"

_FOR_EVER_S = 3600
_LONGEST_SOCKET_FOLDER = 60  # with a name in it, a socket's path must stay below 104


@dataclass(frozen=True, slots=True)
class Comparison:
    """Produced and counted records, compared word by word."""

    produced: int
    counted: int
    lost: int
    duplicated: int

    @property
    def is_exact(self) -> bool:
        """Whether every record was counted exactly once."""
        return not self.lost and not self.duplicated


def compare(produced: Mapping[str, int], counted: Mapping[str, int]) -> Comparison:
    """Hold both against each other word by word.

    A record too few of one word is not made good by one too many of another.
    """
    sent, found = Counter(produced), Counter(counted)
    return Comparison(
        produced=sent.total(),
        counted=found.total(),
        lost=(sent - found).total(),
        duplicated=(found - sent).total(),
    )


@dataclass(frozen=True, slots=True)
class Orders:
    """The settings of one run of the job.

    Attributes:
        kafka: The ``kafka.*`` options of the source, without their prefix.
        work: Folder for the store, the result and everything temporary.
        batch_records: Most records of one batch.
        halt_at: The point to stop dead at, None to go on until ``finish``.
        events: File descriptor of the pipe.
    """

    kafka: dict[str, str]
    topic: str
    work: str
    batch_records: int
    halt_at: str | None
    events: int

    @property
    def store(self) -> str:
        """URL of the store of transactions."""
        return f"sqlite:///{self.work}/transactions.db"

    def counts(self) -> kafka_tx.TransactionalMap:
        """A map of words, stored in one SQLite transaction with the last txid."""
        return kafka_tx.TransactionalMap(f"sqlite:///{self.work}/words.db", "words")

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint of the query."""
        return Path(self.work, "checkpoint")

    @property
    def halted(self) -> Path:
        """A file that exists once a run has stopped dead."""
        return Path(self.work, "halted")

    def to_json(self) -> str:
        """The text for the job's argument."""
        return json.dumps(asdict(self))


class WordCount:
    """Counts the words of each transaction, once."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._counts = orders.counts()
        self._batches = 0

    def __call__(self, words: DataFrame, attempt: TransactionAttempt) -> None:
        """Handle one batch; ``attempt.txid`` is the same however often it comes."""
        tell(self._orders, phase="processing", txid=attempt.txid)
        if self._halts_at(READING):
            words = words.mapInArrow(_halting(self._orders.halted), words.schema)
        counted = words.groupBy(F.col("word").alias("key")).agg(
            F.count("*").alias("value")
        )
        counts = counted.toArrow()
        tell(self._orders, phase="committing", txid=attempt.txid)
        if self._halts_at(BEFORE_SINK):
            _halt(self._orders.halted)
        fresh = self._counts.update(attempt, counts)
        if self._halts_at(AFTER_SINK):
            _halt(self._orders.halted)
        self._batches += 1
        tell(self._orders, phase="planning", txid=attempt.txid, skipped=not fresh)

    def _halts_at(self, point: str) -> bool:
        due = self._batches >= BATCHES_BEFORE_HALT
        return due and self._orders.halt_at == point


def tell(orders: Orders, **event: object) -> None:
    """Write one event to the demo."""
    os.write(orders.events, json.dumps(event).encode() + b"\n")


def start_query(spark: SparkSession, orders: Orders) -> StreamingQuery:
    """The job itself, as a user of the source writes it."""
    source = spark.readStream.format("kafka_tx").options(
        **{f"kafka.{name}": value for name, value in orders.kafka.items()}
    )
    return (
        source.option("subscribe", orders.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", orders.batch_records)
        .option("tx.id", TX_ID)
        .option("tx.store", orders.store)
        .load()
        .selectExpr("CAST(value AS STRING) AS word")
        .writeStream.foreachBatch(kafka_tx.for_each_transaction(WordCount(orders)))
        .option("checkpointLocation", str(orders.checkpoint))
        .start()
    )


def session(work: str) -> SparkSession:
    """Spark on two threads, quiet, with everything temporary below ``work``."""
    temporary = Path(work, "tmp")
    temporary.mkdir(exist_ok=True)
    uses_sockets = len(str(temporary)) <= _LONGEST_SOCKET_FOLDER
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(
            [f"-Djava.io.tmpdir={temporary}", *QUICK_JAVA]
        ),
        "spark.local.dir": str(temporary),
        "spark.sql.warehouse.dir": str(Path(work, "warehouse")),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        # a few thousand rows a batch: compiling code for them takes longer
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": str(uses_sockets).lower(),
        "spark.python.daemon.module": "kafka_tx.spark.daemon",
        **quick_checkpoints(),
    }
    builder = SparkSession.builder.master("local[2]").appName("kafka_tx demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    _register(spark)
    return spark


def _register(spark: SparkSession) -> None:
    """Make the format known where Spark does not find it by name.

    Spark finds no editable installation, and no format if Python's path has a blank.
    """
    try:
        spark.dataSource.register(kafka_tx.KafkaTxDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def main(argument: str) -> None:
    """Run until ``finish``, or until killed."""
    orders = Orders(**json.loads(argument))
    count, finish = threading.Event(), threading.Event()
    threading.Thread(target=_listen, args=(count, finish), daemon=True).start()
    spark = session(orders.work)
    attachment = kafka_tx.attach(spark, metrics_port=None)
    count.wait()
    query = start_query(spark, orders)
    tell(orders, phase="planning", txid=None)
    while query.isActive and not finish.wait(0.1):
        pass
    if query.isActive:
        query.stop()
    query.awaitTermination()  # raises what ended it
    attachment.close()
    stop_quietly(spark)


def _listen(*words: threading.Event) -> None:
    """Set one event for each line; end when the demo ends, and let the JVM end."""
    for word in words:
        if not sys.stdin.readline():
            os._exit(1)
        word.set()
    sys.stdin.readline()
    os._exit(1)


def _halt(sign: Path) -> None:
    sign.touch()
    time.sleep(_FOR_EVER_S)


def _halting(sign: Path) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    """Let a task pass on the first records it reads, and no more."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 1)
            _halt(sign)

    return pass_on


if __name__ == "__main__":
    main(sys.argv[1])
