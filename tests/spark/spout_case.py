"""A topology over a log in memory, in this process, and what it can be told to do."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_tx.assembly import SystemClock
from kafka_tx.errors import FailedException, FetchError
from kafka_tx.metrics.endpoint import Guest
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import OffsetRange, TopicPartition, Topics
from kafka_tx.offsets.coordinators import RefreshingCoordinator
from kafka_tx.offsets.discovery import Discovery
from kafka_tx.offsets.start import StartRules
from kafka_tx.offsets.unfinished import PartitionRules
from kafka_tx.options.topology import RunnerLimits
from kafka_tx.planning.deleted_topics import DeletedTopics
from kafka_tx.running.at_least_once.dead_letters import Buried
from kafka_tx.running.at_least_once.offset_keeper import OffsetKeeper
from kafka_tx.running.at_least_once.poller import PollerParts
from kafka_tx.running.at_least_once.reading import KafkaRecords
from kafka_tx.running.at_least_once.spout import SpoutManagers
from kafka_tx.spark.at_least_once.runner import AtLeastOnceRunner
from kafka_tx.spark.at_least_once.topology import (
    AtLeastOnceTopologyHandle,
    TopologyBuilder,
)
from kafka_tx.spark.versions.job_failures import JobLostError
from kafka_tx.testing import MemoryLog
from kafka_tx.topology.declare.bolts import BasicBolt, RichBolt
from kafka_tx.topology.rows.schemes import MetadataScheme
from kafka_tx.transactions.ownership.memory import MemoryOffsetStore
from tests.local_engine import LocalEngine

WITHIN_S = 60
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Engine:
    """Runs jobs in the chunks' threads; loses those that hold a deadly record."""

    def __init__(self):
        self._local = LocalEngine()
        self._mine = threading.local()
        self.cancelled = set()
        self.deadly = set()
        self.sizes = []
        self.timeout_s = 0.0  # of rows; 0: nobody tells
        self.is_closed = False

    def enter(self, attempt):
        self._mine.attempt = attempt

    def cancel(self, attempt):
        self.cancelled.add(attempt)

    def listen(self, timeout_ms, hangs, moves):
        self.tell, self.moves = hangs, moves
        return self

    def watch(self, attempt):
        return Watching(self, attempt) if self.timeout_s else None

    def close(self):
        self.is_closed = True

    def run_tasks(self, job):
        ranges = [
            numbered.range
            for source in job.reads.values()
            for numbered in source.ranges
        ]
        self.sizes.append(sum(map(len, ranges)))
        held = {(r.topic_partition, o) for r in ranges for o in range(r.start, r.end)}
        if held & self.deadly:
            raise JobLostError("the worker died")
        return self._local.run_tasks(job)

    def run_frames(self, job):
        raise AssertionError(job)


class Watching:
    """Tells of a row that is not given back, once."""

    def __init__(self, engine, attempt):
        self._engine, self._attempt = engine, attempt

    @contextmanager
    def __call__(self, task):
        has_ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=(task, has_ended))
        thread.start()
        try:
            yield
        finally:
            has_ended.set()
            thread.join()

    def _watch(self, task, has_ended):
        place = task.place
        while not has_ended.wait(self._engine.timeout_s):
            before, place = place, task.place
            if place is not None and place == before:
                self._engine.tell(self._attempt, task.component, task.roots_at_work())


class Reader:
    """A MemoryLog that cannot be read at times; counts fetches."""

    def __init__(self, log):
        self.log, self.failures = log, 0
        self.fetches: Counter[OffsetRange] = Counter()

    def read(self, wanted):
        self.fetches[wanted] += 1
        if self.failures:
            self.failures -= 1
            raise FetchError("the broker is silent")
        yield from self.log.read(wanted)


class Letters:
    """Keeps letters; fails as told."""

    def __init__(self):
        self.written, self.errors = [], []

    def write(self, dead_letter, answer):
        records = dead_letter.records
        if self.errors:
            answer(records, self.errors.pop(0))
        else:
            self.written.append(dead_letter)
            answer(records, Buried(((records.start, records.end),)))

    def close(self, timeout_s, *, finish=True):
        return True


class Offsets(MemoryOffsetStore):
    """Fails as told."""

    def __init__(self):
        super().__init__()
        self.errors = []

    def store(self, offsets):
        if self.errors:
            raise self.errors.pop(0)
        super().store(offsets)

    def at(self, *partitions):
        return [o.offset for o in self.load(partitions).values()]


