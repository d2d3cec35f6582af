"""The jobs that people have: queries and topologies, into a map, a table, a topic."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import kafka_tx
from integration.chaos.lake import Table, name_of, session_of
from integration.chaos.people.parts import PARTITIONS, Parts
from integration.chaos.schedule import TABLES
from integration.cluster.spark_local import local_session
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.sinks.delta import DeltaAppend
from kafka_tx.spark.sinks.formats import Batch
from kafka_tx.spark.sinks.iceberg import IcebergAppend

QUICKLY = {
    "spark.python.task.killTimeout": "200ms",
    "spark.sql.shuffle.partitions": "1",
}


Options: TypeAlias = Mapping[str, str]


class DeadError(Exception):
    """The driver died here."""


def session(parts: Parts, *, speculation: bool = False) -> SparkSession:
    """One in this process, with kafka_tx."""
    copies = {"spark.speculation": str(speculation).lower()}
    spark = local_session(parts.work, {**QUICKLY, **copies})
    kafka_tx.attach(spark, metrics_port=None)
    return spark


@dataclass(frozen=True)
class Setup:
    """How a job is set up: what a person may change between two runs.

    Attributes:
        door: ``query`` or ``topology``.
        mode: Of what it reads.
        id: Its ``tx.id``.
        store: ``postgresql``, or the name of a SQLite file.
        sink: ``map``, ``table``, ``kafka``, ``delta`` or ``iceberg``.
        name: Of the sink.
        opaque: Whether the sink takes a replay with other records.
        parts: Of a batch in a topic.
        checkpoint: Name of the folder.
        once: Options for the next run only.
        sources: How many sources of its own a query has in each batch.
        table: Name of the table that has taken the place of the first one.
    """

    door: str
    mode: str
    id: str
    topic: str
    store: str
    sink: str
    name: str
    opaque: bool
    parts: int = 1
    checkpoint: str = "checkpoint"
    once: Mapping[str, str] = field(default_factory=dict)
    sources: int = 1
    table: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        """Of its sources."""
        return tuple(f"{self.id}-{n}" if n else self.id for n in range(self.sources))

    @property
    def topics(self) -> tuple[str, ...]:
        """Which its sources read, one each."""
        first = self.topic
        return tuple(f"{first}-{n}" if n else first for n in range(self.sources))


def new_setup(door: str, mode: str, sink: str, store: str, sources: int = 1) -> Setup:
    """A job that nobody has had before."""
    word = uuid4().hex[:8]
    return Setup(
        door,
        mode,
        id=f"people-{word}",
        topic=f"numbers-{word}",
        store=f"{word}.db" if store == "sqlite" else store,
        sink=sink,
        name=f"sink_{word}",
        opaque=mode == "opaque",
        parts=1 if mode == "opaque" else PARTITIONS,
        checkpoint=f"checkpoint-{word}",
        sources=sources,
    )


class Run(Protocol):
    """A job that runs."""

    def is_alive(self) -> bool:
        """Whether it has not ended."""

    def error(self) -> BaseException | None:
        """Why it has ended."""

    def end(self) -> None:
        """End it, wherever it is."""


class Starter:
    """Starts jobs in one session of Spark; a run may be told to die."""

    def __init__(self, parts: Parts, spark: SparkSession) -> None:
        self.parts = parts
        self.spark = spark
        self._sessions: dict[str, SparkSession] = {}
        self.dies = ""
        """``before`` or ``after`` the next batch is written."""

    def start(self, setup: Setup) -> Run:
        """Begin a run."""
        return (
            _Topology(self, setup) if setup.door == "topology" else _Query(self, setup)
        )

    def speculates(self) -> bool:
        """Whether Spark starts copies of slow tasks."""
        return bool(self.spark.conf.get("spark.speculation", "false") == "true")

    def renew_session(self, *, speculation: bool = False) -> None:
        """Another session; no job may run."""
        self.spark.stop()
        self._sessions.clear()
        self.spark = session(self.parts, speculation=speculation)

    def session(self, setup: Setup) -> SparkSession:
        """That knows the format of the sink."""
        if setup.sink not in TABLES:
            return self.spark
        if setup.sink not in self._sessions:
            uri = self.parts.catalog.uri
            made = session_of(setup.sink, self.spark, uri)
            kafka_tx.attach(made, metrics_port=None)
            self._sessions[setup.sink] = made
        return self._sessions[setup.sink]

    def table(self, setup: Setup) -> Table:
        """The sink, where it is a table of a lakehouse."""
        place = str(self.parts.work / "lake")
        name = name_of(setup.sink, place, setup.table or setup.name)
        return Table(self.session(setup), setup.sink, name)

    def counted(self, setup: Setup) -> Counter[int]:
        """How often each number is in the sink."""
        if setup.sink in TABLES:
            return Counter(row.number for row in self.table(setup).rows())
        if setup.sink == "kafka":
            return self.parts.copied(setup.name)
        return self.parts.counted(setup.name)

    def held(self, setup: Setup) -> TransactionAttempt:
        """What a sink of tables holds."""
        table = self.table(setup)
        kind = DeltaAppend if setup.sink == "delta" else IcebergAppend
        batch = Batch(table.session.range(0), table.name, "default")
        return kind(batch).stored(TransactionAttempt(1, 1))

    def store(self, setup: Setup) -> str:
        """Its address."""
        if setup.store == "postgresql":
            return self.parts.database.url
        return f"sqlite:///{self.parts.work / setup.store}"

    def source(self, topic: str) -> dict[str, str]:
        """What both doors are told of brokers and records."""
        return {
            "kafka.bootstrap.servers": self.parts.kafka.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }

    def read(self, setup: Setup, of_source: Callable[[str], Options]) -> DataFrame:
        """The records of all sources.

        Args:
            setup: Of the job.
            of_source: More options, for a ``tx.id``.
        """
        frames = []
        for id_, topic in zip(setup.ids, setup.topics, strict=True):
            reader = self.session(setup).readStream.format("kafka_tx")
            options = {**self.source(topic), **of_source(id_)}
            frames.append(reader.options(**options).load())
        return reduce(DataFrame.union, frames)

    def write(self, setup: Setup, df: DataFrame, attempt: TransactionAttempt) -> None:
        """The user's function."""
        self.die("before")
        numbers = df.selectExpr("cast(cast(value as string) as bigint) AS number")
        url = self.parts.database.url
        if setup.sink == "map":
            kind = kafka_tx.OpaqueMap if setup.opaque else kafka_tx.TransactionalMap
            state = kind(url, setup.name, key=int)
            try:
                kafka_tx.update_map(
                    numbers, attempt, state, key="number", reducer="count"
                )
            finally:
                state.close()
        elif setup.sink == "table":
            kafka_tx.append_once(numbers, attempt, url, setup.name, opaque=setup.opaque)
        elif setup.sink in TABLES:
            kafka_tx.append_to_table(numbers, attempt, self.table(setup).name)
        else:
            options = {
                "kafka.bootstrap.servers": self.parts.kafka.bootstrap_servers,
                "topic": setup.name,
                "tx.id": setup.name,
            }
            kafka_tx.write_transaction(
                df.select("key", "value"),
                attempt,
                options,
                parts=setup.parts,
                opaque=setup.opaque,
            )
        self.die("after")

    def die(self, when: str) -> None:
        """Once, where it was asked for."""
        if self.dies == when:
            self.dies = ""
            raise DeadError(f"the driver died {when} it wrote")


