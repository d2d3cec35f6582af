"""One of the jobs that run while everything breaks: a driver process of its own.

It does what a user's program would: run until it is killed, or end with an error and be
started again.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    WriterCommitMessage,
)

import kafka_tx
from integration.chaos.lake import name_of, session_of
from integration.chaos.schedule import QUERIES, TABLES
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.maps import NonTransactionalMap, TransactionalMap

TOPIC, COPY = "numbers", "copied"
MAP = "counts_{}"
STARTED = "started"
"""A file of a job: when each of its drivers had Spark ready, a line each."""

TRIED = "tried"
"""A file of a job: txid and attempt id of each batch that was begun, a line each."""

EVERY = "2 seconds"
"""How often queries look: on two cores, batches without a pause would leave nothing to
the driver that starts beside them, and its start would be what is measured."""

QUICKLY = {
    "spark.driver.memory": "512m",
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.python.task.killTimeout": "200ms",
    "spark.task.maxFailures": "1",
    "spark.sql.shuffle.partitions": "1",
}

Given = Mapping[str, str]


class Nothing(DataSource):  # type: ignore[misc]
    """Reads one row and writes nothing: what any source in Python costs to start."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "value string"

    def reader(self, schema: Any) -> DataSourceReader:
        return NothingRead()

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return NothingWritten()


class NothingRead(DataSourceReader):  # type: ignore[misc]
    """One row."""

    def read(self, partition: Any) -> Any:
        yield ("nothing",)


class NothingWritten(DataSourceWriter):  # type: ignore[misc]
    """No row."""

    def write(self, iterator: Any) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def get_ready(spark: SparkSession) -> None:
    """Start the Python processes that Spark has for sources, whosesoever they are.

    On two busy cores that takes longer than all that a source does then.
    """
    spark.dataSource.register(Nothing)
    rows = spark.read.format("nothing").load().repartition(2, "value")
    rows.write.format("nothing").mode("append").save()


def source(spark: SparkSession, given: Given, kind: str) -> DataFrame:
    """The numbers as they come, in transactions."""
    return (
        spark.readStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", given["servers"])
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "2000")
        .option("tx.id", f"chaos-{kind}")
        .option("tx.store", given["database"])
        .option("tx.commitGroupId", f"chaos-{kind}")
        .load()
    )


def follow(
    spark: SparkSession,
    given: Given,
    kind: str,
    write: Callable[[DataFrame, TransactionAttempt], None],
) -> None:
    """Run the query until it ends with an error."""

    def noted(df: DataFrame, attempt: TransactionAttempt) -> None:
        with (Path(given["work"]) / TRIED).open("a") as tried:
            tried.write(f"{attempt.txid} {attempt.attempt_id}\n")
        write(df, attempt)

    kafka_tx.attach(spark, metrics_port=None)
    query = (
        source(spark, given, kind)
        .writeStream.foreachBatch(kafka_tx.for_each_transaction(noted))
        .option("checkpointLocation", f"{given['work']}/checkpoint")
        .trigger(processingTime=EVERY)
        .start()
    )
    query.awaitTermination()


def sql(spark: SparkSession, given: Given) -> None:
    """Source to a map in PostgreSQL."""
    state = TransactionalMap(given["database"], MAP.format("sql"))

    def count(df: DataFrame, attempt: TransactionAttempt) -> None:
        keys = df.selectExpr("cast(value as string) as key")
        kafka_tx.update_map(keys, attempt, state, reducer="count")

    follow(spark, given, "sql", count)


def kafka(spark: SparkSession, given: Given) -> None:
    """Source to another topic."""
    options = {
        "kafka.bootstrap.servers": given["servers"],
        "topic": COPY,
        "tx.id": "chaos-copy",
    }

    def copy(df: DataFrame, attempt: TransactionAttempt) -> None:
        kafka_tx.write_transaction(df.select("key", "value"), attempt, options, parts=2)

    follow(spark, given, "kafka", copy)


class Update(kafka_tx.Committer, kafka_tx.BatchBolt):
    """Counts a batch's numbers into a map."""

    def __init__(self, database: str) -> None:
        self.database = database

    def prepare(self, context: Any, _collector: Any) -> None:
        self.attempt = context.attempt
        self.seen: Counter[str] = Counter()

    def execute(self, row: Any) -> None:
        self.seen[row.str] += 1

    def finish_batch(self) -> None:
        keys = sorted(self.seen)
        rows = pa.table(
            {
                "key": pa.array(keys, pa.string()),
                "value": pa.array([self.seen[key] for key in keys], pa.int64()),
            }
        )
        state = TransactionalMap(self.database, MAP.format("topology"))
        try:
            state.update(self.attempt, rows)
        finally:
            state.close()


