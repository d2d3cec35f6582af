"""Results of a partition manager: plans, given-up records and counters."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_tx.model import OffsetRange
from kafka_tx.offsets.loss import LossReason


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The next offsets to emit from one partition; planning emits nothing.

    Attributes:
        retries: Failed records that are due, as ascending runs.
        fresh: Records never emitted before; None: there are none, or no room.
        generation: Pass it with every ack or fail of these records.
    """

    retries: tuple[OffsetRange, ...]
    fresh: OffsetRange | None
    generation: int

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """All ranges to read, retries first; never an empty range."""
        return self.retries if self.fresh is None else (*self.retries, self.fresh)

    def __bool__(self) -> bool:
        return bool(self.retries) or self.fresh is not None


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Contiguous records that failed in all ``attempts``; they are not tried again.

    They hold the commit back until the caller acknowledges them. The caller does so
    once they are in the dead-letter topic or were skipped on purpose.
    """

    records: OffsetRange
    attempts: int


@dataclass(slots=True)
class Counts:
    """Counters of one partition manager since its creation; they only grow.

    Attributes:
        emitted: Offsets emitted for the first time.
        completed: Offsets acknowledged, each once.
        failed: Failures, several for one offset.
        given_up: Offsets that failed more often than the limit allows, each once.
        holes: Offsets in emitted ranges for which the log has no record to read.
        skipped: Offsets that the position skipped, by reason: never read, or lost with
            the log's end after they were read.
        lost: Offsets lost for good, by reason. A record that is in flight when the log
            drops it counts only if it fails.
    """

    emitted: int = 0
    retried: int = 0
    completed: int = 0
    failed: int = 0
    given_up: int = 0
    holes: int = 0
    lost: dict[LossReason, int] = field(
        default_factory=lambda: dict.fromkeys(LossReason, 0)
    )
    skipped: dict[LossReason, int] = field(
        default_factory=lambda: dict.fromkeys(LossReason, 0)
    )
