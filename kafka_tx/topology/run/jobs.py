"""Jobs: an engine runs them for one attempt, on executors or as DataFrames.

An engine needs no knowledge of topologies: a job has the number of partitions of each
wave, the input of the first wave, and the function to call in each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, fields
from functools import partial, reduce
from itertools import chain
from operator import xor
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.declare.bolts import DataFrameBolt
from kafka_tx.topology.declare.graph import Input
from kafka_tx.topology.plan.physical import Phase, PhysicalPlan, Stage, TaskId, Wave
from kafka_tx.topology.rows.blocks import conform, with_tx
from kafka_tx.topology.rows.fields import TX, TX_TYPE, Fields
from kafka_tx.topology.run.messages import (
    Message,
    Outgoing,
    Packet,
    Suspended,
    TaskReport,
)
from kafka_tx.topology.run.task_failures import failure_of
from kafka_tx.topology.run.tasks import Task

Reads: TypeAlias = Mapping[str, Any]
"""The reads of spouts' tasks, by the name of their stage."""

_NOT_SHIPPED = ("plan", "reads", "inbox")


@dataclass(frozen=True)
class TaskJob:
    """Consecutive waves of one phase on executors, with an exchange between two waves.

    Runs the tasks of a batch; a chunk of records has a subclass.

    Attributes:
        waves: At least one.
        reads: The reads of the spouts in these waves.
        inbox: The driver's messages for tasks of these waves.
        is_together: Whether one partition runs all tasks, one after the other.
    """

    plan: PhysicalPlan
    phase: Phase
    waves: tuple[Wave, ...]
    attempt: TransactionAttempt
    reads: Reads = field(default_factory=dict)
    inbox: tuple[Message, ...] = field(default=(), repr=False)
    is_together: bool = field(default=False, kw_only=True)

    @property
    def partitions(self) -> list[int]:
        """The number of partitions of each wave; of all waves, if they run together."""
        return [1] if self.is_together else [len(wave.task_ids) for wave in self.waves]

    @property
    def most_rows(self) -> int | None:
        """Most rows that the spouts read; None: unknown, or no spout reads."""
        sized = [
            len(read)
            for read in self.reads.values()
            if isinstance(read, Sized) and not isinstance(read, tuple)  # its fields
        ]
        return sum(sized) if len(sized) == len(self.reads) > 0 else None

    def first(self) -> list[list[Message]]:
        """The input of each partition of the first wave; often empty."""
        if self.is_together:
            return [list(self.inbox)]
        parts: list[list[Message]] = [[] for _ in self.waves[0].task_ids]
        for number, message in enumerate(self.inbox):
            parts[self._partition(0, message, number)].append(message)
        return parts

    def shipped(self) -> Callable[[PhysicalPlan, Reads], TaskJob]:
        """A function to pickle, which makes the job in a partition from plan and reads.

        The plan is the same for all jobs, and only the first wave reads.
        """
        names = [f.name for f in fields(self) if f.name not in _NOT_SHIPPED]
        given = {name: getattr(self, name) for name in names}
        return partial(_made, type(self), given)

    def run_partition(
        self, wave: int, partition: int, messages: Iterable[Message]
    ) -> Iterator[tuple[int, Message]]:
        """Run the task of one partition of one wave (executor).

        It reads all messages: those of earlier waves, or of ``first``, for this
        partition. Yields (partition in the next wave, message); after the last wave the
        partition is 0 and the message is for the driver. Messages that are not for the
        next wave pass through it.
        """
        if self.is_together:
            yield from ((0, message) for message in self._run_together(messages))
            return
        passing: list[Message] = []
        task = self.waves[wave].task_ids[partition]
        for message in self.run_task(task, _mine(self.plan, task, messages, passing)):
            yield self._partition(wave + 1, message, partition), message
        for message in passing:
            yield self._partition(wave + 1, message, partition), message

    def _run_together(self, messages: Iterable[Message]) -> Iterable[Message]:
        """Run all tasks of all waves; returns the messages for the driver."""
        for wave in self.waves:
            sent: list[Message] = []
            for task in wave.task_ids:
                passing: list[Message] = []
                sent += self.run_task(task, _mine(self.plan, task, messages, passing))
                messages = passing
            messages = chain(messages, sent)
        return messages

    def run_task(self, task: TaskId, messages: Iterator[Message]) -> Iterator[Message]:
        """Run one task on the messages that were sent to it."""
        work = Task(self.plan, task, self.attempt)
        if self.phase is Phase.PROCESSING:
            packets = (m for m in messages if isinstance(m, Packet))
            return work.process(packets, self.reads.get(task.stage), suspend=True)
        waiting = list(messages)
        suspended = next((m for m in waiting if isinstance(m, Suspended)), None)
        return work.commit([m for m in waiting if isinstance(m, Packet)], suspended)

    def _partition(self, wave: int, message: Message, otherwise: int) -> int:
        if wave >= len(self.waves):
            return 0
        known = self.waves[wave].partitions
        task = addressee(self.plan, message)
        if task is not None and task in known:
            return known[task]
        return otherwise % len(known)


