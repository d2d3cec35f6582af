"""One attempt from end to end: which job comes when, and what the driver does itself.

An engine thread calls ``run_processing`` and later, when the transaction coordinator
says so, ``run_commit``. Nothing here is shared between attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from operator import xor
from typing import Any

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.declare.graph import Placement
from kafka_tx.topology.declare.spouts import BatchSource
from kafka_tx.topology.plan.physical import Phase, PhysicalPlan, Stage, TaskId, Wave
from kafka_tx.topology.run.jobs import Engine, FrameJob, TaskJob, addressee
from kafka_tx.topology.run.messages import (
    TORN,
    BatchFailed,
    BatchStopped,
    Message,
    Packet,
    Suspended,
    TaskReport,
    TreeReport,
)
from kafka_tx.topology.run.tasks import Task


@dataclass
class Processed:
    """An attempt between its phases: lives on the driver, never travels.

    Attributes:
        plan: Of the topology.
        attempt: Which.
        failure: None while all is well; else the first thing that went wrong, and
            nothing more is run for this attempt.
        facts: What the spout found out about its partitions.
        emitted: Rows that were sent on, by component; nobody's rows are not counted.
    """

    plan: PhysicalPlan
    attempt: TransactionAttempt
    failure: BatchFailed | BatchStopped | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)
    _passed: int = 0
    _tasks: dict[TaskId, Task] = field(default_factory=dict)
    _waiting: dict[TaskId, list[Message]] = field(default_factory=dict)

    def accept(self, messages: Iterable[Message]) -> None:
        """Keep what is for a task, add up what is for the driver."""
        for message in messages:
            match message:
                case Packet() | Suspended():
                    task = addressee(self.plan, message)
                    assert task is not None
                    self._waiting.setdefault(task, []).append(message)
                case TaskReport():
                    self._add(message)
                case BatchFailed() | BatchStopped():
                    self._fail(message)
                case TreeReport():
                    raise AssertionError(message)  # of an at-least-once topology

    def _add(self, report: TaskReport) -> None:
        self.facts.update(report.facts)
        self._passed ^= report.packets
        for component, rows in report.emitted:
            self.emitted[component] = self.emitted.get(component, 0) + rows

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
        for task in self._tasks.values():
            task.close()
        self._tasks.clear()
        self._waiting.clear()

    def on_driver(self, task: TaskId, phase: Phase) -> Iterator[Message]:
        """Run a task of the driver; between the phases the object stays here."""
        mail = self.take([task])
        packets = [message for message in mail if isinstance(message, Packet)]
        if phase is Phase.COMMIT:
            work = self._tasks.pop(task, None)
            return (work or Task(self.plan, task, self.attempt)).commit(packets)
        work = self._tasks[task] = Task(self.plan, task, self.attempt)
        return work.process(packets, suspend=False)


def run_processing(
    plan: PhysicalPlan, attempt: TransactionAttempt, source: BatchSource, engine: Engine
) -> Processed:
    """Run the processing phase (driver, a thread of its own).

    Returns:
        What ``run_commit`` goes on with. Look at its ``failure`` first.

    Raises:
        Exception: Whatever the engine raises when it cannot run a job; what waited on
            the driver is cleaned up.
    """
    processed = Processed(plan, attempt)
    _run(processed, Phase.PROCESSING, plan.processing, source, engine)
    return processed


def run_commit(processed: Processed, engine: Engine) -> None:
    """Run the commit phase (driver). Look at ``processed.failure`` afterwards.

    At most once for each ``Processed``, and never after a failure: the batch is then
    processed anew, under a new attempt.

    Raises:
        Exception: as ``run_processing``.
    """
    assert processed.failure is None, processed.failure
    _run(processed, Phase.COMMIT, processed.plan.commit, None, engine)
    processed.abandon()


def _run(
    processed: Processed,
    phase: Phase,
    waves: tuple[Wave, ...],
    source: BatchSource | None,
    engine: Engine,
) -> None:
    try:
        for placement, together in groupby(waves, key=lambda wave: wave.placement):
            side_by_side = tuple(together)
            for messages in _parts(
                processed, phase, placement, side_by_side, source, engine
            ):
                processed.accept(messages)
                if processed.failure is None and not processed.is_whole:
                    processed.accept([_torn(processed.attempt, side_by_side)])
                if processed.failure is not None:
                    processed.abandon()
                    return
    except BaseException:
        processed.abandon()
        raise


def _parts(
    processed: Processed,
    phase: Phase,
    placement: Placement,
    waves: tuple[Wave, ...],
    source: BatchSource | None,
    engine: Engine,
) -> Iterator[Iterable[Message]]:
    """The work of neighbouring waves, piece by piece."""
    plan, attempt = processed.plan, processed.attempt
    if placement is Placement.EXECUTORS:
        inbox = processed.take(task for wave in waves for task in wave.task_ids)
        yield engine.run_tasks(TaskJob(plan, phase, waves, attempt, source, inbox))
    for stage in _stages(waves):
        if placement is Placement.DATAFRAME:
            yield engine.run_frames(_frame_job(processed, stage))
        elif placement is Placement.DRIVER:
            for task in stage.task_ids:
                yield processed.on_driver(task, phase)


def _torn(attempt: TransactionAttempt, waves: tuple[Wave, ...]) -> BatchFailed:
    last = waves[-1].task_ids[0]
    return BatchFailed(attempt, last.stage, last.task, TORN)


def _stages(waves: tuple[Wave, ...]) -> Iterator[Stage]:
    return (stage for wave in waves for stage in wave.stages)


def _frame_job(processed: Processed, stage: Stage) -> FrameJob:
    mail = processed.take(stage.task_ids)
    packets = tuple(message for message in mail if isinstance(message, Packet))
    return FrameJob(processed.plan, stage, processed.attempt, packets)
