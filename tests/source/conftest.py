"""A cluster that is a dict, and a clock that is moved by hand."""

from __future__ import annotations

import pytest

from kafka_tx.transactions import ledger
from tests.fake_cluster import FakeClock, FakeCluster

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
    return FakeClock()
