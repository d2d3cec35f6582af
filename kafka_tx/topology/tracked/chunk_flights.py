"""Chunks of records on their way: from root numbers back to offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kafka_tx.model import OffsetRange, TransactionAttempt
from kafka_tx.offsets.emitting import Emission
from kafka_tx.topology.tracked.record_sources import NumberedRange
from kafka_tx.topology.tracked.trees import runs_of
from kafka_tx.transactions.root_blocks import Roots


@dataclass(eq=False)
class ChunkFlight:
    """A chunk of one spout's records that was sent.

    Attributes:
        attempt: The number of the chunk, as its jobs know it.
        spout: The component.
        first_root: Of its block of root numbers.
        emissions: What it holds, in the order of the numbers.
        since_ms: When it was sent (monotonic).
        waited: How often its time was over, and it was waited for nevertheless.
    """

    attempt: TransactionAttempt
    spout: str
    first_root: int
    emissions: Sequence[Emission]
    since_ms: int
    waited: int = 0
    _firsts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        sizes = [len(emission.range) for emission in self.emissions]
        ends = np.cumsum([self.first_root, *sizes]).tolist()
        self._firsts = ends[:-1]
        self.end = ends[-1]
        """The root after the last one."""
        self.open = self.end - self.first_root
        """Records of which nothing is known yet."""

    @property
    def roots(self) -> Roots:
        """All of them."""
        return np.arange(self.first_root, self.end)

    @property
    def numbered(self) -> tuple[NumberedRange, ...]:
        """Its ranges with their numbers."""
        pairs = zip(self.emissions, self._firsts, strict=True)
        return tuple(NumberedRange(emission.range, first) for emission, first in pairs)

    def offsets(self, roots: Roots) -> Iterator[tuple[Emission, OffsetRange]]:
        """What these roots (ascending) are, as runs of offsets."""
        for low, high in runs_of(roots):
            while low < high:
                at = bisect_right(self._firsts, low) - 1
                emission, first = self.emissions[at], self._firsts[at]
                shift = emission.range.start - first
                end = min(high, first + len(emission.range))
                yield emission, emission.range.between(low + shift, end + shift)
                low = end


class ChunkFlights:
    """All chunks whose records are not all settled, in the order of their roots."""

    def __init__(self) -> None:
        self._flights: dict[int, ChunkFlight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, flight: ChunkFlight) -> bool:
        return flight.first_root in self._flights

    def add(self, flight: ChunkFlight) -> None:
        """It is sent."""
        self._flights[flight.first_root] = flight

    def settled(self, flight: ChunkFlight, count: int) -> None:
        """So many of its records have ended; forgets it with the last."""
        flight.open -= count
        if flight.open <= 0:
            self._flights.pop(flight.first_root, None)

    def timed_out(self, roots: Roots) -> Iterator[tuple[ChunkFlight, Roots]]:
        """The flights these roots (ascending) belong to; each is forgotten."""
        for flight in list(self._flights.values()):
            low, high = np.searchsorted(roots, [flight.first_root, flight.end])
            if low < high:
                del self._flights[flight.first_root]
                yield flight, roots[low:high]

    @property
    def open(self) -> int:
        """Records on their way."""
        return sum(flight.open for flight in self._flights.values())
