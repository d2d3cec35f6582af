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


def unchanged(
    cluster: ClusterView, quiet: Mapping[TopicPartition, LogBounds]
) -> dict[TopicPartition, LogBounds | Unavailable]:
    """Ask for the ends of quiet logs; give the bounds of those that still end there.

    A log that was read to its end, and still ends there, is taken to begin where it
    did, and to be of the same topic: nothing would be read of it. That halves the cost.
    A topic that was made anew with as many records is known by its id when topics are
    looked at next.

    Args:
        cluster: What is asked.
        quiet: The last bounds of logs of which all is read.

    Raises: as ``ClusterView.offsets``.
    """
    ends = cluster.offsets(dict.fromkeys(quiet, Latest())) if quiet else {}
    return {p: quiet[p] for p, end in ends.items() if end == quiet[p].end}


def look(
    cluster: ClusterView,
    partitions: Collection[TopicPartition],
    quiet: Mapping[TopicPartition, LogBounds],
) -> Bounds:
    """Ask for the bounds of partitions; of quiet ones for their ends only.

    Args:
        cluster: What is asked.
        partitions: Those to look at.
        quiet: See ``unchanged``.

    Raises: as ``ClusterView.bounds``.
    """
    same = unchanged(cluster, {p: quiet[p] for p in partitions if p in quiet})
    rest = [p for p in partitions if p not in same]
    return same | cluster.bounds(rest) if rest else same
