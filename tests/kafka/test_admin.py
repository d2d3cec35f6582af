from __future__ import annotations

import socket

import pytest

from kafka_tx.errors import BrokerUnavailableError
from kafka_tx.kafka.admin import AdminConnection, Deadline


def test_after_silence_the_next_request_goes_over_new_connections() -> None:
    """An old connection may be silent for ever; only its time-out would tell."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        admin = AdminConnection({"bootstrap.servers": f"{host}:{port}"})
        first = admin.client

        with pytest.raises(BrokerUnavailableError):
            admin.metadata(Deadline(300))

        assert admin.client is not first
        admin.close()
