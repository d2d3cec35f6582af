"""Many ranges out of few fetches."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kafka_tx.errors import FetchError
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.running.at_least_once.reading import (
    NEAR,
    KafkaRecords,
    NumberedRange,
    fetches_of,
)
from kafka_tx.testing import MemoryLog
from kafka_tx.topology.rows.blocks import to_rows
from kafka_tx.topology.rows.schemes import StringScheme

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Reader:
    """Gives a log in batches of four records; fails before the offsets it is told."""

    def __init__(self, log):
        self.log, self.fetched = log, []
        self.fails_at: Counter[int] = Counter()

    def read(self, wanted):
        self.fetched.append((wanted.start, wanted.end))
        for start in range(wanted.start, wanted.end, 4):
            if self.fails_at[start]:
                self.fails_at[start] -= 1
                raise FetchError(f"no answer at {start}")
            part = OffsetRange(A, start, min(start + 4, wanted.end))
            yield from self.log.read(part)


@pytest.fixture
def reader():
    log = MemoryLog({"t": 2})
    log.append(A, *(str(n).encode() for n in range(20)))
    return Reader(log)


def numbered(*spans, partition=A):
    first, made = 0, []
    for start, end in spans:
        made.append(NumberedRange(OffsetRange(partition, start, end), first))
        first += end - start
    return made


def read(reader, *spans):
    """The texts of the records of each range, and the facts."""
    facts: dict[str, Any] = {}
    found: dict[int, list[str]] = {first: [] for first, _ in spans}
    ranges = tuple(
        NumberedRange(OffsetRange(A, start, end), start) for start, end in spans
    )
    for records in KafkaRecords(ranges, reader, StringScheme()).read(0, 1, facts):
        for root, row in zip(
            records.roots.tolist(), to_rows(records.block), strict=True
        ):
            first = max(start for start, _ in spans if start <= root)
            found[first].append(row[0])
    return list(found.values()), facts["t-0"]


def test_ranges_near_each_other_are_put_together():
    found = fetches_of(numbered((50, 51), (0, 5), (8, 9), (62, 70)), near=10)

    assert [[(n.range.start, n.range.end) for n in ranges] for ranges in found] == [
        [(0, 5), (8, 9)],
        [(50, 51)],
        [(62, 70)],
    ]


def test_ranges_of_two_partitions_are_not():
    found = fetches_of([*numbered((0, 5)), *numbered((5, 6), partition=B)])

    assert len(found) == 2


def test_one_fetch_gives_each_range_its_records_and_no_others(reader):
    found, facts = read(reader, (1, 2), (3, 6), (7, 8), (11, 12))

    assert found == [["1"], ["3", "4", "5"], ["7"], ["11"]]
    assert reader.fetched == [(1, 12)]
    assert facts["records"] == 6
    (took_ms,) = facts["fetch_ms"]
    assert took_ms > 0


def test_a_range_in_a_hole_is_empty(reader):
    reader.log.compact(A, range(3, 9))

    found, facts = read(reader, (2, 4), (5, 7), (9, 10))

    assert found == [["2"], [], ["9"]]
    assert facts["holes"] == [(3, 4), (5, 7)]


def test_a_failed_fetch_is_begun_anew_with_the_next_range(reader):
    reader.fails_at[0] = 1

    found, facts = read(reader, (0, 2), (5, 7), (11, 12))

    assert found == [[], ["5", "6"], ["11"]]
    assert reader.fetched == [(0, 12), (5, 12)]
    assert facts["errors"] == ["KAFKA_TX_FETCH"]


def test_tasks_share_the_fetches_and_tell_how_long_they_took(reader):
    ranges = numbered((0, 2), (4, 5), (18 + NEAR, 20 + NEAR))
    chunk = KafkaRecords(tuple(ranges), reader, StringScheme())

    facts: list[dict[str, Any]] = [{}, {}]
    found = [
        [records.read.tolist() for records in chunk.read(task, 2, facts[task])]
        for task in range(2)
    ]

    assert found == [[[0, 1], [2]], [[3, 4]]]
    assert facts[0]["t-0"]["records"] == 3
    assert len(facts[1]["t-0"]["fetch_ms"]) == 1
