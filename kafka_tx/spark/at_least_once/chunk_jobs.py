"""The Spark jobs of an at-least-once topology: how many, how large."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark import InheritableThread

from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TransactionAttempt
from kafka_tx.options.at_least_once_options import RunnerLimits
from kafka_tx.protocols import Clock, Store
from kafka_tx.running.at_least_once.poller_parts import PollerParts
from kafka_tx.spark.topologies.attempt import AttemptEngine
from kafka_tx.topology.plan.physical import PhysicalPlan
from kafka_tx.topology.tracked.chunk_flights import ChunkFlight
from kafka_tx.topology.tracked.chunks import Chunk, Watch
from kafka_tx.transactions.root_blocks import Roots

CANCEL_AGAIN_S = 0.2
"""A job may begin just after it was cancelled: it is cancelled again."""


Hangs = Callable[[TransactionAttempt, str, Roots], None]
"""Takes a chunk, a component, and the records it does not give back."""

Moves = Callable[[TransactionAttempt], None]
"""Takes a chunk of which a task is getting on."""


class ChunkEngine(AttemptEngine, Protocol):
    """An engine whose tasks tell of rows that bolts do not give back."""

    def listen(self, timeout_ms: int, hangs: Hangs, moves: Moves) -> None:
        """Call ``hangs`` for each row, or Arrow batch, that takes longer; repeatedly.

        ``moves`` is called from time to time for chunks that get on.
        """
        ...

    def watch(self, attempt: TransactionAttempt) -> Watch | None:
        """What tells of a task of this chunk; None: nothing does."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...


@dataclass(frozen=True)
class AtLeastOnceRunnerParts:
    """What a runner is made of.

    Attributes:
        id: Of the topology.
        plan: Of the topology.
        engine: Runs the jobs.
        pollers: What each spout's poller is made of.
        limits: How much at once.
        registry: Takes the metrics.
        clock: The machine's.
        notes: Where it is noted what ended it, if anywhere; closed at the end.
    """

    id: str
    plan: PhysicalPlan
    engine: ChunkEngine
    pollers: Mapping[str, PollerParts]
    limits: RunnerLimits
    registry: MetricsRegistry
    clock: Clock
    notes: Store | None = None


class ChunkJob:
    """A chunk's job on a thread of its own: tags and properties belong to threads."""

    def __init__(
        self,
        flight: ChunkFlight,
        engine: AttemptEngine,
        run: Callable[[], Chunk],
        answer: Callable[[Chunk | BaseException], None],
    ) -> None:
        self.flight = flight
        self._engine = engine
        self._run_chunk = run
        self._answer = answer
        self.cancelled_ms: int | None = None
        """Since when its answer no longer counts (monotonic); None: it counts."""
        self._thread = InheritableThread(
            target=self._run, name=f"kafka-tx chunk {flight.attempt}", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def runs(self) -> bool:
        """Whether its thread has not ended."""
        return bool(self._thread.is_alive())

    def cancel(self, now_ms: int) -> None:
        """Let it fail soon; may be repeated."""
        if self.cancelled_ms is None:
            self.cancelled_ms = now_ms
        self._engine.cancel(self.flight.attempt)

    def end(self, timeout_s: float) -> bool:
        """Cancel it until its thread has ended; False if that takes longer."""
        waited_s = 0.0
        while self._thread.is_alive() and waited_s < timeout_s:
            self._engine.cancel(self.flight.attempt)
            self._thread.join(CANCEL_AGAIN_S)
            waited_s += CANCEL_AGAIN_S
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._engine.enter(self.flight.attempt)
            result: Chunk | BaseException = self._run_chunk()
        except BaseException as error:  # noqa: BLE001 - every error has its answer
            result = error
        self._answer(result)
