"""Looks at logs in which nothing happens: how rarely, and of how little they ask."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka_tx.model import Latest, LogBounds, TopicPartition, Unavailable
from kafka_tx.protocols import ClusterView

Bounds = Mapping[TopicPartition, LogBounds | Unavailable]

_PAUSE_MS_EACH = 4
"""Longest pause between two fruitless looks, for each partition.

A look costs the driver some 25 µs for each that is quiet, so idleness less than 1 % of
a core.
"""


def longest_pause_ms(partitions: int) -> int:
    """Give the pause between looks at so many partitions that stay quiet."""
    return partitions * _PAUSE_MS_EACH


def pause_ms(fruitless: int, shortest_ms: int, longest_ms: int) -> int:
    """Give the pause after so many looks without news: twice as long each time.

    Args:
        fruitless: Looks since there was news, 1 or more.
        shortest_ms: The first pause; no pause is shorter.
        longest_ms: No pause is longer, unless the shortest is.
    """
    pause = shortest_ms << min(fruitless - 1, 16)
    return min(pause, max(shortest_ms, longest_ms))


def look(
    cluster: ClusterView,
    partitions: Collection[TopicPartition],
    quiet: Mapping[TopicPartition, LogBounds],
) -> Bounds:
    """Ask for the bounds of partitions; of quiet ones for their ends only.

    A log that was read to its end, and still ends there, is taken to begin where it
    did: nothing would be read of it wherever it begins. That halves the cost.

    Args:
        cluster: What is asked.
        partitions: Those to look at.
        quiet: The last bounds of those of which all is read.

    Raises: as ``ClusterView.bounds``.
    """
    asked = {p: Latest() for p in partitions if p in quiet}
    ends = cluster.offsets(asked) if asked else {}
    same: dict[TopicPartition, LogBounds | Unavailable] = {
        p: quiet[p] for p, end in ends.items() if end == quiet[p].end
    }
    rest = [p for p in partitions if p not in same]
    return same | cluster.bounds(rest) if rest else same
