"""A Kafka cluster in memory that counts what it is asked."""

from __future__ import annotations

import pytest

from tests.topology.conftest import Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()
