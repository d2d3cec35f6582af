"""A cluster that is a dict, a clock moved by hand, a poller on the test's thread."""

from __future__ import annotations

import pytest

from tests.fake_cluster import FakeClock, FakeCluster
from tests.running.polling import WITHIN_S, Case


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def case():
    made = Case()
    yield made
    assert made.poller.close(lambda: WITHIN_S)
