"""Records with a schema into an aggregate: kafka_tx against Spark's ``from_avro``.

1,000,000 records of about 63 bytes and 8 fields, among them a nested, a nullable, a
decimal and a timestamp, into an aggregate over three fields. Spark's source cuts off
the five bytes of the registry and has one schema as text; kafka_tx goes by the id of
each record, also where two schemas alternate. A reader's schema may also name only the
three fields.

Against bytes: the same with a sum of lengths. Spark copies every column of a source in
Python, and every field of a struct, whatever a query needs; so a source whose tasks
hand over prepared batches of the same columns shows what is left without any reading.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import fastavro
import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.report import Case, print_report
from benchmarks.servers import PARTITIONS, broker, session
from integration.cluster.interface import KafkaCluster
from integration.cluster.registry import SchemaRegistry
from integration.cluster.running import running
from integration.log_ends import log_ends
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.options.formats import fixed_option
from kafka_tx.options.source import parse_source
from kafka_tx.schemas.readers import reader_schema
from kafka_tx.spark.source.ranges import read_range

RECORDS = 1_000_000
_DISTINCT = 5_000
_PREFIX = 5

OLDER: dict[str, Any] = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "account", "type": "string"},
        {
            "name": "amount",
            "type": {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 12,
                "scale": 2,
            },
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "rate", "type": "double"},
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [
                    {"name": "city", "type": "string"},
                    {"name": "shop", "type": "int"},
                ],
            },
        },
    ],
}
NEWER = {
    **OLDER,
    "fields": [*OLDER["fields"], {"name": "kind", "type": "string", "default": "card"}],
}
_PLACE = OLDER["fields"][-1]["type"]
THREE = {
    **OLDER,
    "fields": [
        *(each for each in OLDER["fields"] if each["name"] in ("amount", "at")),
        {"name": "place", "type": {**_PLACE, "fields": _PLACE["fields"][1:]}},
    ],
}
"""The fields of the aggregate: what a reader's schema lacks is skipped."""


