"""A cluster that is a dict, and a clock that is moved by hand."""

from __future__ import annotations

import pytest

from kafka_tx.testing import ManualClock
from kafka_tx.transactions.ledger import ledger
from tests.fake_cluster import FakeCluster

NUMBERING = "0a1b2c3d4e5f"


@pytest.fixture(autouse=True)
def numbering(monkeypatch):
    """All that begins here is one numbering; who wants another one gives its name."""
    monkeypatch.setattr(ledger, "new_name", lambda: NUMBERING)
    return NUMBERING


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture
def clock():
    return ManualClock()


def offsets_in(positions):
    """The offsets of positions, without what is known of their logs."""
    return {partition: at.offset for partition, at in positions.items()}


def mirror_into(mirrored):
    """A mirror that copies at once, into a list."""
    return lambda committed: mirrored.append(offsets_in(committed()))
