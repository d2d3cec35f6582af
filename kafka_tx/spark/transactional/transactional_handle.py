"""A running topology of numbered batches, as its user sees it."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_tx.metrics.endpoint import Endpoint, Guest
from kafka_tx.running.transactional.batch_progress import BatchProgress
from kafka_tx.running.transactional.runner_parts import RunnerParts
from kafka_tx.spark.topologies.running import RunningTopology
from kafka_tx.spark.transactional.transactional_runner import TransactionalRunner


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """A batch in flight.

    Attributes:
        txid: Its number.
        attempt_id: Of the attempt that is on.
        phase: processing, processed, committing or recording.
    """

    txid: int
    attempt_id: int
    phase: str


@dataclass(frozen=True, slots=True)
class TopologyStatus:
    """What a topology does now.

    Attributes:
        id: Of the topology.
        is_active: Whether it runs.
        committed_txid: The last committed batch; None while there was none.
        in_flight: Batches on their way, in txid order.
        replays: Attempts that were given up so far.
        lag: Records of the source that no committed batch holds; None where unknown, as
            while a partition has no leader.
    """

    id: str
    is_active: bool
    committed_txid: int | None
    in_flight: tuple[BatchStatus, ...]
    replays: int
    lag: int | None


class TopologyHandle(RunningTopology):
    """A running topology of batches, used as Spark's ``StreamingQuery`` is.

    What ``start`` of a built topology returns. Safe in any thread.
    """

    def __init__(
        self,
        runner: TransactionalRunner,
        parts: RunnerParts,
        endpoint: Endpoint | Guest,
    ) -> None:
        journal = parts.journal
        super().__init__(journal.id, runner, journal.registry, endpoint)
        self._runner = runner
        self._journal = journal

    @property
    def status(self) -> TopologyStatus:
        """What it does now."""
        view = self._runner.view
        return TopologyStatus(
            id=self.id,
            is_active=self.isActive,
            committed_txid=view.committed_txid,
            in_flight=tuple(
                BatchStatus(attempt.txid, attempt.attempt_id, phase.value)
                for attempt, phase in view.phases.items()
            ),
            replays=self._journal.replays,
            lag=self.metrics.lag_of(self.id),
        )

    @property
    def lastProgress(self) -> BatchProgress | None:
        """The last batch that was committed since the start."""
        recent = self.recentProgress
        return recent[-1] if recent else None

    @property
    def recentProgress(self) -> list[BatchProgress]:
        """The last 100 batches that were committed since the start, oldest first."""
        return list(self._journal.recent)

    def stop(self, *, finish: bool = True, timeout_s: float | None = 60.0) -> None:
        """End the topology and wait for that. Harmless when it has ended.

        Args:
            finish: Commit what is in flight first; else cancel it, but for a commit
                phase that has begun.
            timeout_s: After so long everything is cut off, as by a crash: a restart
                goes on from what is recorded.

        Raises:
            TransactionError: It was cut off.
        """
        self._end(finish=finish, timeout_s=timeout_s)
