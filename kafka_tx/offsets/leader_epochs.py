"""Leader epochs of many partitions as short JSON.

Most partitions of a topic share an epoch. So a topic is a list of epochs, each with the
numbers of its partitions: ``{"orders": [[5, "0-999"], [6, "3,17-19"]]}``. The first
epoch is the most common one. Its numbers cover all known partitions, and later entries
overrule it. Partitions without a known epoch are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from kafka_tx.model import TopicPartition

Entries = list[list[int | str]]


def packed(epochs: Mapping[TopicPartition, int]) -> dict[str, Entries]:
    """Pack epochs; topics and epochs ascending, except a topic's first epoch."""
    by_topic = groupby(sorted(epochs), itemgetter(0))
    return {topic: _packed(list(its), epochs) for topic, its in by_topic}


def unpacked(data: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Undo ``packed``; raises ValueError or TypeError for data of another form."""
    found: dict[TopicPartition, int] = {}
    for topic, entries in data.items():
        for epoch, runs in entries:
            found |= dict.fromkeys(_partitions(topic, runs), int(epoch))
    return found


def _packed(
    its: Sequence[TopicPartition], epochs: Mapping[TopicPartition, int]
) -> Entries:
    everything = [number for _, number in its]
    known = list(map(epochs.__getitem__, its))
    if known.count(known[0]) == len(known):  # the usual case: faster
        return [[known[0], _runs(everything)]]
    numbers = defaultdict[int, list[int]](list)
    for epoch, number in zip(known, everything, strict=True):
        numbers[epoch].append(number)
    usual = max(numbers, key=lambda epoch: len(numbers[epoch]))
    others: Entries = [[e, _runs(numbers[e])] for e in sorted(numbers) if e != usual]
    return [[usual, _runs(everything)], *others]


def _runs(numbers: Sequence[int]) -> str:
    """Ascending numbers as ``0-2,5``."""
    first = last = numbers[0]
    if numbers[-1] - first == len(numbers) - 1 > 0:  # the usual case: faster
        return f"{first}-{numbers[-1]}"
    runs = []
    for number in (*numbers[1:], -1):
        if number != last + 1:
            runs.append(str(first) if first == last else f"{first}-{last}")
            first = number
        last = number
    return ",".join(runs)


@lru_cache(64)
def _partitions(topic: str, runs: str) -> tuple[TopicPartition, ...]:
    """Partitions of a topic; cached, as all offsets of a query name the same."""
    ends = (run.partition("-") for run in runs.split(","))
    return tuple(
        TopicPartition(topic, number)
        for first, _, last in ends
        for number in range(int(first), int(last or first) + 1)
    )
