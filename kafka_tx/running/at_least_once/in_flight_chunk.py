"""A chunk of an at-least-once topology from its start until its records are settled."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kafka_tx.model import OffsetRange, TransactionAttempt
from kafka_tx.offsets.emitting import Emission
from kafka_tx.running.at_least_once.reading import NumberedRange
from kafka_tx.topology.at_least_once.lineage import runs_of
from kafka_tx.topology.run.messages import Roots


@dataclass(eq=False)
class InFlightChunk:
    """A chunk of one spout's records that was sent.

    Attributes:
        attempt: The number of the chunk, as its jobs use it.
        spout: The spout's component name.
        first_root: The first one of its root numbers.
        emissions: Its records, in the order of the numbers.
        since_ms: When it was sent (monotonic).
        waited: How often its time-out was over, but the runner waited longer.
        is_old: Whether it times out with the next rotation.
        left: Records of an ended job that a rich bolt neither acked nor failed
            (ascending); None: the job has not ended.
    """

    attempt: TransactionAttempt
    spout: str
    first_root: int
    emissions: Sequence[Emission]
    since_ms: int
    waited: int = 0
    is_old: bool = False
    left: Roots | None = None
    _firsts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        sizes = [len(emission.range) for emission in self.emissions]
        ends = np.cumsum([self.first_root, *sizes]).tolist()
        self._firsts = ends[:-1]
        self.end = ends[-1]
        """The root after the last one."""

    def __len__(self) -> int:
        return int(self.end - self.first_root)

    @property
    def roots(self) -> Roots:
        """The roots of all its records."""
        return np.arange(self.first_root, self.end)

    @property
    def open(self) -> int:
        """Number of records without a result yet."""
        return len(self) if self.left is None else len(self.left)

    @property
    def numbered(self) -> tuple[NumberedRange, ...]:
        """Its ranges with their numbers."""
        pairs = zip(self.emissions, self._firsts, strict=True)
        return tuple(NumberedRange(emission.range, first) for emission, first in pairs)

    def offsets(self, roots: Roots) -> Iterator[tuple[Emission, OffsetRange]]:
        """The runs of offsets that belong to these roots (ascending)."""
        return self.offsets_of(runs_of(roots))

    def offsets_of(
        self, runs: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[Emission, OffsetRange]]:
        """The runs of offsets that belong to these runs of roots."""
        for low, high in runs:
            while low < high:
                at = bisect_right(self._firsts, low) - 1
                emission, first = self.emissions[at], self._firsts[at]
                shift = emission.range.start - first
                end = min(high, first + len(emission.range))
                yield emission, emission.range.between(low + shift, end + shift)
                low = end
