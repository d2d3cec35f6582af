"""A cluster that is a dict, a clock moved by hand, a poller on the test's thread."""

from __future__ import annotations

import pytest

from kafka_tx.testing import ManualClock
from tests.fake_cluster import FakeCluster
from tests.running.polling import WITHIN_S, Case


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture
def clock():
    return ManualClock(monotonic_ms=1_000_000)


@pytest.fixture
def case():
    made = Case()
    yield made
    assert made.poller.close(lambda: WITHIN_S)