class Tried:
    """What bolts did: they run in this process."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.done: Counter[tuple[TopicPartition, int]] = Counter()
        self.failed: Counter[tuple[TopicPartition, int]] = Counter()
        self.bad: dict[tuple[TopicPartition, int], int] = {}


tried = Tried()


class Work(BasicBolt):
    def execute(self, row, collector):
        at = (TopicPartition(row.topic, row.partition), row.offset)
        if tried.bad.get(at, 0) > tried.failed[at]:
            tried.failed[at] += 1
            raise FailedException("bad luck")
        tried.done[at] += 1


class Slow(Work):
    """Takes its time, and very long for bad records."""

    def execute(self, row, collector):
        at = (TopicPartition(row.topic, row.partition), row.offset)
        is_bad = tried.bad.get(at, 0) > tried.failed[at]
        time.sleep(1.0 if is_bad else 0.004)
        super().execute(row, collector)


class Forgetful(RichBolt):
    """Never acks the records it is told to forget."""

    def prepare(self, context, collector):
        self.collector = collector

    def execute(self, row):
        at = (TopicPartition(row.topic, row.partition), row.offset)
        if tried.bad.get(at, 0) > tried.failed[at]:
            tried.failed[at] += 1
            return
        tried.done[at] += 1
        self.collector.ack(row)


class Broken(BasicBolt):
    def prepare(self, context):
        raise ValueError("no such setting")

    def execute(self, row, collector):
        raise AssertionError


class Case:
    """A topology over a log in memory, and everything it is made of."""

    def __init__(self):
        self.log = MemoryLog({"t": 2})
        self.reader, self.store = Reader(self.log), Offsets()
        self.engine, self.dead_letters = Engine(), None
        self.rules, self.bolt, self.then = {}, Work, None
        self.is_on_driver = False
        self.spout_id = "job"
        self.refresh_ms = 50
        self.scheme = MetadataScheme()
        self.limits = RunnerLimits(metrics_ms=10)
        self.registry = MetricsRegistry()
        self.notes = None
        self.handles = []

    def fill(self, *counts):
        for partition, count in zip((P0, P1), counts, strict=False):
            self.log.append(partition, *(b"v" for _ in range(count)))
        return {
            (partition, offset)
            for partition, count in zip((P0, P1), counts, strict=False)
            for offset in range(count)
        }

    def start(self, *beside):
        builder = TopologyBuilder("job")
        builder.set_spout("spout", Spout(self), 2)
        work = builder.set_bolt("work", self.bolt, 2).shuffle_grouping("spout")
        if self.is_on_driver:
            work.on_driver()
        if self.then is not None:
            builder.set_bolt("then", self.then, 2).fields_grouping("work", ["n"])
        plan = builder.build().plan
        clock = SystemClock()
        keeper = OffsetKeeper(self.spout_id, self.store, self.registry, clock)
        managers = SpoutManagers(
            PartitionRules(**self.rules),
            StartRules(out_of_range=PartitionRules(**self.rules).out_of_range),
            self.log,
            keeper,
            self.registry,
        )
        coordinator = RefreshingCoordinator(
            Discovery(lambda wanted: self.log.topics(wanted), Topics(("t",))),
            0,
            1,
            refresh_interval_ms=self.refresh_ms,
            clock=clock,
            deleted=DeletedTopics(self.log, clock).now,
            managers=managers,
        )
        coordinator.my_managed_partitions()
        poller = PollerParts(
            "spout",
            coordinator,
            self.log,
            keeper,
            self.reader,
            self.scheme,
            self.dead_letters,
            50,
            self.registry,
            clock,
        )
        runner = AtLeastOnceRunner(
            plan,
            self.engine,
            {"spout": poller},
            self.limits,
            self.registry,
            clock,
            self.notes,
            listen=self.engine.listen,
        )
        handle = AtLeastOnceTopologyHandle(runner, Guest(self.registry))
        self.handles.append(handle)
        runner.start(*beside)
        return handle

    def metric(self, name, **labels):
        found = self.registry.samples()[f"kafka_tx_{name}"]
        wanted = set(labels.values())
        return sum(v[-1] for key, v in found.items() if wanted <= set(key))


class Spout:
    def __init__(self, case):
        self._case = case

    @property
    def fields(self):
        return self._case.scheme.fields

    def empty_chunk(self):
        return KafkaRecords((), self._case.log, self._case.scheme)


@contextmanager
def a_case() -> Iterator[Case]:
    """A case that is ended; its bolts have tried nothing yet."""
    tried.clear()
    made = Case()
    yield made
    for handle in made.handles:
        if handle.isActive:
            handle.stop(finish=False, timeout_s=WITHIN_S)


def until(claim):
    deadline = time.monotonic() + WITHIN_S
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.01)
