"""Brokers that have moved records to a tier, and brokers whose clock is ahead."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.bounded import read_out
from integration.cluster.jars import REPOSITORY, jar_paths
from integration.cluster.records import Produce, Record
from integration.cluster.running import running
from integration.cluster.versions import TIERED_STORAGE_JARS
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.reading import Run
from integration.source.test_reader import settings
from integration.topologies.test_topology_waits import (
    Nothing,
    at_least_once,
    in_transactions,
    records_of,
)
from kafka_tx.kafka.reader import KafkaRangeReader
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.native.reader import NativeRangeReader

NAME = "tiered"
OLD, NEW = 12, 3
AHEAD_S = 10 * 86_400


@pytest.fixture(scope="module")
def tiered(servers, tmp_path_factory):
    """A broker whose tier is a directory, with a topic of which it has the end only."""
    if servers.name != "processes":
        pytest.skip("the tier's jar and the log are files of this machine")
    tier = tmp_path_factory.mktemp("tier")
    (jar,) = jar_paths(TIERED_STORAGE_JARS)
    plugin = "remote.log.storage.manager.class"
    tier_class = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
    given = {
        "remote.log.storage.system.enable": "true",
        f"{plugin}.name": tier_class,
        f"{plugin}.path": str(jar),
        "rsm.config.dir": str(tier),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "100",
    }
    topic = {
        "remote.storage.enable": "true",
        "local.retention.ms": "1",
        "segment.ms": "10",
        "file.delete.delay.ms": "0",
    }
    with running(servers.kafka(settings=given)) as cluster:
        cluster.create_topic(NAME, 1, config=topic)
        fill(Produce(cluster.bootstrap_servers))
        log = cluster.nodes[1].place / "data" / f"{NAME}-0"
        wait_until("old records are in the tier only", lambda: begins_at(log) >= OLD)
        yield cluster


@pytest.fixture(scope="module")
def ahead(servers, tmp_path_factory):
    """A broker that lives ten days ahead, with a topic that has its times."""
    if servers.name != "processes" or not shutil.which("cc"):
        pytest.skip("a process of this machine is given another clock")
    library = tmp_path_factory.mktemp("clock") / "ahead.so"
    source = REPOSITORY / "integration/cluster/clock_ahead.c"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True
    )
    with pytest.MonkeyPatch.context() as environment, ExitStack() as ending:
        environment.setenv("LD_PRELOAD", str(library))
        environment.setenv("AHEAD_S", str(AHEAD_S))
        cluster = ending.enter_context(running(servers.kafka()))
        environment.undo()
        cluster.create_topic(
            NAME, 1, config={"message.timestamp.type": "LogAppendTime"}
        )
        fill(Produce(cluster.bootstrap_servers))
        (first,) = rows(cluster, 0, 1)
        assert first["timestamp"].timestamp() > time.time() + AHEAD_S - 3_600
        yield cluster


@pytest.fixture(params=["tiered", "ahead"])
def cluster(request):
    return request.getfixturevalue(request.param)


def fill(produce: Produce) -> None:
    """Each record in a segment of its own: time passes between them."""
    began_ms = int(time.time() * 1000) - 1_000_000
    for number in range(OLD + NEW):
        produce(NAME, [Record(f"v{number}", timestamp_ms=began_ms + 1_000 * number)])


def begins_at(log: Path) -> int:
    """The first offset that the broker has on its own disk."""
    return min(int(segment.stem) for segment in log.glob("*.log"))


def rows(cluster, start: int, end: int, reader=KafkaRangeReader) -> list[Any]:
    wanted = OffsetRange(TopicPartition(NAME, 0), start, end)
    read = reader(settings(cluster, "consumer"), timeout_ms=20_000).read(wanted)
    return [row for batch in read for row in batch.to_pylist()]


def values(numbers: range) -> list[bytes]:
    return [f"v{number}".encode() for number in numbers]


@pytest.mark.parametrize("reader", [KafkaRangeReader, NativeRangeReader])
def test_ranges_in_the_tier_and_across_its_end_are_read(tiered, reader):
    for start, end in ((0, 4), (3, OLD), (OLD - 2, OLD + NEW), (0, OLD + NEW)):
        found = [row["value"] for row in rows(tiered, start, end, reader)]
        assert found == values(range(start, end))


@pytest.mark.all
def test_each_record_counts_once_also_in_a_batch_that_is_replayed(
    spark, cluster, tmp_path
):
    def run() -> Run:
        store = f"sqlite:///{tmp_path}/state.db"
        options = {"tx__id": tmp_path.name, "tx__store": store}
        return Run(
            spark,
            cluster.bootstrap_servers,
            subscribe=NAME,
            maxOffsetsPerTrigger=5,
            **options,
        )

    tries: list[list[bytes]] = []

    def fail(df, _):
        tries.append([bytes(row.value) for row in df.select("value").collect()])
        raise ValueError("no such customer")

    attached = kafka_tx.attach(spark)
    try:
        checkpoint = tmp_path / "c"
        failing = run()._writer.foreachBatch(fail)
        with pytest.raises(StreamingQueryException, match="no such customer"):
            read_out(failing.option("checkpointLocation", str(checkpoint)))
        assert tries == [values(range(5))]
        assert run().until_done(checkpoint) == values(range(OLD + NEW))

        def newest() -> float | None:
            name = "kafka_tx_newest_record_timestamp_seconds"
            shown = attached.registry.samples()[name]
            return next(
                (value for (id_,), (value,) in shown.items() if id_ == tmp_path.name),
                None,
            )

        wait_until("the newest record is shown", lambda: newest() is not None)
        assert (newest() or 0) <= time.time(), "a broker's future hides later records"
    finally:
        attached.close()


@pytest.mark.all
def test_both_kinds_of_topologies_process_each_record(spark, cluster, tmp_path):
    stores = [f"sqlite:///{tmp_path}/{door}.db" for door in ("each", "numbered")]
    each = at_least_once(spark, cluster, NAME, Nothing(), {"tx.store": stores[0]})
    numbered = in_transactions(
        spark, cluster, NAME, stores[1], kafka_tx.OpaqueTransactionalKafkaSpout
    )
    try:
        assert each.process_all_available(PATIENT_S)
        assert numbered.process_all_available(PATIENT_S)
        assert each.status.completed == records_of(numbered) == OLD + NEW
    finally:
        each.stop()
        numbered.stop()
