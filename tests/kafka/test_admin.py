from __future__ import annotations

import socket

import pytest

from kafka_tx.errors import AuthenticationError, BrokerUnavailableError
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.client_settings import ClientSettings


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


def test_who_was_let_in_and_is_refused_asks_once_more_on_a_new_client(
    admin_settings: ClientSettings,
) -> None:
    """The new one reads the files of certificates that were replaced meanwhile."""
    admin = AdminConnection(admin_settings)
    used = []

    def refused_once() -> str:
        used.append(admin.client)
        admin.metadata(Deadline(5_000))
        if len(used) == 1:
            raise AuthenticationError("certificate verify failed")
        return "answered"

    assert admin.renewed(refused_once) == "answered"
    assert used[0] is not used[1]
    admin.close()


def test_who_was_never_let_in_is_refused_at_once(
    admin_settings: ClientSettings,
) -> None:
    admin = AdminConnection(admin_settings)
    asked = []

    def refused() -> None:
        asked.append(admin.client)
        raise AuthenticationError("certificate verify failed")

    with pytest.raises(AuthenticationError):
        admin.renewed(refused)
    assert len(asked) == 1
    admin.close()
