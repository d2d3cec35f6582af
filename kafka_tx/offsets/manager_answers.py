"""What a partition manager answers: what to emit, what to give up, what it counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_tx.model import OffsetRange
from kafka_tx.offsets.loss import LossReason


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What to emit next from one partition; nothing is emitted by planning it.

    Attributes:
        retries: Failed records that are due, as ascending runs.
        fresh: Records never emitted before; None when there are none, or no room.
        generation: Comes back with every answer about these records.
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
    """Records that failed too often; they are not tried again.

    They hold the commit back until the caller acknowledges them, which it does once
    they are safe elsewhere (a dead-letter topic) or were skipped on purpose.

    Attributes:
        records: Contiguous offsets with the same number of attempts.
        attempts: How often each of them was processed.
    """

    records: OffsetRange
    attempts: int


@dataclass(slots=True)
class Counts:
    """What one partition manager has seen since it was made; only ever grows.

    Attributes:
        emitted: Offsets emitted for the first time.
        retried: Offsets emitted again.
        completed: Offsets acknowledged, each once.
        failed: Failures, several for one offset.
        given_up: Offsets that failed more often than the limit allows, each once.
        holes: Offsets in emitted ranges for which the log has no record to read.
        skipped: Offsets that the position jumped over, by reason: never read, or cut
            off with the log's end after they were read.
        ignored_acks: Offsets acknowledged late, twice, or without being emitted.
        ignored_fails: The same for failures.
        lost: Offsets given up for good, by reason. Where a record is still being
            processed when the log drops it, it counts only if that fails.
    """

    emitted: int = 0
    retried: int = 0
    completed: int = 0
    failed: int = 0
    given_up: int = 0
    holes: int = 0
    ignored_acks: int = 0
    ignored_fails: int = 0
    lost: dict[LossReason, int] = field(
        default_factory=lambda: dict.fromkeys(LossReason, 0)
    )
    skipped: dict[LossReason, int] = field(
        default_factory=lambda: dict.fromkeys(LossReason, 0)
    )
