"""A mock cluster for all tests of this room; each test makes its own topics."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from kafka_tx.kafka.mock import MockCluster
from kafka_tx.kafka.settings import ClientSettings, client_settings

_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster() -> Iterator[MockCluster]:
    with MockCluster() as mock:
        yield mock


@pytest.fixture
def topic(cluster: MockCluster) -> Callable[..., str]:
    """Make a topic with a fresh name and these values in partition 0."""

    def make(*values: bytes, partitions: int = 1) -> str:
        name = f"topic-{next(_numbers)}"
        cluster.create_topic(name, partitions)
        for value in values:
            cluster.produce(name, value)
        cluster.flush()
        return name

    return make


@pytest.fixture
def admin_settings(cluster: MockCluster) -> ClientSettings:
    options = {"bootstrap.servers": cluster.bootstrap_servers}
    return client_settings(options, purpose="admin")


@pytest.fixture
def consumer_settings(cluster: MockCluster) -> ClientSettings:
    options = {"bootstrap.servers": cluster.bootstrap_servers}
    return client_settings(options, purpose="consumer")


@pytest.fixture
def login_options(cluster: MockCluster) -> dict[str, str]:
    """Options of a user whom the cluster does not let in: it knows no log-in."""
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "sesame",
    }
