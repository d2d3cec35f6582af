"""Where damage ends; searches on real brokers are in integration."""

from __future__ import annotations

from unittest.mock import Mock

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


def test_a_record_that_can_be_read_by_now_is_not_named_as_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another leader has it: who leaves out what was named would lose it."""
    at = TopicPartition("orders", 0)
    consumer = Mock(get_watermark_offsets=lambda *_, **__: (0, 20))
    monkeypatch.setattr(damaged_records, "new_consumer", lambda *_: consumer)
    search = damaged_records._Search({"bootstrap.servers": "b:1"}, at)
    monkeypatch.setattr(search, "_is_readable", lambda start: start >= 10)

    assert search.end(10) is None
