"""One chunk of records through an at-least-once topology, from end to end."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.declare.graph import Placement
from kafka_tx.topology.plan.phases import Phase
from kafka_tx.topology.plan.physical import PhysicalPlan, TaskId
from kafka_tx.topology.run.jobs import Engine, TaskJob, addressee
from kafka_tx.topology.run.messages import (
    BatchFailed,
    BatchStopped,
    Message,
    RootsFailed,
    TreeReport,
)
from kafka_tx.topology.tracked.pace import Pace
from kafka_tx.topology.tracked.records import RecordPacket, RecordSource
from kafka_tx.topology.tracked.tracked_tasks import Dumps, RecordTask
from kafka_tx.topology.tracked.trees import NO_ROOTS
from kafka_tx.transactions.root_blocks import BlockLedger, Ended, Roots

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
    """

    completed: Roots
    failed: Roots
    untried: Roots


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
            for name, told in report.facts.items():
                facts[name] = _joined(facts[name], told) if name in facts else told
        return facts

    def settle(self, ledger: BlockLedger, first_root: int) -> Settled:
        """Tell the acker's ledger everything; return the trees that ended by it.

        Args:
            ledger: The chunk's block was begun in it.
            first_root: Of that block.
        """
        ended = [end for report in self.reports for end in _settled(report, ledger)]
        unread = ledger.unbegun(first_root)
        ended += [ledger.init(unread, np.ones(len(unread), np.uint64))]
        ended += [ledger.fail(unread)]
        failed = np.sort(np.concatenate([end.failed for end in ended]))
        told = np.concatenate([NO_ROOTS, *(told.roots for told in self.failed)])
        is_told = np.isin(failed, told)
        return Settled(
            np.sort(np.concatenate([end.completed for end in ended])),
            failed[is_told],
            failed[~is_told],
        )


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
            break
    return chunk


def _settled(report: TreeReport, ledger: BlockLedger) -> Iterator[Ended]:
    for first, end in report.completed:
        yield ledger.init(np.arange(first, end), np.zeros(end - first, np.uint64))
    if len(report.begun):
        yield ledger.init(report.begun, report.begun_edges)
    if len(report.acked):
        yield ledger.ack(report.acked, report.acked_edges)
    for failed in report.failed:
        yield ledger.fail(failed.roots)
    if len(report.untried):
        yield ledger.fail(report.untried)
