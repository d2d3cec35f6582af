"""The Kafka bolt on a real broker, in topologies that Spark runs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress

import pytest

import kafka_tx
from integration.cluster.jars import REPOSITORY
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.consuming import committed_records
from integration.reading import reader
from integration.sinks import kafka_bolt_job
from integration.sizes import in_all, size
from integration.topologies.tally import ending
from kafka_tx.errors import ComponentError
from kafka_tx.model import Earliest

RECORDS, PARTITIONS = size(1_200, 3_000), 3
BATCHES = size(8, 20)


class Unsteady(kafka_tx.Committer, kafka_tx.BatchBolt):
    """Fails some attempts, after what commits before it has committed."""

    def __init__(self, failing):
        self.failing = failing

    def prepare(self, context, collector):
        self.attempt = context.attempt

    def execute_arrow(self, batch):
        pass

    def finish_batch(self):
        if random.Random(str(self.attempt)).random() < self.failing:
            raise kafka_tx.FailedException("after the bolt has written")


@pytest.fixture
def source(topic, produce):
    name = topic(PARTITIONS)
    produce(name, [f"v{n}" for n in range(RECORDS)])
    return name


@pytest.fixture
def values(kafka):
    def read(topic):
        found = committed_records(kafka.bootstrap_servers, topic)
        return Counter(record.text for record in found)

    return read


def batches(kafka, source, bolt, tasks, failing=0.0):
    """Reads, writes with the bolt, and then perhaps fails."""
    spout = kafka_tx.TransactionalKafkaSpout(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": source,
            "maxOffsetsPerTrigger": str(RECORDS // BATCHES),
        },
        scheme=kafka_tx.KeyValueScheme(),
    )
    builder = kafka_tx.TransactionalTopologyBuilder("copy", "spout", spout, 2)
    builder.set_bolt("out", bolt, tasks).shuffle_grouping("spout")
    unsteady = builder.set_bolt("unsteady", Unsteady(failing))
    unsteady.global_grouping("spout")
    return builder.build()


def finish(handle):
    try:
        assert handle.process_all_available(120), handle.status
    finally:
        if handle.isActive:
            handle.stop()


@pytest.mark.parametrize("tasks", [pytest.param(1, marks=pytest.mark.all), 2])
def test_batches_that_are_replayed_are_written_once(
    spark, kafka, topic, source, values, tmp_path, tasks
):
    target = topic(PARTITIONS)
    servers = kafka.bootstrap_servers
    bolt = kafka_tx.KafkaBolt(
        {"kafka.bootstrap.servers": servers, "topic": target, "tx.id": target}
    )
    handle = batches(kafka, source, bolt, tasks, failing=0.3).start(
        spark, {"tx.store": f"sqlite:///{tmp_path}/state.db", "tx.retryMs": 50}
    )

    finish(handle)

    assert handle.status.replays > 0
    assert values(target) == Counter({f"v{n}": 1 for n in range(RECORDS)})


@pytest.mark.parametrize("delivery", [*in_all("async", "sync"), "forget"])
def test_batches_are_written_at_least_once_without_an_id(
    spark, kafka, topic, source, values, tmp_path, delivery
):
    target = topic(PARTITIONS)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": target}
    bolt = kafka_tx.KafkaBolt(options, delivery=delivery)
    handle = batches(kafka, source, bolt, 2).start(
        spark, {"tx.store": f"sqlite:///{tmp_path}/state.db"}
    )

    finish(handle)

    everything = {f"v{n}" for n in range(RECORDS)}
    if delivery == "forget":  # some may still be on their way
        wait_until("all are there", lambda: set(values(target)) == everything)
    assert set(values(target)) == everything


def test_an_unknown_topic_stops_the_topology_with_its_name(
    spark, kafka, source, tmp_path
):
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "nowhere"}
    handle = batches(kafka, source, kafka_tx.KafkaBolt(options), 2).start(
        spark, {"tx.store": f"sqlite:///{tmp_path}/state.db"}
    )

    with (
        ending(handle),
        pytest.raises(ComponentError, match=r"topic 'nowhere' with key .* bytes"),
    ):
        handle.awaitTermination(PATIENT_S)


def test_a_record_that_cannot_be_written_becomes_a_dead_letter_that_says_why(
    spark, kafka, topic, produce, values, tmp_path
):
    origin, dead = topic(2), topic(1)
    target = topic(PARTITIONS, config={"max.message.bytes": "2000"})
    produce(origin, ["x" * 9000 if n == 70 else f"v{n}" for n in range(200)])
    servers = kafka.bootstrap_servers
    spout = kafka_tx.KafkaSpout(
        kafka_tx.SpoutConfig(
            hosts=kafka_tx.BrokerHosts(servers),
            topic=origin,
            scheme=kafka_tx.KeyValueScheme(),
            store=f"sqlite:///{tmp_path}/offsets.db",
            retry_limit=1,
            retry_initial_delay_ms=10,
            dead_letter_topic=dead,
            start_offset_time=Earliest(),
        )
    )
    builder = kafka_tx.TopologyBuilder("copy")
    builder.set_spout("spout", spout, 2)
    options = {"kafka.bootstrap.servers": servers, "topic": target}
    out = builder.set_bolt("out", kafka_tx.KafkaBolt(options), 2)
    out.shuffle_grouping("spout")
    handle = builder.build().start(spark, {"tx.chunkRecords": 50})

    finish(handle)

    assert set(values(target)) == {f"v{n}" for n in range(200) if n != 70}
    dead_letters = reader(
        spark, servers, streaming=False, subscribe=dead, includeHeaders="true"
    ).load()
    (dead_letter,) = dead_letters.collect()
    headers = {h.key: bytes(h.value).decode() for h in dead_letter.headers}
    assert bytes(dead_letter.value) == b"x" * 9000
    assert f"topic '{target}' with key null and 9000 bytes" in headers["kafka_tx.error"]


def run_job(work, point, **given):
    """Run it until it waits at the point, and kill it there; else until it is done."""
    reached, finished = work / "reached", work / "finished"
    reached.unlink(missing_ok=True)
    given |= {"work": str(work), "point": point}
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    with (work / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "integration.sinks.kafka_bolt_job", *words],
            cwd=REPOSITORY,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        )
    try:
        wait_until(
            f"it is at {point}",
            lambda: (reached if point != "none" else finished).exists(),
            timeout_s=240,
            complain=lambda: (
                (work / "log").read_text()[-4000:] if process.poll() else None
            ),
        )
    finally:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.all
def test_a_driver_that_is_killed_between_sending_and_committing_repeats_nothing(
    kafka, topic, produce, values, tmp_path
):
    source, target = topic(2), topic(1)
    count = kafka_bolt_job.RECORDS
    produce(source, [f"v{n}" for n in range(count)])
    given = {
        "servers": kafka.bootstrap_servers,
        "source": source,
        "target": target,
    }

    for point in ("sent", "written", "sent"):
        run_job(tmp_path, point, **given)
    run_job(tmp_path, "none", **given)

    assert values(target) == Counter({f"v{n}": 1 for n in range(count)})
