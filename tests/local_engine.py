"""Runs whole attempts in this process, on blocks that a test gives."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.transactional.topology import TransactionalTopology
from kafka_tx.topology.at_least_once.records import Records
from kafka_tx.topology.declare.spouts import BatchSource, Json
from kafka_tx.topology.plan.physical import Phase
from kafka_tx.topology.rows.blocks import Block, size
from kafka_tx.topology.rows.fields import Fields
from kafka_tx.topology.run import attempt_run as attempts
from kafka_tx.topology.run.attempt_run import Processed
from kafka_tx.topology.run.jobs import FrameJob, TaskJob
from kafka_tx.topology.run.messages import Message


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Runs the tasks of executors one after the other, in this process.

    Attributes:
        is_together: Whether one partition runs all tasks of a processing job.
        travels: Whether jobs and messages are pickled and read back, as they would be
            on their way to an executor.
        to_frame: Makes what DataFrame bolts are given of a table; None: none may run.
        to_table: The named columns of what a DataFrame bolt returned.
    """

    travels: bool = False
    is_together: bool = False
    to_frame: Callable[[pa.Table], Any] | None = None
    to_table: Callable[[Any, tuple[str, ...]], pa.Table] = lambda frame, names: (
        frame.select(list(names))
    )

    def run_tasks(self, job: TaskJob) -> list[Message]:
        """Wave after wave, partition after partition."""
        is_together = self.is_together and job.phase is Phase.PROCESSING
        job = replace(job, is_together=is_together)
        make, plan, reads = self._moved((job.shipped(), job.plan, dict(job.reads)))
        shipped = make(plan, reads)
        inboxes = self._moved(job.first())
        messages: list[Message] = []
        for wave in range(len(job.partitions)):
            width = [*job.partitions, 1][wave + 1]
            outboxes: list[list[Message]] = [[] for _ in range(width)]
            for partition, inbox in enumerate(inboxes):
                for target, message in shipped.run_partition(wave, partition, inbox):
                    outboxes[target].append(message)
            inboxes = self._moved(outboxes)
            messages = inboxes[0]
        return messages

    def run_frames(self, job: FrameJob) -> Iterator[Message]:
        """Call the bolts with what ``to_frame`` makes.

        Raises:
            ConfigError: There is no ``to_frame``.
        """
        if self.to_frame is None:
            raise ConfigError.illegal(
                "to_frame",
                None,
                "a function from an Arrow table to a DataFrame",
                f"The topology has DataFrame bolts: {', '.join(job.stage.components)}.",
            )
        return job.run(self.to_frame, self.to_table)

    def _moved(self, given: Any) -> Any:
        return pickle.loads(pickle.dumps(given)) if self.travels else given


@dataclass(frozen=True, slots=True)
class GivenBlocks:
    """A batch that consists of these blocks; task ``i`` of ``n`` gets every n-th."""

    blocks: tuple[Block, ...]

    def read(self, task: int, tasks: int, facts: dict[str, Json]) -> Iterator[Block]:
        """Yield this task's blocks."""
        facts[f"task {task}"] = {"blocks": len(self.blocks[task::tasks])}
        yield from self.blocks[task::tasks]


def run_processing(
    topology: TransactionalTopology,
    attempt: TransactionAttempt,
    batch: BatchSource | Iterable[Block],
    engine: LocalEngine | None = None,
) -> Processed:
    """Run the processing phase of one attempt here.

    Args:
        topology: What to run.
        attempt: For which attempt.
        batch: ``spout.batch(attempt, metadata)``, or the blocks themselves.
        engine: One with other settings.
    """
    source = GivenBlocks(tuple(batch)) if isinstance(batch, Iterable) else batch
    return attempts.run_processing(
        topology.plan, attempt, source, engine or LocalEngine()
    )


def run_commit(processed: Processed, engine: LocalEngine | None = None) -> None:
    """Run the commit phase here; look at ``processed.failure`` afterwards."""
    attempts.run_commit(processed, engine or LocalEngine())


@dataclass(frozen=True, slots=True)
class GivenRecords:
    """Blocks of rows, one record each, numbered from ``first_root`` on."""

    blocks: tuple[Block, ...]
    first_root: int = 0

    def read(self, task: int, tasks: int, facts: dict[str, Any]) -> Iterator[Records]:
        """Yield every n-th block."""
        facts[f"task {task}"] = {"blocks": len(self.blocks[task::tasks])}
        first = self.first_root
        for number, block in enumerate(self.blocks):
            roots = np.arange(first, first + size(block))
            first += size(block)
            if number % tasks == task:
                yield Records(block, roots, roots)


class WordSpout:
    """A spout of words, for chunks that a test gives."""

    fields = Fields.parse("word string")

    def empty_chunk(self) -> GivenRecords:
        return GivenRecords(())
