"""Decides which partition of a task emits next, and when to commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kafka_tx.model import LogBounds, OffsetRange
from kafka_tx.offsets.manager import PartitionManager


class EmitState(Enum):
    """The result of one ``next_tuple``.

    Source: Storm, PartitionManager.EmitState.
    """

    EMITTED_MORE_LEFT = "emitted, and the partition has more of this fill"
    EMITTED_END = "emitted the last of this fill"
    NO_EMITTED = "nothing to emit"


@dataclass(frozen=True, slots=True)
class Emission:
    """A range that was emitted.

    Attributes:
        manager: Manager of the partition; it gets the acks and fails.
        range: The offsets to read.
        generation: Pass it with every ack or fail.
    """

    manager: PartitionManager
    range: OffsetRange
    generation: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition that may emit.

    Attributes:
        manager: Manager of the partition.
        bounds: Bounds of its log.
        fresh: Whether new records may be emitted; retries always may.
    """

    manager: PartitionManager
    bounds: LogBounds
    fresh: bool = True


class RoundRobin:
    """Emits ranges of one partition after the other. Driver only, one thread.

    A partition is *filled* (planned, at most ``fill_offsets``) and emits its ranges one
    by one; then the next partition has its turn. No plan is kept between two chunks:
    offsets that were planned and not emitted are planned again.

    Source: Storm, KafkaSpout.nextTuple (deviates: ranges instead of single records).
    """

    def __init__(self) -> None:
        self._turn = 0
        self._waiting: deque[OffsetRange] = deque()
        self._generation = 0

    def chunk(
        self, candidates: Sequence[Candidate], *, room: int, now_ms: int
    ) -> list[Emission]:
        """Emit until ``room`` is used up, or no partition has anything to emit.

        Args:
            candidates: In assignment order.
            room: Most offsets, of all partitions together.
            now_ms: Monotonic time.

        Raises:
            OffsetOutOfRangeError: A log lost its end and the policy is to fail.
        """
        emitted: list[Emission] = []
        fill = max(1, room // max(1, len(candidates)))
        while room > 0:
            state, emission = self.next_tuple(
                candidates, fill=min(fill, room), now_ms=now_ms
            )
            if state is EmitState.NO_EMITTED or emission is None:
                break
            emitted.append(emission)
            room -= len(emission.range)
        if self._waiting:
            self._waiting.clear()
            self._turn += 1
        return emitted

    def next_tuple(
        self, candidates: Sequence[Candidate], *, fill: int, now_ms: int
    ) -> tuple[EmitState, Emission | None]:
        """Emit one range of the first partition, in turn, that has one.

        Each partition is tried once at most. The next partition has the next turn,
        unless this one has more ranges.

        Raises: as ``chunk``.
        """
        for _ in candidates:
            at = candidates[self._turn % len(candidates)]
            if not self._waiting:
                plan = at.manager.plan(
                    at.bounds, max_offsets=fill, now_ms=now_ms, fresh=at.fresh
                )
                self._waiting.extend(plan.ranges)
                self._generation = plan.generation
            if self._waiting:
                wanted = self._waiting.popleft()
                at.manager.emitted(wanted, now_ms)
                emission = Emission(at.manager, wanted, self._generation)
                if self._waiting:
                    return EmitState.EMITTED_MORE_LEFT, emission
                self._turn += 1
                return EmitState.EMITTED_END, emission
            self._turn += 1
        return EmitState.NO_EMITTED, None


class CommitTimer:
    """Decides when to commit: at intervals, and if the wall clock was set back.

    Source: Storm, KafkaSpout.nextTuple.
    """

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
