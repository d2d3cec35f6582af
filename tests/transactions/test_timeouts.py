"""Rotating maps: how long an entry lives."""

from __future__ import annotations

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.transactions.timeouts import RotatingMap


@pytest.mark.parametrize("buckets", [2, 3, 5])
def test_an_entry_falls_out_with_the_last_bucket(buckets):
    entries = RotatingMap[str, int](buckets)
    entries.put("a", 1)

    fallen = [entries.rotate() for _ in range(buckets)]

    assert fallen == [{}] * (buckets - 1) + [{"a": 1}]
    assert len(entries) == 0


def test_putting_again_starts_anew_and_reading_does_not():
    entries = RotatingMap[str, int](2)
    entries.put("put", 1)
    entries.put("read", 1)
    entries.rotate()

    entries.put("put", 2)
    assert entries.get("read") == 1

    assert entries.rotate() == {"read": 1}
    assert entries.rotate() == {"put": 2}


def test_an_entry_is_in_one_bucket_only():
    entries = RotatingMap[str, int](3)
    for value in range(5):
        entries.put("a", value)
        entries.rotate()

    assert len(entries) == 1
    assert list(entries) == ["a"]
    assert entries.remove("a") == 4
    assert "a" not in entries
    assert entries.remove("a") is None
    assert entries.get("a") is None


def test_putting_again_takes_it_out_of_the_oldest_bucket():
    entries = RotatingMap[str, int](3)
    entries.put("a", 1)
    entries.rotate()
    entries.rotate()

    entries.put("a", 2)

    assert list(entries) == ["a"]
    assert entries.rotate() == {}


def test_iteration_begins_with_the_youngest():
    entries = RotatingMap[str, int](3)
    entries.put("old", 1)
    entries.rotate()
    entries.put("young", 1)

    assert list(entries) == ["young", "old"]


@pytest.mark.parametrize("buckets", [1, 0, -1])
def test_fewer_than_two_buckets_are_refused(buckets):
    with pytest.raises(ConfigError, match="legal: a whole number >= 2"):
        RotatingMap(buckets)
