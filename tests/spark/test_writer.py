"""What a batch write does in the processes that Spark starts for it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructType

from kafka_tx.config import SinkConfig
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
