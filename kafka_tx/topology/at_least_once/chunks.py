"""One chunk of records through an at-least-once topology, from end to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.at_least_once.lineage import runs_of
from kafka_tx.topology.at_least_once.pace import Pace
from kafka_tx.topology.at_least_once.records import AtLeastOncePacket, AtLeastOnceSource
from kafka_tx.topology.at_least_once.tasks import AtLeastOnceTask
from kafka_tx.topology.plan.physical import Phase, PhysicalPlan, TaskId, Wave
from kafka_tx.topology.run.attempt_run import AttemptRun
from kafka_tx.topology.run.jobs import Engine, Reads, TaskJob
from kafka_tx.topology.run.messages import (
    NO_ROOTS,
    Message,
    Roots,
    RootsFailed,
    TaskReport,
    TreeReport,
)

_COMPLETED, _FAILED, _UNTRIED, _OPEN = np.arange(4, dtype=np.uint8)

Watch: TypeAlias = Callable[[AtLeastOnceTask], AbstractContextManager[None]]
"""Entered for a task while it works. Pickled."""


@dataclass(frozen=True)
class AtLeastOnceJob(TaskJob):
    """A job whose tasks track rows back to their records.

    Attributes:
        pace: How long tasks give rows to bolts; None: until all are given.
        watch: Entered for each task while it works.
    """

    pace: Pace | None = None
    watch: Watch | None = None

    def run_task(self, task: TaskId, messages: Iterator[Message]) -> Iterator[Message]:
        """See ``TaskJob``."""
        packets = (m for m in messages if isinstance(m, AtLeastOncePacket))
        work = AtLeastOnceTask(self.plan, task, self.attempt, self.pace)
        with self.watch(work) if self.watch else nullcontext():
            yield from work.process(packets, self.reads.get(task.stage))


@dataclass(frozen=True, slots=True)
class Settled:
    """Roots of a chunk that have ended with it, ascending.

    Attributes:
        done: Runs ``[first, end)`` of those whose trees are complete.
        failed: That a bolt, the scheme or the fetch failed.
        untried: That were not read, or not given to all bolts: the time was over.
        open: That a rich bolt neither acked nor failed: their time-out decides.
    """

    done: tuple[tuple[int, int], ...]
    failed: Roots
    untried: Roots
    open: Roots

    @property
    def completed(self) -> Roots:
        """Those that are done, one by one."""
        return np.concatenate([NO_ROOTS, *(np.arange(*run) for run in self.done)])


@dataclass
class Chunk(AttemptRun):
    """A chunk of records, and what became of it.

    Its attempt is the number of the chunk, and which try it is. After a ``BatchFailed``
    all of its records are to be replayed, and nothing else here counts.

    Attributes:
        pace: How long tasks give rows to bolts; None: until all are given.
        watch: Entered for each task while it works.
        reports: Of all tasks.
    """

    pace: Pace | None = None
    watch: Watch | None = None
    reports: list[TreeReport] = field(default_factory=list)

    def job(
        self,
        phase: Phase,
        waves: tuple[Wave, ...],
        reads: Reads,
        inbox: tuple[Message, ...],
    ) -> TaskJob:
        """See ``AttemptRun``."""
        given = (self.plan, phase, waves, self.attempt, reads, inbox)
        return AtLeastOnceJob(*given, self.pace, self.watch)

    def on_driver(
        self, task: TaskId, phase: Phase, mail: tuple[Message, ...]
    ) -> Iterator[Message]:
        """See ``AttemptRun``."""
        return self.job(phase, (), {}, ()).run_task(task, iter(mail))

    def take_report(self, report: TaskReport) -> None:
        """See ``AttemptRun``."""
        assert isinstance(report, TreeReport), report
        self.reports.append(report)

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

    def settle(self, first_root: int, end: int) -> Settled:
        """What became of the roots ``[first_root, end)``, all records of the chunk.

        Where all are done that costs nothing for each of them.
        """
        marked = [r for r in self.reports if r.failed or len(r.untried) or len(r.open)]
        begun = _joined_runs(run for report in self.reports for run in report.begun)
        if not marked and begun == ((first_root, end),):
            return Settled(begun, NO_ROOTS, NO_ROOTS, NO_ROOTS)
        state = np.full(end - first_root, _UNTRIED)
        for first, last in begun:
            state[first - first_root : last - first_root] = _COMPLETED
        for report in marked:
            state[report.open - first_root] = _OPEN
        for report in marked:
            state[report.untried - first_root] = _UNTRIED
        for failed in self.failed:
            state[failed.roots - first_root] = _FAILED
        completed, *others = (
            np.flatnonzero(state == kind) + first_root
            for kind in (_COMPLETED, _FAILED, _UNTRIED, _OPEN)
        )
        return Settled(runs_of(completed), *others)


def _joined_runs(runs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ascending; those that touch are one."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(runs):
        if joined and joined[-1][1] == first:
            first = joined.pop()[0]
        joined.append((first, end))
    return tuple(joined)


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
    records: Mapping[str, AtLeastOnceSource],
    engine: Engine,
    pace: Pace | None = None,
    watch: Watch | None = None,
) -> Chunk:
    """Work off a chunk of records (driver, a thread of its own).

    Args:
        plan: Of the topology.
        attempt: The number of the chunk as txid, and which try it is.
        records: What each spout reads, by its stage.
        engine: Runs the tasks of executors.
        pace: How long tasks give rows to bolts; None: until all are given.
        watch: Entered for each task while it works.

    Raises:
        Exception: Whatever the engine raises when it cannot run a job.
    """
    chunk = Chunk(plan, attempt, pace=pace, watch=watch)
    chunk.run(Phase.PROCESSING, plan.processing, records, engine)
    return chunk
