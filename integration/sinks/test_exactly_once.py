"""Kafka to Spark to Kafka: output equals input where the driver dies.

In ``make test-all``: whatever dies, and wherever it dies.
``KAFKA_TX_EXACTLY_ONCE_RECORDS`` sets how many records are copied.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import uuid
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql import SparkSession

from integration.cluster.child import Child
from integration.cluster.jars import REPOSITORY
from integration.cluster.records import Produce, Record
from integration.cluster.topics import ask
from integration.cluster.waiting import wait_until
from integration.sinks.exactly_once_job import PAUSES, POINTS, Pauses, arguments, run
from integration.sizes import size

RECORDS = size(1_800, 100_000, "KAFKA_TX_EXACTLY_ONCE_RECORDS")
BATCHES = size(3, 30)
PARTITIONS, KEYS = 4, 97
WITHIN_S = 300 + RECORDS // 1000
STARTS_AT_MOST = 30


class Reader(threading.Thread):
    """Reads a topic's committed records all the time."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "all-the-time",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        starts = [TopicPartition(topic, n, 0) for n in range(PARTITIONS)]
        self._consumer.assign(starts)
        self._is_over = threading.Event()
        self.seen: list[tuple[int, int, bytes, int]] = []
        """Partition, offset, key, value, in the order they came."""

    def run(self) -> None:
        while not self._is_over.is_set():
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is None:
                    self.seen.append(seen_of(message))
        self._consumer.close()

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def seen_of(message) -> tuple[int, int, bytes, int]:
    return (
        message.partition(),
        message.offset(),
        message.key(),
        int(message.value()),
    )


class Job:
    """The copying job as a process tree of its own; started again when it has ended."""

    def __init__(self, work: Path, python: str, **given: object) -> None:
        self.work, self._python = work, python
        self._given = [w for name, value in given.items() for w in (f"--{name}", value)]
        self._child: Child | None = None
        self._at: dict[str, int] = {}
        self._starts = 0

    def start(self, at: dict[str, int] | None = None) -> None:
        self._at = {} if at is None else at
        for path in (*self.work.glob("reached-*"), *self.work.glob("go-*")):
            path.unlink()
        self._run()

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def finish(self, spark: SparkSession) -> None:
        """Run to its end in a driver that nothing kills."""
        words = ["--work", str(self.work), *map(str, self._given)]
        run(spark, arguments(words), Pauses(self.work, {}))

    @property
    def is_finished(self) -> bool:
        return (self.work / "finished").exists()

    def wait_at(self, point: str) -> int:
        """Wait until it has reached a point; the txid it has there."""
        reached = self.work / f"reached-{point}"
        self.wait_until(f"it waits at {point}", reached.exists)
        return int(reached.read_text())

    def go_on(self, point: str) -> None:
        (self.work / f"go-{point}").touch()

    def wait_until(self, what: str, claim) -> None:
        def claimed() -> bool:
            if claim():
                return True
            assert self._child is not None
            if not self._child.is_running and not self.is_finished:
                self._run()  # as an operator would; Spark tries a task once here
            return False

        wait_until(what, claimed, timeout_s=WITHIN_S, complain=self._complaint)

    def _run(self) -> None:
        self._starts += 1
        pauses = json.dumps({"place": str(self.work), "at": self._at})
        self._child = Child(
            [
                *(sys.executable, "-m", "integration.sinks.exactly_once_job"),
                *map(str, ("--work", self.work, *self._given)),
            ],
            self.work / "log",
            directory=REPOSITORY,
            environment={PAUSES: pauses, "PYSPARK_PYTHON": self._python},
        )

    def _complaint(self) -> str | None:
        if self._starts <= STARTS_AT_MOST and not self.is_finished:
            return None
        assert self._child is not None
        return f"started {self._starts} times, finished: {self.is_finished}\n" + (
            self._child.tail()
        )


def break_a_broker(cluster, topic, meanwhile) -> None:
    """Kill the leader of a partition, let something happen, and bring it back."""
    broker = cluster.leader(topic, random.randrange(PARTITIONS)) or 1
    cluster.kill(broker)
    try:
        meanwhile()
    finally:
        cluster.restart(broker)
    wait_until("all partitions are replicated again", lambda: replicated(cluster))


def replicated(cluster) -> bool:
    known = ask([cluster.bootstrap_servers]).list_topics(timeout=10)
    return all(
        len(part.isrs) == len(part.replicas) and part.leader > 0
        for topic in known.topics.values()
        for part in topic.partitions.values()
    )


