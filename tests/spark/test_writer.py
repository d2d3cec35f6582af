"""What a batch write does in the processes that Spark starts for it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from kafka_tx.config import SinkConfig
from kafka_tx.errors import ConfigError
from kafka_tx.spark.sinks import writer
from kafka_tx.spark.source.data_source import KafkaTxDataSource
from kafka_tx.testing.mock import MockCluster

_WRITE = """
import gc, sys
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType
from kafka_tx.spark.source.data_source import KafkaTxDataSource

options = {"kafka.bootstrap.servers": sys.argv[1], "topic": "t"}
schema = StructType().add("value", BinaryType())
frozen = []

def told():
    frozen.append(gc.get_freeze_count() > 0)
    gc.unfreeze()

writer = KafkaTxDataSource(options).writer(schema, overwrite=False)
told()
message = writer.write(iter([pa.record_batch({"value": pa.array([b"v"])})]))
told()
for _ in range(6):  # until the eighth task of this process
    writer.commit([message])
told()
print(frozen)
"""


def test_what_plans_writes_or_commits_exempts_its_heap_from_collection():
    """PySpark collects the heap after each step, for 30 to 45 ms."""
    with MockCluster() as cluster:
        cluster.create_topic("t")
        asked = [sys.executable, "-c", _WRITE, cluster.bootstrap_servers]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[True, True, True]"


def test_a_second_pass_over_a_generator_has_all_of_its_batches():
    """The first one ends where a topic refuses a batch."""
    given = (pa.record_batch({"value": pa.array([value])}) for value in [b"1", b"2"])
    config = SinkConfig(kafka={}, topic="t")
    with closing(writer._RepeatableBatches(given, config)) as records:
        assert [record.value for record in next(iter(records)).records()] == [b"1"]

        values = [record.value for some in records for record in some.records()]
    assert values == [b"1", b"2"]


@pytest.mark.parametrize("kind", ["writer", "streamWriter"])
def test_a_worker_is_told_that_a_write_has_failed(monkeypatch, kind):
    done = []
    monkeypatch.setattr(writer, "task_done", lambda: done.append(1))
    schema = StructType().add("value", BinaryType())

    def lost(row):
        raise OSError(f"{row} is lost")

    with MockCluster() as cluster:
        cluster.create_topic("t")
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "t"}
        made = getattr(KafkaTxDataSource(options), kind)(schema, overwrite=False)
        with pytest.raises(OSError, match="row is lost"):
            made.write(map(lost, ["row"]))

    assert done == [1]


OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
HEADER = StructType().add("key", StringType()).add("value", BinaryType())
LEGAL = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "headers": ArrayType(HEADER),
    "timestamp": TimestampType(),
}


def columns(*kinds):
    schema = StructType()
    for name, kind in kinds:
        schema.add(name, kind)
    return schema


@pytest.mark.parametrize("kind", ["writer", "streamWriter"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("key", {}),
        ("value", {}),
        ("partition", {}),
        ("headers", {}),
        ("topic", {"topic": None}),
        ("timestamp", {"timestampColumn": "true"}),
    ],
)
def test_a_name_of_two_columns_is_refused_before_any_task(kind, name, options):
    """A join of two topics has each column twice."""
    given = {n: v for n, v in {**OPTIONS, **options}.items() if v is not None}
    legal = {**dict.fromkeys(["topic", "value"], StringType()), name: LEGAL[name]}
    schema = columns(*legal.items())
    make = getattr(KafkaTxDataSource(given), kind)
    make(schema, overwrite=False)
    schema = columns(*((f.name, f.dataType) for f in [*schema, schema[name]]))

    with pytest.raises(ConfigError, match=f"several columns have the name '{name}'"):
        make(schema, overwrite=False)


@pytest.mark.parametrize("kind", ["writer", "streamWriter"])
def test_columns_that_the_sink_does_not_read_may_be_any(kind):
    value, topic = ("value", BinaryType()), ("topic", IntegerType())
    schema = columns(value, topic, topic, *[("timestamp", IntegerType())] * 2)

    getattr(KafkaTxDataSource(OPTIONS), kind)(schema, overwrite=False)

    without = {n: v for n, v in OPTIONS.items() if n != "topic"}
    with pytest.raises(ConfigError, match="topic attribute unsupported type int"):
        getattr(KafkaTxDataSource(without), kind)(
            columns(value, topic), overwrite=False
        )
