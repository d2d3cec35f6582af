"""At-least-once topologies on real brokers: kills, failures, poison, moved leaders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import kafka_tx
from integration.cluster.jars import REPOSITORY
from integration.cluster.records import Produce
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.killed.spout import check, committed, source
from integration.log_ends import log_ends
from integration.topologies.spout_job import Try, Work, done, failures, topology, tries
from kafka_tx import assembly
from kafka_tx.errors import ConfigError, FencedError
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.stored import LETTERS

RECORDS = int(os.environ.get("KAFKA_TX_SPOUT_RECORDS") or 200_000)
"""Of each test that kills."""
PARTITIONS = 4
FAILING = 0.01
KILLED_AT = (0.2, 0.4)
"""Shares of the records. Each time offsets above what is stored are done already: the
simulator (``tests/properties/simulated_spout.py``) does so at every step."""
WITHIN_S = 300 + RECORDS // 500


class Job:
    """The job as a process tree of its own."""

    def __init__(self, place: Path, **given: object) -> None:
        self.place = place
        self.given = {
            "failing": FAILING,
            "chunk": max(100, RECORDS // 40),
            "within_s": WITHIN_S,
            **given,
        }

    def start(self) -> None:
        with (self.place / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "integration.topologies.spout_job"),
                    *("--work", str(self.place)),
                    *("--given", json.dumps(self.given)),
                ],
                cwd=REPOSITORY,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            )

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_for_share(self, share: float) -> None:
        self.wait_for(lambda: len(done(self.place)) >= RECORDS * share)

    def wait_for(self, sign: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S + 60
        began = time.monotonic()
        while not sign():
            looked_s = time.monotonic() - began
            if self.process.poll() is not None or time.monotonic() > deadline:
                if sign():
                    return
                log = (self.place / "log").read_text(errors="replace")[-6000:]
                pytest.fail(f"the job did not come that far:\n{log}")
            time.sleep(max(0.05, 2 * looked_s))
            began = time.monotonic()


def stores(kind: str, request: pytest.FixtureRequest, work: Path) -> dict[str, str]:
    """Offsets of a cluster in ZooKeeper mode are kept there, and looked for there."""
    if kind == "kafka_pair":
        return {"store": f"sqlite:///{work}/offsets.db"}
    hosts = request.getfixturevalue("zookeeper").hosts
    return {"store": f"zookeeper://{hosts}/spouts", "zookeeper": hosts}


@pytest.mark.all
@pytest.mark.timeout(3 * WITHIN_S + 300)
@pytest.mark.parametrize("kind", ["kafka_pair", "kafka_zk"])
def test_whatever_is_killed_every_record_is_completed_and_all_is_committed(
    kind, request, tmp_path
):
    cluster = request.getfixturevalue(kind)
    servers, topic = cluster.bootstrap_servers, f"spout-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, PARTITIONS, replication=2)
    places = Produce(servers)(topic, (f"v{n}" for n in range(RECORDS)))
    kept = stores(kind, request, tmp_path)
    job = Job(tmp_path, topic=topic, servers=servers, **kept)

    for share in KILLED_AT:
        job.start()
        job.wait_for_share(share)
        job.kill()
    job.start()
    job.wait_for_share(0.5)
    cluster.kill(1)
    time.sleep(3)
    cluster.restart(1)
    job.wait_for((tmp_path / "finished").exists)
    job.process.wait()

    check(tmp_path, servers, topic, kept["store"], places)
    again = len([t for t in tries(tmp_path) if t.word == "done"]) - RECORDS
    print(f"{RECORDS} records, {again} done again")


def test_poison_holds_back_nothing_but_the_commit(
    kafka, topic, produce, spark, tmp_path
):
    count, poison, first_ms = 300, (0, 5), 200
    name = topic(2)
    for partition in range(2):
        produce(name, [f"v{n}" for n in range(count)], partition=partition)
    store = f"sqlite:///{tmp_path}/offsets.db"
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=name,
        scheme=kafka_tx.MetadataScheme(),
        state_update_interval_ms=200,
        retry_initial_delay_ms=first_ms,
        retry_delay_multiplier=2.0,
        retry_delay_max_ms=1_000,
    )
    built = topology(config, Work(str(tmp_path), poison=(poison,)))
    everything = {(p, o) for p in range(2) for o in range(count)}

    def stored():
        return committed(store, "spout-job", kafka.bootstrap_servers, name, 2)

    handle = built.start(spark, {"tx.store": store, "tx.chunkRecords": 100})
    try:
        wait_until("the others", lambda: done(tmp_path) == everything - {poison})
        wait_until("four tries", lambda: failures(tmp_path)[poison] >= 4)
        wait_until("the commit", lambda: stored() == {0: poison[1], 1: count})
        wait_until("the answers", lambda: handle.status.pending == 1)
        (tmp_path / "healed").touch()
        assert handle.process_all_available(180)
        assert stored() == {0: count, 1: count}
    finally:
        handle.stop()

    assert_back_off([t for t in tries(tmp_path) if (t.partition, t.offset) == poison])
    others = [t for t in tries(tmp_path) if (t.partition, t.offset) != poison]
    assert len(others) == 2 * count - 1, "only what failed is tried again"


def assert_back_off(of_one: list[Try]) -> None:
    pauses = [b.at_ms - a.at_ms for a, b in pairwise(of_one)]
    for n, pause_ms in enumerate(pauses):
        assert pause_ms >= min(200 * 2**n, 1_000), pauses


def test_a_dead_letter_topic_that_does_not_exist_is_found_at_the_start(
    kafka, topic, spark, tmp_path
):
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=topic(1),
        dead_letter_topic="nobody-made-it",
    )
    made = topology(config, Work(str(tmp_path)))

    with pytest.raises(
        ConfigError, match="'nobody-made-it'; legal: a topic that exists"
    ):
        made.start(spark, {"tx.store": f"sqlite:///{tmp_path}/offsets.db"})


def test_a_record_out_of_tries_becomes_a_dead_letter(
    kafka, topic, produce, spark, tmp_path
):
    name, dead = topic(1), topic(1)
    produce(name, [f"v{n}" for n in range(20)])
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=name,
        scheme=kafka_tx.MetadataScheme(),
        store="kafka:",
        id=f"{name}-group",
        retry_limit=2,
        dead_letter_topic=dead,
    )
    work = Work(str(tmp_path), poison=((0, 7), (0, 8)))
    handle = topology(config, work).start(spark)
    try:
        assert handle.process_all_available(180)
        assert handle.status.dead_letters == 2
    finally:
        handle.stop()

    assert failures(tmp_path) == {(0, 7): 3, (0, 8): 3}
    servers = kafka.bootstrap_servers
    assert committed("kafka:", f"{name}-group", servers, name, 1) == {0: 20}
    about = {"format": str(LETTERS.number), "topic": name, "partition": "0"}
    assert dead_letters(kafka.bootstrap_servers, dead) == [
        (f"v{n}", {**about, "offset": str(n), "attempts": "3"}) for n in (7, 8)
    ]


@pytest.mark.all
def test_a_record_reaches_its_limit_though_the_job_is_started_anew(
    kafka, topic, produce, spark, tmp_path
):
    name, dead = topic(1), topic(1)
    produce(name, [f"v{n}" for n in range(20)])
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=name,
        scheme=kafka_tx.MetadataScheme(),
        store="kafka:",
        id=f"{name}-group",
        state_update_interval_ms=100,
        retry_limit=2,
        retry_initial_delay_ms=60_000,
        dead_letter_topic=dead,
    )
    built = topology(config, Work(str(tmp_path), poison=((0, 7),)))
    for start in range(1, 4):
        handle = built.start(spark)
        try:
            wait_until_it_failed(handle, tmp_path, start)
        finally:
            handle.stop()

    assert failures(tmp_path) == {(0, 7): 3}
    wait_until("the letter", lambda: log_ends(kafka.bootstrap_servers, dead, 1)[0] == 1)
    ((value, about),) = dead_letters(kafka.bootstrap_servers, dead)
    assert (value, about["attempts"]) == ("v7", "3")


def wait_until_it_failed(handle, place: Path, times: int) -> None:
    wait_until("one more try", lambda: failures(place)[0, 7] >= times)
    wait_until("its answer", lambda: handle.status.failed == 1)


def dead_letters(servers: str, topic: str):
    config = replace(source(servers, topic), include_headers=True)
    end = log_ends(servers, topic)[0]
    wanted = OffsetRange(TopicPartition(topic, 0), 0, end)
    rows = []
    for batch in assembly.range_reader(config).read(wanted):
        for row in batch.to_pylist():
            about = {
                h["key"].removeprefix("kafka_tx."): h["value"].decode()
                for h in row["headers"]
            }
            assert about.pop("error") == "work: poison"
            rows.append((row["value"].decode(), about))
    return rows


@pytest.mark.all
def test_markers_and_aborted_records_are_no_completed_records(
    kafka, topic, produce, spark, tmp_path
):
    name = topic(1)
    for n in range(3):
        produce.committed(name, [f"v{n}{m}" for m in range(10)])
        produce.aborted(name, ["never"] * 7)
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=name,
        scheme=kafka_tx.MetadataScheme(),
        kafka={"isolation.level": "read_committed"},
    )
    store = f"sqlite:///{tmp_path}/offsets.db"
    built = topology(config, Work(str(tmp_path)))
    handle = built.start(spark, {"tx.store": store, "tx.chunkRecords": 8})
    try:
        assert handle.process_all_available(180)
        status = handle.status
    finally:
        handle.stop()

    end = 3 * (10 + 1 + 7 + 1)
    servers = kafka.bootstrap_servers
    assert committed(store, "spout-job", servers, name, 1) == {0: end}
    assert len(done(tmp_path)) == len(tries(tmp_path)) == 30
    assert (status.emitted, status.completed, status.lag) == (end, 30, 0)


def test_of_two_topologies_with_the_same_id_the_later_one_goes_on(
    kafka, topic, produce, spark, tmp_path
):
    name, store = topic(1), f"sqlite:///{tmp_path}/offsets.db"
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=name,
        scheme=kafka_tx.MetadataScheme(),
        state_update_interval_ms=200,
    )
    built = topology(config, Work(str(tmp_path)))
    produce(name, ["a"] * 10)
    former = built.start(spark, {"tx.store": store})
    assert former.process_all_available(180)
    later = built.start(spark, {"tx.store": store})
    try:
        produce(name, ["b"] * 10)

        with pytest.raises(FencedError, match="another owner took over"):
            former.awaitTermination(PATIENT_S)
        assert later.process_all_available(180)
    finally:
        later.stop()

    stored = committed(store, "spout-job", kafka.bootstrap_servers, name, 1)
    assert stored == {0: 20}
    assert len(done(tmp_path)) == 20