def topology(spark: SparkSession, given: Given) -> None:
    """A transactional topology to a map in PostgreSQL, its state in ZooKeeper."""
    spout = kafka_tx.TransactionalKafkaSpout(
        {"kafka.bootstrap.servers": given["servers"], "subscribe": TOPIC}
    )
    builder = kafka_tx.TransactionalTopologyBuilder("chaos", "spout", spout, 2)
    update = Update(given["database"])
    builder.set_committer_bolt("update", update).global_grouping("spout")
    builder.build().start(
        spark,
        {
            "tx.store": f"zookeeper://{given['zookeeper']}/chaos",
            "tx.timeoutMs": 20_000,
            "tx.emitIntervalMs": 500,
        },
    ).awaitTermination()


class Note(kafka_tx.BasicBolt):
    """Notes each number; a second time changes nothing."""

    def __init__(self, database: str) -> None:
        self.database = database

    def prepare(self, _context: Any) -> None:
        self.state = NonTransactionalMap(self.database, MAP.format("records"))

    def execute(self, row: Any, _collector: Any) -> None:
        rows = pa.table({"key": [row.str], "value": [1]})
        self.state.update(TransactionAttempt(1, 1), rows, "max")

    def cleanup(self) -> None:
        self.state.close()


def records(spark: SparkSession, given: Given) -> None:
    """An at-least-once topology to a table in PostgreSQL."""
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(given["servers"], refresh_freq_secs=5),
        topic=TOPIC,
        scheme=kafka_tx.StringScheme(),
        store=given["database"],
        state_update_interval_ms=500,
        retry_initial_delay_ms=200,
        retry_delay_max_ms=2_000,
    )
    builder = kafka_tx.TopologyBuilder("chaos-records")
    builder.set_spout("spout", kafka_tx.KafkaSpout(config), 2)
    builder.set_bolt("note", Note(given["database"]), 2).shuffle_grouping("spout")
    builder.build().start(
        spark, {"tx.store": given["database"], "tx.timeoutMs": 20_000}
    ).awaitTermination()


def merge(df: DataFrame, target: str) -> None:
    """Count the numbers of a batch."""
    df.groupBy("number").count().createOrReplaceTempView("batch")
    df.sparkSession.sql(
        f"MERGE INTO {target} t USING batch b ON t.number = b.number"
        " WHEN MATCHED THEN UPDATE SET t.times = t.times + b.count"
        " WHEN NOT MATCHED THEN INSERT (number, times) VALUES (b.number, b.count)"
    )


def table(spark: SparkSession, given: Given) -> None:
    """Source to two tables of a format: an append and a MERGE of each batch."""
    kind = given["kind"]
    appended, merged = (
        name_of(kind, given["lake"], name) for name in ("numbers", "counts")
    )

    def write(df: DataFrame, attempt: TransactionAttempt) -> None:
        numbers = df.selectExpr("cast(cast(value as string) as bigint) AS number")
        kafka_tx.append_to_table(numbers, attempt, appended)
        kafka_tx.write_to_table(numbers, attempt, merged, merge)

    follow(session_of(kind, spark, given["catalog"]), given, kind, write)


JOBS = {
    "sql": sql,
    "kafka": kafka,
    "topology": topology,
    "records": records,
    **dict.fromkeys(TABLES, table),
}


def main() -> None:
    """Run the job that the command line names."""
    parser = argparse.ArgumentParser()
    told = "kind", "work", "servers", "database", "zookeeper", "lake", "catalog"
    for name in told:
        parser.add_argument(f"--{name}", required=True)
    given = vars(parser.parse_args())

    from integration.cluster.spark_local import local_session

    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    work = Path(given["work"])
    session = local_session(work, QUICKLY, cores=1)
    if given["kind"] in QUERIES:
        get_ready(session)
    with (work / STARTED).open("a") as started:
        started.write(f"{time.time()}\n")
    JOBS[given["kind"]](session, given)


if __name__ == "__main__":
    main()
