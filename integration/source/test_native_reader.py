"""The native reader beside the Python one on real logs, and what it takes of memory."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread

from integration.cluster.records import Record
from integration.cluster.running import running
from integration.cluster.waiting import wait_until
from integration.sizes import in_all
from kafka_tx.errors import FetchError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.reader import KafkaRangeReader
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.native.reader import NativeRangeReader
from kafka_tx.record_schema import arrow_schema

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def settings(kafka, **more):
    named = {name.replace("_", "."): value for name, value in more.items()}
    options = {"bootstrap.servers": kafka.bootstrap_servers, **named}
    return client_settings(options, purpose="consumer")


def table(reader, topic, start, end):
    batches = list(reader.read(OffsetRange(TopicPartition(topic, 0), start, end)))
    return pa.Table.from_batches(batches, arrow_schema(True))


@pytest.fixture
def everything(topic, produce):
    """A log of 15 offsets with all that one can hold."""
    name = topic(config={"compression.type": "producer"})
    produce(name, [Record(b"", key=b"", timestamp_ms=1), Record(None, key="gone")])
    produce.aborted(name, [Record("no", headers=[("h", b"1")])])  # 2 and marker 3
    headers = [("ü", b"1"), ("h", None), ("h", b""), ("", b"x")]
    produce.committed(name, [Record("v", headers=headers), "w"])  # 4, 5 and marker 6
    produce(name, ["x" * 200_000, "y"])  # 7, 8
    produce.aborted(name, ["no", "no"])  # 9, 10 and marker 11
    produce(name, ["z"])  # 12
    produce.committed(name, ["last"])  # 13 and marker 14
    return name


@pytest.mark.parametrize("isolation", [COMMITTED, *in_all(UNCOMMITTED)])
def test_every_range_of_a_log_is_the_same_to_both(kafka, everything, isolation):
    readers = [
        kind(settings(kafka, isolation_level=isolation), include_headers=True)
        for kind in (NativeRangeReader, KafkaRangeReader)
    ]

    read = [table(reader, everything, 0, 15) for reader in readers]

    assert read[0].num_rows == (8 if isolation == COMMITTED else 11)
    for start, end in itertools.combinations(range(16), 2):
        native = table(readers[0], everything, start, end)
        within = [start <= offset < end for offset in read[1]["offset"].to_pylist()]
        assert native.equals(read[1].filter(within)), (start, end)


def test_aborted_records_after_the_range_need_not_be_read(kafka, topic, produce):
    name = topic()
    produce(name, ["a"])
    aborted, size = 3_000, 30_000
    produce.aborted(name, ["x" * size] * aborted)
    reader = NativeRangeReader(
        settings(
            kafka,
            isolation_level=COMMITTED,
            max_partition_fetch_bytes="100000",
            fetch_max_bytes="1000000",
        ),
        include_headers=True,
    )

    within = table(reader, name, 0, 2)
    rest = table(reader, name, 1, aborted + 2)

    assert within["value"].to_pylist() == [b"a"]
    assert rest.num_rows == 0


def test_a_silent_broker_is_named_within_the_time_out(servers):
    with running(servers.kafka()) as cluster:
        cluster.create_topic("orders")
        cluster.pause(1)
        reader = NativeRangeReader(settings(cluster), timeout_ms=2_000)

        started = time.monotonic()
        with pytest.raises(FetchError, match=r"no progress for 2 s"):
            list(reader.read(OffsetRange(TopicPartition("orders", 0), 0, 1)))

        assert time.monotonic() - started < 30
        cluster.unpause(1)


PEAK = """
import resource, sys
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.native.reader import NativeRangeReader
servers, topic, records = sys.argv[1:]
options = {"bootstrap.servers": servers}
reader = NativeRangeReader(client_settings(options, purpose="consumer"))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
idle = peak()
wanted = OffsetRange(TopicPartition(topic, 0), 0, int(records))
rows = sum(batch.num_rows for batch in reader.read(wanted))
assert rows == int(records)
print(peak() - idle)
"""


@pytest.mark.all
@pytest.mark.parametrize(("size", "records"), [(1_000, 200_000), (1_000_000, 150)])
def test_memory_stays_small_however_much_is_read(kafka, topic, produce, size, records):
    limit_mb = 120
    name = topic()
    value = b"x" * (size - 60_000 if size > 900_000 else size)
    for _ in range(10):
        produce(name, itertools.repeat(value, records // 10))

    done = subprocess.run(
        [sys.executable, "-c", PEAK, kafka.bootstrap_servers, name, str(records)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(done.stdout) < limit_mb, done.stdout


@pytest.mark.parametrize("kind", [NativeRangeReader, *in_all(KafkaRangeReader)])
def test_a_cancelled_task_leaves_no_reader_behind(spark, tmp_path, kind):
    """Of a range that nobody answers for, long before the time-out."""
    nowhere = client_settings({"bootstrap.servers": "127.0.0.1:1"}, purpose="consumer")
    wanted = OffsetRange(TopicPartition("orders", 0), 0, 1)
    pid_file = tmp_path / "pid"
    context = spark.sparkContext
    raised = []

    def wait_for_records(_):
        pid_file.write_text(str(os.getpid()))
        return sum(b.num_rows for b in kind(nowhere, timeout_ms=120_000).read(wanted))

    def run():
        context.addJobTag("waiting")
        context.setInterruptOnCancel(True)
        try:
            context.parallelize([0], 1).map(wait_for_records).collect()
        except Py4JJavaError as error:
            raised.append(str(error))

    job = InheritableThread(target=run)
    job.start()
    wait_until("the task reads", lambda: pid_file.exists() and pid_file.read_text())
    worker = Path(f"/proc/{pid_file.read_text()}")
    assert worker.exists()

    started = time.monotonic()
    context.cancelJobsWithTag("waiting")
    job.join(180)

    assert "cancelled" in raised[0]
    wait_until("the worker has ended", lambda: not worker.exists())
    assert time.monotonic() - started < 100