class Prepared(DataSource):
    """Batches of a file, handed over by each of four tasks; without any reading."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.options["schema"]))

    def reader(self, schema: StructType) -> DataSourceReader:
        return PreparedReader(self.options["path"])


class PreparedReader(DataSourceReader):
    """See ``Prepared``."""

    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self._path) as file:
            yield from pa.ipc.open_stream(file)


def prepared(
    spark: SparkSession, path: Path, df: DataFrame, options: Mapping[str, str]
) -> DataFrame:
    """A DataFrame of the first partition's batches, for each partition."""
    given = dict(options)
    for each in parse_source(given, streaming=False).formats:
        given |= fixed_option(each.side, reader_schema(each))
    config, topic = parse_source(given, streaming=False), options["subscribe"]
    ends = log_ends(options["kafka.bootstrap.servers"], topic, PARTITIONS)
    wanted = OffsetRange(TopicPartition(topic, 0), 0, ends[0])
    batches = list(read_range(config, wanted))
    with pa.ipc.new_stream(str(path), batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    made = spark.read.format("prepared").option("path", str(path))
    return made.option("schema", df.schema.json()).load()


def aggregate(df: DataFrame) -> DataFrame:
    """Over three fields, one of them nested."""
    return df.agg(
        sql.count("*"),
        sql.sum("value.amount"),
        sql.max("value.at"),
        sql.sum("value.place.shop"),
    )


def payments(schema: dict[str, Any], schema_id: int) -> list[bytes]:
    """Some records, as a producer with a registry writes them."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    made = []
    for n in range(_DISTINCT):
        buffer = BytesIO()
        payment = {
            "id": 10_000_000_000 + n,
            "account": f"DE{n:010}",
            "amount": Decimal(n).scaleb(-2),
            "at": at,
            "note": f"note{n % 97}" if n % 2 else None,
            "rate": n / 7,
            "place": {"city": "Magdeburg", "shop": n},
            "kind": "card",
        }
        fastavro.schemaless_writer(buffer, parsed, payment)
        made.append(b"\0" + schema_id.to_bytes(4, "big") + buffer.getvalue())
    return made


def fill(cluster: KafkaCluster, topic: str, values: list[bytes], records: int) -> None:
    """Write so many records into a new topic."""
    cluster.create_topic(topic, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for n, value in enumerate(islice(cycle(values), records)):
        while True:
            try:
                producer.produce(topic, value, partition=n // 2 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def fill_both(cluster: KafkaCluster, registry: SchemaRegistry, records: int) -> None:
    """A topic of one schema, and one of two that alternate from record to record."""
    old = registry.register("one-value", OLDER)
    registry.register("two-value", OLDER)
    new = registry.register("two-value", NEWER)
    older, newer = payments(OLDER, old), payments(NEWER, new)
    fill(cluster, "one", older, records)
    both = [each for pair in zip(older, newer, strict=True) for each in pair]
    fill(cluster, "two", both, records)


def timed(df: DataFrame) -> tuple[float, tuple[Any, ...]]:
    """Seconds of one run, and what it found."""
    began = time.monotonic()
    row = df.collect()[0]
    return time.monotonic() - began, tuple(row)


def measure(
    makers: dict[str, Callable[[], DataFrame]], runs: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """Median seconds of each, alternating; and what each found."""
    seconds: dict[str, list[float]] = {name: [] for name in makers}
    found: dict[str, Any] = {}
    for run in range(runs + 1):
        for name in list(makers) if run % 2 else reversed(makers):
            taken, found[name] = timed(makers[name]())
            if run:
                seconds[name].append(taken)
    return {name: median(taken) for name, taken in seconds.items()}, found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks registry")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records")
    given = parser.parse_args(arguments)
    records = int(RECORDS * given.scale)
    with (
        broker() as cluster,
        running(SchemaRegistry()) as registry,
        session() as spark,
        tempfile.TemporaryDirectory() as work,
    ):
        fill_both(cluster, registry, records)
        seconds, found = measure(
            runs_of(spark, cluster, registry, Path(work)), given.runs
        )
    assert found["one"] == found["three"] == found["spark"], found
    assert {row[0] for row in found.values()} == {records}, found
    speed = {name: records / taken for name, taken in seconds.items()}
    cases = [
        Case(name, speed[ours], speed[theirs], "records/s", less_is_better=False)
        for name, ours, theirs in (
            ("one schema", "one", "spark"),
            ("two alternate", "two", "spark"),
            ("three fields named", "three", "spark"),
            ("against bytes", "one", "bytes"),
            ("three, against bytes", "three", "bytes"),
            ("prepared, against bytes", "prepared", "prepared bytes"),
            ("prepared three, against bytes", "prepared three", "prepared bytes"),
        )
    ]
    name = "Spark's source with from_avro"
    print_report("registry", name, cases, as_json=given.json)


def runs_of(
    spark: SparkSession, cluster: KafkaCluster, registry: SchemaRegistry, work: Path
) -> dict[str, Callable[[], DataFrame]]:
    """What is measured, by name."""
    spark.dataSource.register(Prepared)
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    avro = {"value.format": "avro", "schema.registry.url": registry.url}
    bytes_ = {**servers, "subscribe": "one"}
    one, two = {**bytes_, **avro}, {**servers, **avro, "subscribe": "two"}
    three = {**one, "value.schema": json.dumps(THREE)}

    def read(options: Mapping[str, str], form: str = "kafka_tx") -> DataFrame:
        return spark.read.format(form).options(**options).load()

    def by_spark() -> DataFrame:
        payload = sql.expr(f"substring(value, {_PREFIX + 1})")
        value = from_avro(payload, json.dumps(OLDER)).alias("value")
        return aggregate(read(bytes_, "kafka").select(value))

    ready = {
        name: prepared(spark, work / name, read(options), options)
        for name, options in (("one", one), ("three", three), ("bytes", bytes_))
    }
    return {
        "one": lambda: aggregate(read(one)),
        "two": lambda: aggregate(read(two)),
        "three": lambda: aggregate(read(three)),
        "spark": by_spark,
        "bytes": lambda: lengths(read(bytes_)),
        "prepared": lambda: aggregate(ready["one"]),
        "prepared three": lambda: aggregate(ready["three"]),
        "prepared bytes": lambda: lengths(ready["bytes"]),
    }


def lengths(df: DataFrame) -> DataFrame:
    """The same count over bytes."""
    return df.agg(sql.count("*"), sql.sum(sql.length("value")))
