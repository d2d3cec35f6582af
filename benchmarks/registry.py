"""Records with a schema into an aggregate: kafka_tx against Spark's ``from_avro``.

1,000,000 records of about 63 bytes and 8 fields, among them a nested, a nullable, a
decimal and a timestamp, into an aggregate over three fields. Spark's source cuts off
the five bytes of the registry and has one schema as text; kafka_tx goes by the id of
each record, also where two schemas alternate. At last, the same count over bytes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from itertools import cycle, islice
from statistics import median
from typing import Any

import fastavro
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.avro.functions import from_avro

from benchmarks.report import Case, print_report
from benchmarks.servers import PARTITIONS, broker, session
from integration.cluster.interface import KafkaCluster
from integration.cluster.registry import SchemaRegistry
from integration.cluster.running import running

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


def source(spark: SparkSession, form: str, servers: str, topic: str) -> Any:
    reader = spark.read.format(form).option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic)


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
    with broker() as cluster, running(SchemaRegistry()) as registry, session() as spark:
        fill_both(cluster, registry, records)
        servers = cluster.bootstrap_servers

        def typed(topic: str) -> DataFrame:
            made = source(spark, "kafka_tx", servers, topic)
            made = made.option("value.format", "avro")
            made = made.option("schema.registry.url", registry.url)
            return aggregate(made.load())

        def by_spark() -> DataFrame:
            payload = sql.expr(f"substring(value, {_PREFIX + 1})")
            value = from_avro(payload, json.dumps(OLDER)).alias("value")
            df = source(spark, "kafka", servers, "one").load().select(value)
            return aggregate(df)

        def plain() -> DataFrame:
            df = source(spark, "kafka_tx", servers, "one").load()
            return df.agg(sql.count("*"), sql.sum(sql.length("value")))

        seconds, found = measure(
            {
                "one": lambda: typed("one"),
                "two": lambda: typed("two"),
                "spark": by_spark,
                "bytes": plain,
            },
            given.runs,
        )
    assert found["one"] == found["spark"], found
    assert found["one"][0] == found["two"][0] == found["bytes"][0] == records
    speed = {name: records / taken for name, taken in seconds.items()}
    cases = [
        Case(name, speed[ours], speed[theirs], "records/s", less_is_better=False)
        for name, ours, theirs in (
            ("one schema", "one", "spark"),
            ("two alternate", "two", "spark"),
            ("against bytes", "one", "bytes"),
        )
    ]
    name = "Spark's source with from_avro"
    print_report("registry", name, cases, as_json=given.json)
