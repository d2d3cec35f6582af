"""One attempt from end to end: the order of its jobs, and the work of the driver.

A thread of the attempt calls ``run_processing``, and later, when the transaction
coordinator orders it, ``run_commit``. Attempts share nothing in this module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
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
    """An attempt between its jobs; stays on the driver.

    Attributes:
        make_job: The kind of its jobs, called with the fields of ``TaskJob``.
        failure: The first failure, after which the attempt runs no more jobs; None: no
            failure.
    """

    plan: PhysicalPlan
    attempt: TransactionAttempt
    make_job: Callable[..., TaskJob] = TaskJob
    failure: BatchFailed | BatchStopped | None = None
    _passed: int = 0
    _waiting: dict[TaskId, list[Message]] = field(default_factory=dict)

    def job(self, phase: Phase, waves: tuple[Wave, ...], *given: object) -> TaskJob:
        """A job of the attempt's tasks; ``given``: its reads and its inbox."""
        return self.make_job(self.plan, phase, waves, self.attempt, *given)

    @abstractmethod
    def on_driver(
        self, task: TaskId, phase: Phase, mail: tuple[Message, ...]
    ) -> Iterator[Message]:
        """Run a task of the driver on the messages that were sent to it."""

    @abstractmethod
    def take_report(self, report: TaskReport) -> None:
        """Take the report of a task that has done its part."""

    def run(
        self, phase: Phase, waves: tuple[Wave, ...], reads: Reads, engine: Engine
    ) -> None:
        """Run the waves of a phase, until something fails.

        Raises:
            Exception: Any error of an engine that cannot run a job; bolts that wait on
                the driver are cleaned up.
        """
        try:
            for placement, together in groupby(waves, key=lambda wave: wave.placement):
                same = tuple(together)
                for messages in self._parts(phase, placement, same, reads, engine):
                    self.accept(messages)
                    if self.failure is None and not self.is_whole:
                        last = same[-1].task_ids[0]
                        self.failure = BatchFailed(self.attempt, *last, TORN)
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
        if placement is Placement.EXECUTORS:
            inbox = self.take(task for wave in waves for task in wave.task_ids)
            yield engine.run_tasks(self.job(phase, waves, reads, inbox))
            return
        for stage in (stage for wave in waves for stage in wave.stages):
            if placement is Placement.DATAFRAME:
                mail = self.take(stage.task_ids)
                packets = tuple(m for m in mail if isinstance(m, Packet))
                job = FrameJob(self.plan, stage, self.attempt, packets)
                yield engine.run_frames(job)
                continue
            for task in stage.task_ids:
                yield self.on_driver(task, phase, self.take([task]))

    def accept(self, messages: Iterable[Message]) -> None:
        """Hold messages for tasks, and add up messages for the driver."""
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
        stops = isinstance(failure, BatchStopped)
        if self.failure is None or (stops and isinstance(self.failure, BatchFailed)):
            self.failure = failure

    @property
    def is_whole(self) -> bool:
        """Whether every packet that was sent was received once or waits here.

        A task that Spark runs again may send other rows than the first time, or send
        them to other tasks, also if its bolts are deterministic: its rows come in
        another order. A receiver with rows of both runs would lose or repeat rows.
        """
        waiting = (m for mail in self._waiting.values() for m in mail)
        ids = (message.id for message in waiting if isinstance(message, Packet))
        return self._passed == reduce(xor, ids, 0)

    def take(self, tasks: Iterable[TaskId]) -> tuple[Message, ...]:
        """Remove and return the messages for these tasks."""
        return tuple(m for task in tasks for m in self._waiting.pop(task, ()))

    def abandon(self) -> None:
        """Give the attempt up, and clean up bolts on the driver. Harmless twice."""
        self._waiting.clear()


@dataclass
class Processed(AttemptRun):
    """An attempt at a batch, also between its phases.

    Attributes:
        facts: The spout's facts about its partitions.
        emitted: Emitted rows by component, without rows that no component reads.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)
    _tasks: dict[TaskId, Task] = field(default_factory=dict)

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

    Returns the attempt, for ``run_commit``. Check its ``failure`` first.

    Raises:
        Exception: as ``AttemptRun.run``.
    """
    processed = Processed(plan, attempt)
    spout = plan.stage_of[plan.graph.components[0].name].name
    processed.run(Phase.PROCESSING, plan.processing, {spout: source}, engine)
    return processed


def run_commit(processed: Processed, engine: Engine) -> None:
    """Run the commit phase (driver). Check ``processed.failure`` afterwards.

    At most once for each ``Processed``, and never after a failure: the batch is then
    processed anew, under a new attempt.

    Raises:
        Exception: as ``AttemptRun.run``.
    """
    assert processed.failure is None, processed.failure
    processed.run(Phase.COMMIT, processed.plan.commit, {}, engine)
    processed.abandon()
