"""One chunk of records through an at-least-once topology, from end to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.at_least_once.lineage import runs_of
from kafka_tx.topology.at_least_once.pace import Pace
from kafka_tx.topology.at_least_once.records import AtLeastOncePacket, AtLeastOnceSource
from kafka_tx.topology.at_least_once.tasks import AtLeastOnceTask
from kafka_tx.topology.plan.physical import Phase, PhysicalPlan, TaskId
from kafka_tx.topology.run.attempt_run import AttemptRun
from kafka_tx.topology.run.jobs import Engine, TaskJob
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
    """The results of a chunk's roots, ascending.

    Attributes:
        done: Runs ``[first, end)`` of roots whose trees are complete.
        failed: Roots that a bolt, the scheme or the fetch failed.
        untried: Roots not read, or not given to all bolts: the time was over.
        open: Roots that a rich bolt neither acked nor failed: their time-out decides.
    """

    done: tuple[tuple[int, int], ...]
    failed: Roots
    untried: Roots
    open: Roots

    @property
    def completed(self) -> Roots:
        """The roots that are done, one by one."""
        return np.concatenate([NO_ROOTS, *(np.arange(*run) for run in self.done)])


@dataclass
class Chunk(AttemptRun):
    """A chunk of records, and its results.

    Its attempt is the number of the chunk with the number of the try. After a
    ``BatchFailed`` all of its records are replayed, and other results do not count.
    """

    reports: list[TreeReport] = field(default_factory=list)

    def on_driver(
        self, task: TaskId, phase: Phase, mail: tuple[Message, ...]
    ) -> Iterator[Message]:
        """See ``AttemptRun``."""
        return self.job(phase, ()).run_task(task, iter(mail))

    def take_report(self, report: TaskReport) -> None:
        """See ``AttemptRun``."""
        assert isinstance(report, TreeReport), report
        self.reports.append(report)

    @property
    def failed(self) -> list[RootsFailed]:
        """The records that bolts failed, and why; a record may occur repeatedly."""
        return [failed for report in self.reports for failed in report.failed]

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the spouts; facts of several tasks with one name are joined."""
        facts: dict[str, Any] = {}
        for report in self.reports:
            facts = _joined(facts, report.facts)
        return facts

    @property
    def took_s(self) -> float:
        """How long the longest task worked."""
        return max((report.took_s for report in self.reports), default=0.0)

    def settle(self, first_root: int, end: int) -> Settled:
        """The results of the roots ``[first_root, end)``, all records of the chunk.

        If all records are done, the cost does not depend on their number.
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
    """Sort the runs, and join runs that touch."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(runs):
        if joined and joined[-1][1] == first:
            first = joined.pop()[0]
        joined.append((first, end))
    return tuple(joined)


def _joined(one: Any, other: Any) -> Any:  # noqa: ANN401 - what JSON can hold
    """Join two facts: numbers and lists are added up, entry by entry."""
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
    """Process a chunk of records (driver, a thread of its own).

    The reads of each spout are given by its stage; ``pace`` and ``watch`` as of
    ``AtLeastOnceJob``.

    Raises:
        Exception: Any error of an engine that cannot run a job.
    """
    chunk = Chunk(plan, attempt, partial(AtLeastOnceJob, pace=pace, watch=watch))
    chunk.run(Phase.PROCESSING, plan.processing, records, engine)
    return chunk
