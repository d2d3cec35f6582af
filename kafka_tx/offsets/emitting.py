"""Which records to emit next: the partitions of a task in turn, and when to commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kafka_tx.model import LogBounds, OffsetRange
from kafka_tx.offsets.manager import PartitionManager


class EmitState(Enum):
    """What one ``next_tuple`` did.

    Source: Storm, PartitionManager.EmitState.
    """

    EMITTED_MORE_LEFT = "emitted, and the partition has more of this fill"
    EMITTED_END = "emitted the last of this fill"
    NO_EMITTED = "nothing to emit"


@dataclass(frozen=True, slots=True)
class Emission:
    """A range that was emitted.

    Attributes:
        manager: Of its partition; gets the answers.
        range: What to read.
        generation: Comes back with every answer.
    """

    manager: PartitionManager
    range: OffsetRange
    generation: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition that may emit.

    Attributes:
        manager: Of the partition.
        bounds: What its log holds.
        fresh: Whether records may be emitted that never were before; retries always.
    """

    manager: PartitionManager
    bounds: LogBounds
    fresh: bool = True


class RoundRobin:
    """Emits ranges of one partition after the other. Driver only, one thread.

    A partition is *filled* (planned, at most ``fill_offsets``), emits its ranges one by
    one, and then it is the next one's turn. Nothing waits between two chunks: what was
    planned and not emitted is planned again.

    Source: Storm, KafkaSpout.nextTuple (deviates: ranges instead of messages).
    """

    def __init__(self) -> None:
        self._turn = 0
        self._waiting: deque[OffsetRange] = deque()
        self._generation = 0

    def chunk(
        self, candidates: Sequence[Candidate], *, room: int, now_ms: int
    ) -> list[Emission]:
        """Emit until ``room`` offsets are, or no partition has anything to emit.

        Args:
            candidates: In assignment order.
            room: Offsets of all partitions together.
            now_ms: Monotonic.

        Raises:
            OffsetOutOfRangeError: A log was cut and the policy is to fail.
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
        """Emit one range of the first partition, from this turn on, that has one.

        Each partition is tried at most once; it is the next one's turn unless more is
        left.

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
    """When to commit: every so often, and whenever the wall clock was set backwards.

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
        """How long until it is due."""
        return max(0, self._interval_ms - max(0, now_ms - self._last_ms))
