"""A cluster that is a dict, and a clock that is moved by hand."""

from __future__ import annotations

import pytest

from tests.fake_cluster import FakeClock, FakeCluster


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture
def clock():
    return FakeClock()