@contextmanager
def copying(cluster, work, python, *, replication):
    """Source, target, a reader of the target, and a job that copies."""
    source, target = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("from", "to"))
    for name in (source, target):
        cluster.create_topic(name, PARTITIONS, replication=replication)
    servers = cluster.bootstrap_servers
    records = [Record(str(n), key=f"k{n % KEYS}") for n in range(RECORDS)]
    Produce(servers)(source, records)
    reader = Reader(servers, target)
    reader.start()
    job = Job(
        work,
        python,
        servers=servers,
        source=source,
        target=target,
        batch=RECORDS // BATCHES,
    )
    try:
        yield target, reader, job
    finally:
        job.kill()
        reader.stop()


@pytest.fixture
def copied(kafka_pair, tmp_path, python):
    """Of two brokers, which may die."""
    with copying(kafka_pair, tmp_path, python, replication=2) as made:
        yield made


@pytest.fixture
def copied_by_one_broker(kafka, tmp_path, python):
    with copying(kafka, tmp_path, python, replication=1) as made:
        yield made


DIES_AT = ("after-commit", "mid-transaction of part 1")
"""One part is committed then, and the other one open."""


def die_and_finish(job, spark) -> None:
    for point in DIES_AT:
        job.wait_at(point)
    job.kill()
    job.finish(spark)


@pytest.mark.timeout(2 * WITHIN_S + 300)
def test_each_record_is_written_once_where_the_driver_dies(
    spark, kafka, copied_by_one_broker
):
    """The next driver finds one part committed, and the other one open.

    Where both are committed and Spark does not know: ``test_sink``. Where a commit's
    answer is lost: ``test_sink_silence``. All points: the simulation in
    ``tests/properties/simulated_sink.py``.
    """
    target, reader, job = copied_by_one_broker

    job.start(dict.fromkeys(DIES_AT, 2))
    die_and_finish(job, spark)

    wait_until("all is read", lambda: len(reader.seen) >= RECORDS)
    check(reader.seen, everything(kafka.bootstrap_servers, target))


@pytest.mark.all
@pytest.mark.timeout(2 * WITHIN_S + 300)
def test_each_record_is_written_once_where_a_broker_and_the_driver_die(
    spark, kafka_pair, copied
):
    """A broker dies with an open transaction and its answer; then the driver dies."""
    target, reader, job = copied

    job.start({"before-commit": 2, **dict.fromkeys(DIES_AT, 3)})
    job.wait_at("before-commit")
    break_a_broker(kafka_pair, target, lambda: job.go_on("before-commit"))
    die_and_finish(job, spark)

    wait_until("all is read", lambda: len(reader.seen) >= RECORDS)
    check(reader.seen, everything(kafka_pair.bootstrap_servers, target))


@pytest.mark.all
@pytest.mark.timeout(4 * WITHIN_S + 600)
def test_each_record_is_written_once_whatever_dies(kafka_pair, copied):
    target, reader, job = copied
    chance = random.Random(RECORDS)
    txid = 1

    for point in POINTS:
        job.start({point: txid + 1})
        txid = job.wait_at(point)
        job.kill()

    job.start({point: txid + n for n, point in enumerate(POINTS, start=2)})
    for point in POINTS:
        job.wait_at(point)
        break_a_broker(kafka_pair, target, lambda at=point: job.go_on(at))

    for victim in ("driver", "broker", "driver"):
        more = len(reader.seen) + chance.randrange(RECORDS // 20)
        job.wait_until(
            "more is written",
            lambda more=more: len(reader.seen) >= more or job.is_finished,
        )
        if victim == "driver":
            job.kill()
            job.start()
        else:
            break_a_broker(kafka_pair, target, lambda: None)

    job.wait_until("the job is finished", lambda: job.is_finished)
    wait_until("all is read", lambda: len(reader.seen) >= RECORDS)
    check(reader.seen, everything(kafka_pair.bootstrap_servers, target))


def check(seen, log) -> None:
    """What was read is the input, in order; and something else was written too."""
    values = [value for *_, value in seen]
    assert len(values) == RECORDS
    assert sorted(values) == list(range(RECORDS))
    by_key = defaultdict(list)
    for partition, offset, key, value in seen:
        by_key[key].append((partition, offset, value))
    for key, places in by_key.items():
        assert places == sorted(places), f"the order of {key}"
        assert len({partition for partition, *_ in places}) == 1
        assert [value for *_, value in places] == sorted(value for *_, value in places)
    assert len(log) > RECORDS, "no attempt was aborted: nothing was proved"


def everything(servers: str, topic: str) -> list[int]:
    """Offsets of all records of the log, also of aborted transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "everything",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    found: list[int] = []
    unfinished = set(range(PARTITIONS))
    deadline = time.monotonic() + 60
    while unfinished:
        assert time.monotonic() < deadline, unfinished
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                found.append(seen_of(message)[1])
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise KafkaException(error)
    consumer.close()
    return found
