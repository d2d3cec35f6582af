"""One attempt from end to end: which job comes when, and what the driver does itself.

A thread of the attempt calls ``run_processing`` and later, when the transaction
coordinator says so, ``run_commit``. Nothing here is shared between attempts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from operator import xor
from typing import Any

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.declare.graph import Placement
from kafka_tx.topology.declare.spouts import BatchSource
from kafka_tx.topology.plan.physical import Phase, PhysicalPlan, TaskId, Wave
from kafka_tx.topology.run.jobs import Engine, FrameJob, Reads, TaskJob, addressee
from kafka_tx.topology.run.messages import (
    TORN,
    BatchFailed,
    BatchStopped,
    Message,
    Packet,
    Suspended,
    TaskReport,
)
from kafka_tx.topology.run.tasks import Task


@dataclass
class AttemptRun(ABC):
    """An attempt between its jobs: lives on the driver, never travels.

    Attributes:
        plan: Of the topology.
        attempt: Which.
        failure: None while all is well; else the first thing that went wrong, and
            nothing more is run for this attempt.
    """

    plan: PhysicalPlan
    attempt: TransactionAttempt
    failure: BatchFailed | BatchStopped | None = None
    _passed: int = 0
    _waiting: dict[TaskId, list[Message]] = field(default_factory=dict)

    @abstractmethod
    def job(
        self,
        phase: Phase,
        waves: tuple[Wave, ...],
        reads: Reads,
        inbox: tuple[Message, ...],
    ) -> TaskJob:
        """A job of its tasks on executors."""

    @abstractmethod
    def on_driver(
        self, task: TaskId, phase: Phase, mail: tuple[Message, ...]
    ) -> Iterator[Message]:
        """Run a task of the driver on what was sent to it."""

    @abstractmethod
    def take_report(self, report: TaskReport) -> None:
        """A task did its part."""

    def run(
        self, phase: Phase, waves: tuple[Wave, ...], reads: Reads, engine: Engine
    ) -> None:
        """Run the waves of a phase, until something fails.

        Raises:
            Exception: Whatever the engine raises when it cannot run a job; what waited
                on the driver is cleaned up.
        """
        try:
            for placement, together in groupby(waves, key=lambda wave: wave.placement):
                side_by_side = tuple(together)
                for messages in self._parts(
                    phase, placement, side_by_side, reads, engine
                ):
                    self.accept(messages)
                    if self.failure is None and not self.is_whole:
                        last = side_by_side[-1].task_ids[0]
                        self.failure = BatchFailed(
                            self.attempt, last.stage, last.task, TORN
                        )
                    if self.failure is not None:
                        self.abandon()
                        return
        except BaseException:
            self.abandon()
            raise

    def _parts(
        self,
        phase: Phase,
        placement: Placement,
        waves: tuple[Wave, ...],
        reads: Reads,
        engine: Engine,
    ) -> Iterator[Iterable[Message]]:
        """The work of neighbouring waves, piece by piece."""
        if placement is Placement.EXECUTORS:
            inbox = self.take(task for wave in waves for task in wave.task_ids)
            yield engine.run_tasks(self.job(phase, waves, reads, inbox))
            return
        for stage in (stage for wave in waves for stage in wave.stages):
            if placement is Placement.DATAFRAME:
                mail = self.take(stage.task_ids)
                packets = tuple(m for m in mail if isinstance(m, Packet))
                yield engine.run_frames(
                    FrameJob(self.plan, stage, self.attempt, packets)
                )
                continue
            for task in stage.task_ids:
                yield self.on_driver(task, phase, self.take([task]))

    def accept(self, messages: Iterable[Message]) -> None:
        """Keep what is for a task, add up what is for the driver."""
        for message in messages:
            match message:
                case Packet() | Suspended():
                    task = addressee(self.plan, message)
                    assert task is not None
                    self._waiting.setdefault(task, []).append(message)
                case TaskReport():
                    self._passed ^= message.packets
                    self.take_report(message)
                case BatchFailed() | BatchStopped():
                    self._fail(message)

    def _fail(self, failure: BatchFailed | BatchStopped) -> None:
        """The first failure stays, but an error that stops everything comes before."""
        stops = isinstance(failure, BatchStopped)
        if self.failure is None or (stops and isinstance(self.failure, BatchFailed)):
            self.failure = failure

    @property
    def is_whole(self) -> bool:
        """Whether every packet that was sent was received once or waits here.

        A task that Spark runs again may send other rows than the first time, or send
        them to other tasks, also if its bolts are deterministic: rows come in another
        order. One that got rows of both runs would lose some and count others twice.
        """
        waiting = (m for mail in self._waiting.values() for m in mail)
        ids = (message.id for message in waiting if isinstance(message, Packet))
        return self._passed == reduce(xor, ids, 0)

    def take(self, tasks: Iterable[TaskId]) -> tuple[Message, ...]:
        """What waits for these tasks; it waits no more."""
        return tuple(m for task in tasks for m in self._waiting.pop(task, ()))

    def abandon(self) -> None:
        """Give the attempt up: clean up what waits on the driver. Harmless twice."""
        self._waiting.clear()


@dataclass
class Processed(AttemptRun):
    """An attempt at a batch, also between its phases.

    Attributes:
        facts: What the spout found out about its partitions.
        emitted: Rows that were sent on, by component; nobody's rows are not counted.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)
    _tasks: dict[TaskId, Task] = field(default_factory=dict)

    def job(
        self,
        phase: Phase,
        waves: tuple[Wave, ...],
        reads: Reads,
        inbox: tuple[Message, ...],
    ) -> TaskJob:
        """See ``AttemptRun``."""
        return TaskJob(self.plan, phase, waves, self.attempt, reads, inbox)

    def take_report(self, report: TaskReport) -> None:
        """See ``AttemptRun``."""
        self.facts.update(report.facts)
        for component, rows in report.emitted:
            self.emitted[component] = self.emitted.get(component, 0) + rows

    def on_driver(
        self, task: TaskId, phase: Phase, mail: tuple[Message, ...]
    ) -> Iterator[Message]:
        """Run a task of the driver; between the phases the object stays here."""
        packets = [message for message in mail if isinstance(message, Packet)]
        if phase is Phase.COMMIT:
            work = self._tasks.pop(task, None)
            return (work or Task(self.plan, task, self.attempt)).commit(packets)
        work = self._tasks[task] = Task(self.plan, task, self.attempt)
        return work.process(packets, suspend=False)

    def abandon(self) -> None:
        """See ``AttemptRun``."""
        for task in self._tasks.values():
            task.close()
        self._tasks.clear()
        super().abandon()


def run_processing(
    plan: PhysicalPlan, attempt: TransactionAttempt, source: BatchSource, engine: Engine
) -> Processed:
    """Run the processing phase (driver, a thread of its own).

    Returns:
        What ``run_commit`` goes on with. Look at its ``failure`` first.

    Raises:
        Exception: as ``AttemptRun.run``.
    """
    processed = Processed(plan, attempt)
    spout = plan.stage_of[plan.graph.components[0].name].name
    processed.run(Phase.PROCESSING, plan.processing, {spout: source}, engine)
    return processed


def run_commit(processed: Processed, engine: Engine) -> None:
    """Run the commit phase (driver). Look at ``processed.failure`` afterwards.

    At most once for each ``Processed``, and never after a failure: the batch is then
    processed anew, under a new attempt.

    Raises:
        Exception: as ``AttemptRun.run``.
    """
    assert processed.failure is None, processed.failure
    processed.run(Phase.COMMIT, processed.plan.commit, {}, engine)
    processed.abandon()
