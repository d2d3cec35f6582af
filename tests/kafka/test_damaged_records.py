"""Where damage ends; searches on real brokers are in integration."""

from __future__ import annotations

import pytest

from kafka_tx.kafka import damaged_records
from kafka_tx.model import TopicPartition


class Replicas:
    """The leader of each search; records below its end are damaged."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)

    def __call__(self, settings: object, partition: object) -> Replicas:
        return self

    def end(self, position: int) -> int:
        return self.ends.pop(0)

    def close(self) -> None:
        pass


def test_the_next_leader_is_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its damage may end before: who leaves out the former end loses good records."""
    monkeypatch.setattr(damaged_records, "_Search", Replicas(20, 12))
    at = {"bootstrap.servers": "one:9092"}, TopicPartition("orders", 0), 10

    assert damaged_records.end_of_damage(*at) == 20
    assert damaged_records.end_of_damage(*at) == 12