def _made(
    kind: type[TaskJob], given: Mapping[str, Any], plan: PhysicalPlan, reads: Reads
) -> TaskJob:
    return kind(plan=plan, reads=reads, **given)


@dataclass(frozen=True)
class FrameJob:
    """A stage of DataFrame bolts; its packets have the rows as Arrow."""

    plan: PhysicalPlan
    stage: Stage
    attempt: TransactionAttempt
    packets: tuple[Packet, ...] = field(default=(), repr=False)

    def run(
        self,
        to_frame: Callable[[pa.Table], Any],
        to_table: Callable[[Any, tuple[str, ...]], pa.Table],
    ) -> Iterator[Message]:
        """Call the bolts; yield their rows and a report, or one failure (driver).

        ``to_frame`` makes a DataFrame of a table with its ``tx`` column; ``to_table``
        runs a DataFrame, and gives these columns of its result.
        """
        frames: dict[str, Any] = {}
        passed = reduce(xor, (packet.id for packet in self.packets), 0)
        for name in self.stage.components:
            try:
                frames[name] = self._transform(name, frames, to_frame)
                for packet in self._emit(name, frames[name], to_table):
                    passed ^= packet.id
                    yield packet
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - the driver gets it
                yield failure_of(error, self.attempt, name, 0, is_spout=False)
                return
        yield TaskReport(TaskId(self.stage.name, 0), (), {}, passed)

    def _transform(
        self, name: str, frames: Mapping[str, Any], to_frame: Callable[[pa.Table], Any]
    ) -> Any:  # noqa: ANN401 - a DataFrame
        component = self.plan.graph.by_name[name]
        assert component.template is not None
        bolt = component.template.new()
        if not isinstance(bolt, DataFrameBolt):
            raise ConfigError(f"{bolt!r} was a DataFrame bolt at build", option="bolt")
        inputs = [
            frames[given.source]
            if given.source in frames
            else to_frame(self._table(name, given))
            for given in component.inputs
        ]
        return bolt.transform(*inputs)

    def _table(self, name: str, given: Input) -> pa.Table:
        schema = self.plan.graph.fields(given.source, given.stream).schema
        assert schema is not None
        batches = [
            with_tx(packet.block, self.attempt)
            for packet in self.packets
            if (packet.target, packet.source, packet.stream)
            == (name, given.source, given.stream)
        ]
        with_attempt = schema.insert(0, pa.field(TX, TX_TYPE))
        # Spark makes no DataFrame of columns that have no chunk at all.
        nothing = pa.RecordBatch.from_pylist([], with_attempt)
        return pa.Table.from_batches(batches or [nothing], with_attempt)

    def _emit(
        self, name: str, frame: object, to_table: Callable[..., pa.Table]
    ) -> Iterator[Packet]:
        edges = [edge for edge in self.plan.edges[name] if not edge.is_local]
        if not edges:
            return
        fields: Fields = self.plan.graph.fields(name)
        batches = to_table(frame, fields.names).combine_chunks().to_batches()
        for edge in edges:
            outgoing = Outgoing(edge, fields, 0)
            for batch in batches:
                yield from outgoing.put(conform(batch, fields, name))
            yield from outgoing.flush()


class Engine(Protocol):
    """Runs jobs. Blocks until they are done; raises when they cannot be run at all."""

    def run_tasks(self, job: TaskJob) -> Iterable[Message]:
        """All messages for the driver, in any order that keeps each task's own."""

    def run_frames(self, job: FrameJob) -> Iterable[Message]:
        """The messages of ``job.run``, with the engine's kind of DataFrame."""


def addressee(plan: PhysicalPlan, message: Message) -> TaskId | None:
    """The task that a message is for; None: the driver."""
    match message:
        case Packet(target=target, task=task):
            return TaskId(plan.stage_of[target].name, task)
        case Suspended(task=task_id):
            return task_id
        case _:
            return None


def _mine(
    plan: PhysicalPlan,
    task: TaskId,
    messages: Iterable[Message],
    passing: list[Message],
) -> Iterator[Message]:
    """Yield this task's messages; hold the others for later."""
    for message in messages:
        if addressee(plan, message) == task:
            yield message
        else:
            passing.append(message)
