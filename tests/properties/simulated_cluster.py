"""What outlives a driver: logs, metadata answers, a store; and what is true of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from kafka_tx.errors import BrokerUnavailableError, StateUnavailableError
from kafka_tx.model import (
    Broker,
    CommittedOffset,
    LogBounds,
    Subscription,
    TopicDescription,
    TopicPartition,
    TopicPattern,
)
from kafka_tx.testing import MEMORY_BROKER, ManualClock, MemoryLog

OTHER_BROKER = Broker("other", 9092, 2)
ALL = TopicPattern(".*")


class World:
    """Brokers and a store that fail, and the records that nobody has processed yet.

    It checks every write to the store: the commit never passes an unfinished record.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog({"clicks": 1, "orders": 2})
        self.store: dict[TopicPartition, CommittedOffset] = {}
        self.store_fails = ""  # the next call: "", "refused" or "landed"
        self.answers: list[dict[str, TopicDescription]] = []
        self.answer: dict[str, TopicDescription] | None = {}
        self.unfinished: dict[TopicPartition, set[int]] = {}
        self.excused: dict[TopicPartition, int] = {}  # below a start at the latest
        self.may_lose: dict[TopicPartition, set[int]] = defaultdict(set)
        """What has failed, where records may fall too far behind."""
        self.seen: Counter[str] = Counter()
        self.partitions: list[TopicPartition] = []
        self.grow(1)
        self.answer_with("fresh")

    # --- the brokers ----------------------------------------------------------------

    def grow(self, clicks: int) -> None:
        """Let the topic that sorts first have so many partitions."""
        self.log.add_partitions("clicks", clicks)
        found = self.log.topics(ALL).values()
        self.partitions = [p for topic in found for p in topic.partitions]
        for partition in self.partitions:
            self.unfinished.setdefault(partition, set())

    def append(self, partition: TopicPartition, records: int, holes: int) -> None:
        first = self.log.append_hole(partition, holes)
        end = self.log.append(partition, *[b"record"] * records)
        self.unfinished[partition] |= set(range(first, end))
        self.seen["records"] += records

    def compact(self, partition: TopicPartition, which: int) -> None:
        bounds = self.true_bounds(partition)
        gone = set(range(bounds.log_start + which % 3, bounds.end, 3))
        self.log.compact(partition, gone)
        self.unfinished[partition] -= gone

    def trim(self, partition: TopicPartition, offsets: int) -> None:
        start = self.true_bounds(partition).log_start + offsets
        self.log.trim(partition, start)
        start = self.true_bounds(partition).log_start
        gone = {offset for offset in self.unfinished[partition] if offset < start}
        self.unfinished[partition] -= gone
        self.seen["trimmed unfinished"] += len(gone)

    def cut(self, partition: TopicPartition, offsets: int) -> int:
        """Lose the end; returns how many offsets."""
        bounds = self.true_bounds(partition)
        end = max(bounds.log_start, bounds.end - offsets)
        self.log.cut(partition, end)
        gone = {offset for offset in self.unfinished[partition] if offset >= end}
        self.unfinished[partition] -= gone
        self.seen["cut"] += bounds.end - end
        return bounds.end - end

    def forget(self, which: int) -> set[TopicPartition]:
        """A group's offsets expire, but for one partition's."""
        kept = self.partitions[which % len(self.partitions)]
        gone = set(self.store) - {kept}
        for partition in gone:
            del self.store[partition]
        return gone

    def true_bounds(self, partition: TopicPartition) -> LogBounds:
        bounds = self.log.bounds([partition])[partition]
        if isinstance(bounds, LogBounds):
            return bounds
        self.log.set_leader(partition, MEMORY_BROKER)
        found = self.true_bounds(partition)
        self.log.set_leader(partition, None)
        return found

    def bounds(self, partition: TopicPartition) -> LogBounds:
        bounds = self.log.bounds([partition])[partition]
        if isinstance(bounds, LogBounds):
            return bounds
        raise BrokerUnavailableError(bounds.reason)

    def answer_with(self, kind: str) -> None:
        """What the next metadata request will be answered."""
        fresh = self.log.topics(ALL)
        self.answers.append(fresh)
        match kind:
            case "empty":
                self.answer = {}
            case "older":
                self.answer = self.answers[len(self.answers) // 2]
            case "partial":
                self.answer = {"orders": fresh["orders"]}
            case "none":
                self.answer = None
            case _:
                self.answer = fresh

    def describe(self, _: Subscription) -> Mapping[str, TopicDescription]:
        if self.answer is None:
            raise BrokerUnavailableError("no broker answered")
        return self.answer

    def denied(self, ids: Mapping[str, str | None]) -> set[str]:
        """For a while brokers of another cluster answer, which has fewer topics."""
        return set(ids) if self.answer is not None else set()

    # --- the store ------------------------------------------------------------------

    def load(self, partition: TopicPartition) -> CommittedOffset | None:
        if self.store_fails:
            self.store_fails = ""
            raise StateUnavailableError("no answer")
        return self.store.get(partition)

    def write(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        fails, self.store_fails = self.store_fails, ""
        if fails == "refused":
            raise StateUnavailableError("no answer")
        self.check(partition, offset)
        self.store[partition] = offset
        self.seen["commits"] += 1
        self.seen["commits beyond a gap"] += bool(offset.completed)
        if fails == "landed":
            raise StateUnavailableError("no answer, and yet it landed")

    def check(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        """The commit never passes an unfinished record."""
        runs = [(self.excused.get(partition, 0), offset.offset), *offset.completed]
        passed = {
            record
            for record in self.unfinished[partition]
            if any(start <= record < end for start, end in runs)
        } - self.may_lose[partition]
        assert not passed, f"{partition}: {offset} passes {sorted(passed)}"
