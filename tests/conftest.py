"""A mock cluster for the tests that want one; each test makes its own topics."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator

import pytest

from kafka_tx.testing.mock import MockCluster

_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster() -> Iterator[MockCluster]:
    with MockCluster() as mock:
        yield mock


@pytest.fixture
def ipv6_loopback() -> str:
    """The machine's own IPv6 address; containers may lack it."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no ::1: {error}")
    return "::1"


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
