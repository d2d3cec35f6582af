"""Acknowledging pending offsets: kafka_tx's runs against a SortedDict.

``random``: 1,000,000 pending offsets are acknowledged one by one in random order.
``range``: one batch of 100,000 contiguous offsets is emitted and acknowledged.

Seconds are of processor time: nothing here waits, and a busy machine blurs it less.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from statistics import median
from time import process_time

from sortedcontainers import SortedDict

from benchmarks.report import Case, print_report
from kafka_tx.model import CommittedOffset, OffsetRange, TopicPartition
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.unfinished import PartitionRules

ORDERS = TopicPartition("orders", 0)
PENDING = 1_000_000
BATCH = 100_000


class ObviousManager:
    """One sorted entry for each pending record, with the time of its emission."""

    def __init__(self) -> None:
        self.emitted_to = 0
        self._pending = SortedDict()

    def emitted(self, planned: OffsetRange, now_ms: int) -> None:
        for offset in range(planned.start, planned.end):
            self._pending[offset] = now_ms
        self.emitted_to = planned.end

    def ack(self, offset: int) -> None:
        self._pending.pop(offset, None)

    def ack_range(self, done: OffsetRange) -> None:
        for offset in range(done.start, done.end):
            self._pending.pop(offset, None)

    @property
    def last_completed_offset(self) -> int:
        return self._pending.peekitem(0)[0] if self._pending else self.emitted_to


def our_manager() -> PartitionManager:
    rules = PartitionRules(max_uncommitted_offsets=None)
    return PartitionManager(ORDERS, rules, CommittedOffset(0))


def measure_random(
    manager: PartitionManager | ObviousManager, order: list[int]
) -> float:
    manager.emitted(OffsetRange(ORDERS, 0, len(order)), 0)
    ack = manager.ack
    started = process_time()
    for offset in order:
        ack(offset)
    seconds = process_time() - started
    assert manager.last_completed_offset == len(order)
    return seconds


def measure_range(manager: PartitionManager | ObviousManager) -> float:
    batch = OffsetRange(ORDERS, 0, BATCH)
    ack = manager.ack if isinstance(manager, PartitionManager) else manager.ack_range
    started = process_time()
    manager.emitted(batch, 0)
    ack(batch)
    seconds = process_time() - started
    assert manager.last_completed_offset == BATCH
    return seconds


def compare(
    case: str,
    rounds: int,
    measure: Callable[[PartitionManager | ObviousManager], float],
) -> Case:
    """Medians of alternating rounds after one for warming up."""
    ours, theirs = [], []
    for _ in range(rounds + 1):
        ours.append(measure(our_manager()))
        theirs.append(measure(ObviousManager()))
    return Case(case, median(ours[1:]), median(theirs[1:]), "s")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks pending")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    chosen = parser.parse_args(arguments)
    order = list(range(PENDING))
    random.Random(7).shuffle(order)
    cases = [
        compare(
            "random", chosen.rounds, lambda manager: measure_random(manager, order)
        ),
        compare("range", chosen.rounds, measure_range),
    ]
    print_report("pending", "a SortedDict of records", cases, as_json=chosen.json)
