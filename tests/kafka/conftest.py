"""Settings of clients of the mock cluster."""

from __future__ import annotations

import pytest

from kafka_tx.kafka.client_settings import ClientSettings, client_settings
from kafka_tx.testing.mock import MockCluster


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
