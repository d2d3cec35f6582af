"""A Kafka cluster in memory that counts what it is asked."""

from __future__ import annotations

from collections import Counter

import pytest

from kafka_tx.errors import BrokerUnavailableError
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.testing import MEMORY_BROKER, ManualClock, MemoryLog


def partition_of(name: str) -> TopicPartition:
    """The partition with the text form ``topic-3``."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


class Cluster(MemoryLog):
    """A memory log whose partitions go by their text form, with a clock beside it."""

    def __init__(self) -> None:
        super().__init__({})
        self.clock = ManualClock()
        self.requests: Counter[str] = Counter()
        self.is_down = False

    def fill(self, topic: str, *records: int) -> None:
        """Create a topic (again): each partition has so many records, ``t-0@7``."""
        self.create(topic, len(records))
        for number, count in enumerate(records):
            self.more(f"{topic}-{number}", count)

    def more(self, name: str, count: int) -> None:
        """Append so many records."""
        partition = partition_of(name)
        for _ in range(count):
            end = self.append_hole(partition, 0)
            self.append(partition, f"{name}@{end}".encode())

    def lose(self, name: str, lost: bool = True) -> None:
        """Leave a partition without a leader, or give it one again."""
        self.set_leader(partition_of(name), None if lost else MEMORY_BROKER)

    def values(self, topic: str, partitions: int) -> list[str]:
        """Every value, of partitions that still begin at offset 0."""
        found: list[str] = []
        for number in range(partitions):
            partition = TopicPartition(topic, number)
            end = self.append_hole(partition, 0)
            records = self.records(OffsetRange(partition, 0, end))
            found += [(record.value or b"").decode() for record in records]
        return found

    def topics(self, wanted):
        self._ask("topics")
        return super().topics(wanted)

    def bounds(self, partitions):
        self._ask("bounds")
        return super().bounds(partitions)

    def topic_ids(self, names):
        self._ask("topic_ids")
        return super().topic_ids(names)

    def offsets(self, wanted):
        self._ask("offsets")
        return super().offsets(wanted)

    def ends(self, partitions):
        self._ask("offsets")
        return super().ends(partitions)

    def close(self):
        self.requests["close"] += 1

    def _ask(self, request: str) -> None:
        self.requests[request] += 1
        if self.is_down:
            raise BrokerUnavailableError("no broker answers")


@pytest.fixture
def cluster():
    """A cluster without topics."""
    return Cluster()