class _Query:
    def __init__(self, starter: Starter, setup: Setup) -> None:
        options = {  # a commit of a table takes seconds on a busy machine
            "maxOffsetsPerTrigger": "400" if setup.sink in TABLES else "40",
            "tx.mode": setup.mode,
            "tx.store": starter.store(setup),
            **setup.once,
        }
        records = starter.read(setup, lambda id_: {**options, "tx.id": id_})

        def write(df: DataFrame, attempt: TransactionAttempt) -> None:
            starter.write(setup, df, attempt)

        self._query = (
            records.writeStream.foreachBatch(
                kafka_tx.for_each_transaction(write, setup.id)
            )
            .option("checkpointLocation", str(starter.parts.work / setup.checkpoint))
            .trigger(processingTime="500 milliseconds")
            .start()
        )

    def is_alive(self) -> bool:
        return bool(self._query.isActive)

    def error(self) -> BaseException | None:
        ended: BaseException | None = self._query.exception()
        return ended

    def end(self) -> None:
        self._query.stop()


class Count(kafka_tx.Committer, kafka_tx.BatchBolt):
    """Counts a batch's numbers into a map."""

    def __init__(self, url: str, name: str, opaque: bool) -> None:
        self.given = url, name, opaque

    def prepare(self, context: Any, _collector: Any) -> None:
        self.attempt = context.attempt
        self.seen: Counter[int] = Counter()

    def execute(self, row: Any) -> None:
        self.seen[int(row.str)] += 1

    def finish_batch(self) -> None:
        url, name, opaque = self.given
        kind = kafka_tx.OpaqueMap if opaque else kafka_tx.TransactionalMap
        keys = sorted(self.seen)
        rows = pa.table(
            {
                "key": pa.array(keys, pa.int64()),
                "value": pa.array([self.seen[key] for key in keys], pa.int64()),
            }
        )
        state = kind(url, name, key=int)
        try:
            state.update(self.attempt, rows)
        finally:
            state.close()


class _Topology:
    def __init__(self, starter: Starter, setup: Setup) -> None:
        kind = (
            kafka_tx.OpaqueTransactionalKafkaSpout
            if setup.mode == "opaque"
            else kafka_tx.TransactionalKafkaSpout
        )
        given = {
            **starter.source(setup.topic),
            "maxOffsetsPerTrigger": "40",
            **setup.once,
        }
        given.pop("tx.onDisagreement", None)
        builder = kafka_tx.TransactionalTopologyBuilder(
            setup.id, "spout", kind(given), 1
        )
        count = Count(starter.parts.database.url, setup.name, setup.opaque)
        builder.set_committer_bolt("count", count).global_grouping("spout")
        self._handle = builder.build().start(
            starter.spark,
            {"tx.store": starter.store(setup), "tx.emitIntervalMs": 300},
        )

    def is_alive(self) -> bool:
        return self._handle.isActive

    def error(self) -> BaseException | None:
        return self._handle.exception()

    def end(self) -> None:
        self._handle.stop(finish=False, timeout_s=60)


def without_once(setup: Setup) -> Setup:
    """What was for one run is over."""
    return replace(setup, once={})


def checkpoint_of(parts: Parts, setup: Setup) -> Path:
    """Its folder."""
    return parts.work / setup.checkpoint


def named_anew(name: str) -> str:
    """A name that nobody had before."""
    return f"{name.partition('+')[0]}+{time.monotonic_ns():x}"
