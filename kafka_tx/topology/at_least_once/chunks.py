"""One chunk of records through an at-least-once topology, from end to end."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from operator import xor
from typing import Any, TypeAlias

import numpy as np

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.at_least_once.pace import Pace
from kafka_tx.topology.at_least_once.records import RecordPacket, RecordSource
from kafka_tx.topology.at_least_once.tasks import Dumps, RecordTask
from kafka_tx.topology.declare.graph import Placement
from kafka_tx.topology.plan.physical import Phase, PhysicalPlan, TaskId
from kafka_tx.topology.run.jobs import Engine, TaskJob, addressee
from kafka_tx.topology.run.messages import (
    TORN,
    BatchFailed,
    BatchStopped,
    Message,
    Roots,
    RootsFailed,
    TreeReport,
)

_COMPLETED, _FAILED, _UNTRIED, _OPEN = np.arange(4, dtype=np.uint8)

Watch: TypeAlias = Callable[[RecordTask], AbstractContextManager[None]]
"""Entered for a task while it works."""


@dataclass(frozen=True)
class RecordJob(TaskJob):
    """A job whose tasks track rows back to their records.

    Attributes:
        records: What each spout reads, by its component.
        pace: How long tasks give rows to bolts; None: until all are given.
        watch: Entered for each task while it works.
        dumps: Pickles rows as the engine does.
    """

    records: Mapping[str, RecordSource] = field(default_factory=dict)
    pace: Pace | None = None
    watch: Watch | None = None
    dumps: Dumps = pickle.dumps

    def _run(self, task: TaskId, messages: Iterator[Message]) -> Iterator[Message]:
        packets = (m for m in messages if isinstance(m, RecordPacket))
        source = self.records.get(task.stage)
        work = RecordTask(self.plan, task, self.attempt, self.pace, self.dumps)
        with self.watch(work) if self.watch else nullcontext():
            yield from work.process(packets, source)


@dataclass(frozen=True, slots=True)
class Settled:
    """Roots of a chunk that have ended with it, ascending.

    Attributes:
        completed: Whose trees are complete.
        failed: That a bolt, the scheme or the fetch failed.
        untried: That were not read, or not given to all bolts: the time was over.
        open: That a rich bolt neither acked nor failed: their time-out decides.
    """

    completed: Roots
    failed: Roots
    untried: Roots
    open: Roots


@dataclass
class Chunk:
    """What became of a chunk of records.

    Attributes:
        plan: Of the topology.
        attempt: The number of the chunk, and which try it is.
        failure: None, or why the chunk could not be worked off: after a ``BatchFailed``
            all of its records are to be replayed. Nothing else here counts then.
        reports: Of all tasks.
    """

    plan: PhysicalPlan
    attempt: TransactionAttempt
    failure: BatchFailed | BatchStopped | None = None
    reports: list[TreeReport] = field(default_factory=list)
    _waiting: dict[TaskId, list[Message]] = field(default_factory=dict)

    def accept(self, messages: Iterable[Message]) -> None:
        """Keep what is for a task, collect what is for the driver."""
        for message in messages:
            match message:
                case TreeReport():
                    self.reports.append(message)
                case BatchFailed() | BatchStopped():
                    self.failure = self.failure or message
                case _:
                    task = addressee(self.plan, message)
                    assert task is not None
                    self._waiting.setdefault(task, []).append(message)

    def take(self, tasks: Iterable[TaskId]) -> tuple[Message, ...]:
        """What waits for these tasks; it waits no more."""
        return tuple(m for task in tasks for m in self._waiting.pop(task, ()))

    @property
    def failed(self) -> list[RootsFailed]:
        """The records that bolts failed, and why; a record may be there repeatedly."""
        return [failed for report in self.reports for failed in report.failed]

    @property
    def facts(self) -> dict[str, Any]:
        """What the spouts found out; what several tasks tell of one thing is joined."""
        facts: dict[str, Any] = {}
        for report in self.reports:
            for name, reported in report.facts.items():
                facts[name] = (
                    _joined(facts[name], reported) if name in facts else reported
                )
        return facts

    @property
    def took_s(self) -> float:
        """How long the longest task worked."""
        return max((report.took_s for report in self.reports), default=0.0)

    @property
    def is_whole(self) -> bool:
        """Whether every packet that a reporting task sent was received, and no other.

        A task that Spark ran again may send other rows than the first time.
        """
        return not reduce(xor, (report.packets for report in self.reports), 0)

    def settle(self, first_root: int, end: int) -> Settled:
        """What became of the roots ``[first_root, end)``, all records of the chunk."""
        state = np.full(end - first_root, _UNTRIED)
        for report in self.reports:
            for first, last in report.begun:
                state[first - first_root : last - first_root] = _COMPLETED
        for report in self.reports:
            state[report.open - first_root] = _OPEN
        for report in self.reports:
            state[report.untried - first_root] = _UNTRIED
        for failed in self.failed:
            state[failed.roots - first_root] = _FAILED
        kinds = (_COMPLETED, _FAILED, _UNTRIED, _OPEN)
        return Settled(*(np.flatnonzero(state == kind) + first_root for kind in kinds))


def _joined(one: Any, other: Any) -> Any:  # noqa: ANN401 - what JSON can hold
    """Two facts as one: numbers and lists are added up, entry by entry."""
    if isinstance(one, dict):
        both = {**one, **other}
        shared = one.keys() & other.keys()
        return both | {name: _joined(one[name], other[name]) for name in shared}
    return one + other


def run_chunk(
    plan: PhysicalPlan,
    attempt: TransactionAttempt,
    records: Mapping[str, RecordSource],
    engine: Engine,
    pace: Pace | None = None,
    watch: Watch | None = None,
) -> Chunk:
    """Work off a chunk of records (driver, a thread of its own).

    Args:
        plan: Of the topology.
        attempt: The number of the chunk as txid, and which try it is.
        records: What each spout reads.
        engine: Runs the tasks of executors.
        pace: How long tasks give rows to bolts; None: until all are given.
        watch: Entered for each task on the driver; the engine watches the others.

    Raises:
        Exception: Whatever the engine raises when it cannot run a job.
    """
    chunk = Chunk(plan, attempt)
    for placement, together in groupby(plan.processing, lambda wave: wave.placement):
        waves = tuple(together)
        tasks = [task for wave in waves for task in wave.task_ids]
        if placement is Placement.EXECUTORS:
            inbox = chunk.take(tasks)
            job = RecordJob(
                plan, Phase.PROCESSING, waves, attempt, None, inbox, records, pace
            )
            chunk.accept(engine.run_tasks(job))
        else:
            for task in tasks:
                packets = [p for p in chunk.take([task]) if isinstance(p, RecordPacket)]
                work = RecordTask(plan, task, attempt, pace)
                with watch(work) if watch else nullcontext():
                    chunk.accept(work.process(packets))
        if chunk.failure is not None:
            return chunk
    if not chunk.is_whole:
        last = plan.processing[-1].task_ids[0]
        chunk.failure = BatchFailed(attempt, last.stage, last.task, TORN)
    return chunk
