"""People around a query or topology: what they do to it, and how they mend it.

The operator does things that people do, and then what the error says, to the letter.
Whatever was acknowledged by the brokers must be in the sinks, once; or an error has
named the risk before anything was lost, and the job stands still.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from kafka_tx.model import TopicPartition, TransactionAttempt
from kafka_tx.spark.speculation import refuse_speculation
from kafka_tx.testing import ManualClock
from tests.properties.simulated_databases import Copy, Database, KafkaSinks, Table
from tests.properties.simulated_log import Brokers
from tests.properties.simulated_runs import TopologyRun
from tests.properties.simulated_streams import Checkpoint, Planners, Run, Stream

SETTLED_AFTER = 600

TOPICS = ("a", "b")

KAFKA = 2
"""Where exactly-once Kafka sinks are, beside the databases."""

_names = map(str, itertools.count(1))


class Clock(ManualClock):
    """Whoever sleeps finds that the time has passed."""

    beats: Callable[[], None] | None = None
    """What shows meanwhile that another driver lives."""

    def sleep_ms(self, duration_ms: int) -> None:
        self.advance(duration_ms)
        if self.beats is not None:
            self.beats()


@dataclass(frozen=True)
class Job:
    """How a job is set up: what a person may change between two runs.

    Attributes:
        kind: One of ``KINDS``.
        door: ``query`` or ``topology``.
        streams: What it reads; a topology has one.
        store: Which database holds its state.
        sink: Which database, or ``KAFKA``, holds what it writes, and the name there.
        is_opaque: Whether the sink takes a replay with other records.
        parts: Of each batch in a Kafka sink.
        speculates: Whether Spark may run a task twice at once.
        remembers: Whether the sink remembers Spark's batch ids, and asks for no txid.
    """

    kind: str
    door: str
    streams: tuple[Stream, ...]
    store: int
    sink: tuple[int, str]
    is_opaque: bool
    parts: int = 1
    speculates: bool = False
    remembers: bool = False

    @property
    def has_ids(self) -> bool:
        return all(stream.tx_id for stream in self.streams)


@dataclass(frozen=True)
class Backup:
    """What a careful person keeps: all that belongs together, copied while it stood."""

    job: Job
    databases: tuple[Copy, ...]
    checkpoint: Checkpoint


class World:
    """A job, all that it lives on, and what people have done to it so far."""

    is_elsewhere = False
    """Another cluster answers, and the job has not run since."""

    def __init__(self, seed: int, *, remembers: bool = False) -> None:
        chance = random.Random(seed)
        self.clock, self.brokers, self.kafka = Clock(), Brokers(), KafkaSinks()
        self.databases = (Database(), Database(), self.kafka)
        # known walks keep their jobs
        self.job = (
            _into_files(chance)
            if remembers
            else _job(chance, random.Random(f"4 more of {seed}"), self.brokers)
        )
        self.checkpoint = Checkpoint(next(_names))
        self.run: Run | TopologyRun | None = None
        self.rivals: list[tuple[Job, Run | TopologyRun]] = []
        self.followed = 0
        """Texts that were followed since the job was well."""
        self.is_hurt = False
        """A database has changed behind its back, and it has not said so yet."""
        self.undo: dict[str, Callable[[], None]] = {}
        """How a person sets back what a text may ask to be set back."""
        self.once: dict[str, str] = {}
        """Options for the next run only."""
        self.went_back: tuple[Copy, ...] | None = None
        """The copies of the time to which a store went back last."""
        self.kept_commits: set[tuple[str, int]] = set()
        """Batches whose end nobody loses: their sink is another one now."""
        self.plain: dict[tuple[str, int], list[int]] = {}
        """What was written without ``tx.id``: Spark's batches, each once."""
        self.destroyed: set[int] = set()
        """What was in a sink that somebody removed."""
        self.missing: set[int] = set()
        """What was in a sink that went back, until the job is well again."""
        self.refusal = ""
        """What the job says that stands still for good."""
        self.seen, self.chance = Counter[str](), chance
        self.sinks = {self.job.sink}
        self.forget_what_was_kept()

    @cached_property
    def folders(self) -> dict[str, dict[int, list[int]]]:
        """By output folder and Spark's batch id: records of a sink with a memory."""
        return defaultdict(dict)

    def forget_what_was_kept(self) -> None:
        """No copies of anything, no other checkpoints."""
        self.left: list[Checkpoint] = []
        self.refused: set[str] = set()
        """Names of the checkpoints that a text has turned down."""
        self.is_older_checkpoint = False
        """Another one has been used since this one was, until the job is well."""
        self.backup: Backup | None = None
        self.checkpoint_copy: Checkpoint | None = None
        self.copies: list[tuple[Copy, ...]] = []

    # --- runs ---

    def started(self, job: Job, checkpoint: Checkpoint) -> Run | TopologyRun:
        """Another driver."""
        database = self.databases[job.store]

        def write(attempt: TransactionAttempt, records: list[int]) -> None:
            self.write(job, attempt, records)

        if job.door == "topology":
            (stream,) = job.streams
            return TopologyRun(
                stream.topics,
                stream.mode,
                self.brokers,
                database.store(stream.tx_id),
                self.clock,
                write,
                fails="failOnDataLoss" not in self.once,
            )
        once = dict(self.once)
        streams = tuple(replace(s, once={**s.once, **once}) for s in job.streams)
        planners = Planners(streams, self.brokers, self.clock, database.store)
        asks = not job.remembers
        return Run(streams, planners, self.brokers, checkpoint, write, asks=asks)

    def write(self, job: Job, attempt: TransactionAttempt, records: list[int]) -> None:
        """What the user's function, or the committer, does with a batch."""
        if not job.has_ids:
            self.plain.setdefault((attempt.source, attempt.txid), records)
            return
        where, table = job.sink
        if job.remembers:
            folder, batch_id = self.folders[table], attempt.txid - 1
            self.seen["batches dropped by their id"] += batch_id in folder
            folder.setdefault(batch_id, records)
            return
        database = self.databases[where]
        if where == KAFKA:
            refuse_speculation(cast(Any, Session(job)), "exactly-once Kafka sinks")
            is_query = job.door == "query"
            self.kafka.door = "transaction" if is_query else "bolt"
            self.kafka.parts = job.parts
        database.write(table, attempt, records, is_opaque=job.is_opaque)

    def never_written(self, attempt: TransactionAttempt, records: list[int]) -> None:
        """What a stranger's batch would do."""
        raise AssertionError(f"written by mistake: {attempt} {records}")

    def step(self) -> bool:
        """The job goes on; its end is reported as True, and ``error`` holds why."""
        if self.run is None:
            self.run = self.started(self.job, self.checkpoint)
        self.seen["steps"] += 1
        if not self.run.step():
            return True
        if self.run.is_idle:
            self.once, self.followed = {}, 0
            self.is_older_checkpoint = False
            if not self.is_hurt:
                self.missing = set()
        return False

    def stop(self) -> None:
        self.run = None

    def keep_commits(self) -> None:
        """Nobody loses the ends of the batches that the checkpoint has."""
        name = self.checkpoint.name
        self.kept_commits |= {(name, batch) for batch in self.checkpoint.commits}

    def is_well(self) -> bool:
        """It has read what there is, and nothing is wrong that it will tell."""
        return self.run is not None and self.run.is_idle and not self.is_hurt

    def reads_all(self) -> bool:
        """Whether no topic is left out."""
        return {t for s in self.job.streams for t in s.topics} == {
            *self.brokers.topics_
        }

    def let_a_rival_go_on(self) -> None:
        """Of several deployments this one is the job from now on."""
        self.job, rival = self.rivals.pop()
        if isinstance(rival, Run):
            self.left = [*self.left[-3:], self.checkpoint]
            self.checkpoint = rival.checkpoint
        self.run = rival

    def new_checkpoint(self) -> None:
        self.stop()
        self.once.pop("tx.onDisagreement", None)
        self.left = [*self.left[-3:], self.checkpoint]
        self.checkpoint = Checkpoint(next(_names))

    # --- the account ---

    def records(self) -> list[int]:
        """Everything that is in a sink of this job."""
        found = [record for batch in self.plain.values() for record in batch]
        batches = (
            batch for folder in self.folders.values() for batch in folder.values()
        )
        found += [record for batch in batches for record in batch]
        for where, table in self.sinks:
            found += self.databases[where].records(table)
        return found

    def held(self) -> TransactionAttempt:
        """The attempt that the sink of today has written last."""
        where, table = self.job.sink
        return self.databases[where].tables.get(table, Table()).newest

    def check(self) -> None:
        if self.job.remembers:  # a sink that ignores the txid
            return
        counts = Counter(self.records())
        doubled = sorted(record for record, n in counts.items() if n > 1)
        assert not doubled, f"doubled {doubled}"

    def check_all(self) -> None:
        """Nothing is left to read: all that could be read is in the sinks."""
        self.check()
        there = set(self.brokers.produced) - self.brokers.gone - self.destroyed
        lost = sorted(there - set(self.records()))
        assert not lost, f"lost {lost}"

    def partition(self, which: int) -> TopicPartition:
        known = self.brokers.partitions()
        return known[which % len(known)]


