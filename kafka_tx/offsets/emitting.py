"""Decides which partition of a task emits next, and when to commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_tx.model import LogBounds, OffsetRange
from kafka_tx.offsets.manager import PartitionManager


@dataclass(frozen=True, slots=True)
class Emission:
    """A range that was emitted.

    ``manager`` gets the acks and fails, each with ``generation``.
    """

    manager: PartitionManager
    range: OffsetRange
    generation: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition that may emit retries and, if ``fresh``, new records."""

    manager: PartitionManager
    bounds: LogBounds
    fresh: bool = True


class RoundRobin:
    """Emits ranges of one partition after the other. Driver only, one thread.

    A partition is *filled* (planned, at most its share of the room) and emits all
    ranges of its plan; then the next partition has its turn, also in the next chunk.

    Source: Storm, KafkaSpout.nextTuple (deviates: ranges instead of single records).
    """

    def __init__(self) -> None:
        self._turn = 0

    def chunk(
        self, candidates: Sequence[Candidate], *, room: int, now_ms: int
    ) -> list[Emission]:
        """Emit until ``room`` is used up, or no partition has anything to emit.

        Args:
            candidates: In assignment order.
            room: Most offsets, of all partitions together.
            now_ms: Monotonic time.

        Raises:
            DataLossError: A log lost its end and the policy is to fail.
        """
        emitted: list[Emission] = []
        fill = max(1, room // max(1, len(candidates)))
        without = 0
        while room > 0 and without < len(candidates):
            at = candidates[self._turn % len(candidates)]
            self._turn += 1
            plan = at.manager.plan(
                at.bounds, max_offsets=min(fill, room), now_ms=now_ms, fresh=at.fresh
            )
            for wanted in plan.ranges:
                at.manager.emitted(wanted, now_ms)
                emitted.append(Emission(at.manager, wanted, plan.generation))
                room -= len(wanted)
            without = 0 if plan else without + 1
        return emitted


class CommitTimer:
    """Decides when to commit: at intervals, and if the wall clock was set back."""

    def __init__(self, interval_ms: int, now_ms: int) -> None:
        self._interval_ms = interval_ms
        self._last_ms = now_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether to commit now; ``now_ms`` is the wall clock."""
        passed_ms = now_ms - self._last_ms
        return passed_ms >= self._interval_ms or passed_ms < 0

    def committed(self, now_ms: int) -> None:
        """A commit was begun."""
        self._last_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """Milliseconds until the next commit is due."""
        return max(0, self._interval_ms - max(0, now_ms - self._last_ms))