KINDS = {
    "one source": 2,
    "two sources": 2,
    "without id": 1,
    "topology": 3,
}
"""What runs, and how often it is drawn."""

OFF: dict[str, str] = {}
"""Kinds, operations, "operation: kind" and ways out that are not played, and which
finding that is not mended they would show."""


def is_off(operation: str, kind: str) -> bool:
    return bool({kind, operation, f"{operation}: {kind}"} & OFF.keys())


class Session:
    """Spark's, as it shows whether speculation is on."""

    def __init__(self, job: Job) -> None:
        self.conf = {"spark.speculation": str(job.speculates).lower()}


def _into_files(chance: random.Random) -> Job:
    mode = chance.choice(["transactional", "opaque"])
    streams = (Stream(TOPICS, "A", mode),)
    return Job("files", "query", streams, 0, (0, "folder"), True, remembers=True)


def _job(chance: random.Random, more: random.Random, brokers: Brokers) -> Job:
    kind = chance.choices([*KINDS], [*KINDS.values()])[0]
    mode = chance.choice(["transactional", "opaque"])
    is_opaque = mode == "opaque" or chance.random() < 0.3
    sink = (chance.choice([0, 0, 1]), "sink")
    streams = {
        "two sources": (Stream(("a",), "A", mode), Stream(("b",), "B", mode)),
        "without id": (Stream(TOPICS),),
    }.get(kind, (Stream(TOPICS, "A", mode),))
    door = "topology" if kind == "topology" else "query"
    if kind != "without id" and more.random() < 0.15:
        return Job(kind, door, streams, 0, (KAFKA, "sink"), False, more.randint(1, 3))
    if kind == "two sources" and more.random() < 0.5:
        brokers.make("c")
        streams = (replace(streams[0], topics=("a", "c")), streams[1])
    return Job(kind, door, streams, 0, sink, is_opaque)
