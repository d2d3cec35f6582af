"""Clients of librdkafka as everything else gets them."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, KafkaException

from kafka_tx.errors import ConfigError
from kafka_tx.kafka import clients
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.clients import new_consumer
from kafka_tx.kafka.errors import ErrorWatch

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}
NAME = "kafka_tx-close"


def closing_threads():
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def test_a_consumer_that_never_ends_is_left_to_itself(monkeypatch):
    usual = new_consumer(NOWHERE, ErrorWatch(""))
    usual.close()
    assert not closing_threads()
    monkeypatch.setattr(clients, "_CLOSED_WITHIN_S", 0.1)
    may_end = threading.Event()

    class Endless(Consumer):
        def close(self):
            may_end.wait()
            super().close()

    class Stuck(type(usual), Endless):  # type: ignore[misc]
        """As ``new_consumer`` makes them, around one that does not end."""

    Stuck({**NOWHERE, "group.id": "any"}).close()
    (left,) = closing_threads()

    assert left.daemon
    may_end.set()
    left.join()


def test_without_threads_a_consumer_is_closed_in_place(monkeypatch):
    consumer = new_consumer(NOWHERE, ErrorWatch(""))
    refused = []

    class NoThread(threading.Thread):
        def start(self):
            refused.append(self)
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(clients, "Thread", NoThread)

    consumer.close()

    assert len(refused) == 1
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


@pytest.mark.parametrize(
    "given",
    ["ssl.truststore.location", "ssl.keystore.location", "ssl.ca.location"],
)
@pytest.mark.parametrize("name", ["missing.pem", "other.pem"])
def test_a_file_of_certificates_that_cannot_be_used_is_named(tmp_path, given, name):
    (tmp_path / "other.pem").write_text("no certificate")
    file = f"{tmp_path}/{name}"
    options = {**NOWHERE, "security.protocol": "SSL", given: file}

    with pytest.raises(ConfigError) as refused:
        new_consumer(client_settings(options, purpose="consumer"), ErrorWatch(""))

    said = str(refused.value)
    assert f"The file {file} of option" in said
    assert f"'kafka.{given}'" in said
    assert "must exist on this machine, be readable by this user, and be PEM" in said


@pytest.mark.parametrize("given", [{"sasl.mechanism": "GSSAPI"}, {}])
def test_a_client_without_kerberos_says_how_to_get_one(given):
    """docs/security.md says that the published packages are such clients."""
    options = {**NOWHERE, "security.protocol": "SASL_SSL", **given}
    with suppress(KafkaException):
        Consumer({"group.id": "any", "builtin.features": "sasl_gssapi"}).close()
        pytest.skip("this client has Kerberos")

    with pytest.raises(ConfigError, match=r"GSSAPI.*install librdkafka with it and"):
        new_consumer(client_settings(options, purpose="consumer"), ErrorWatch(""))


AT_THE_END = """
from kafka_tx.kafka.clients import new_consumer
from kafka_tx.kafka.errors import ErrorWatch

def reading():
    consumer = new_consumer({"bootstrap.servers": "127.0.0.1:1"}, ErrorWatch(""))
    try:
        yield
    finally:
        consumer.close()
        print("closed")

class Holder:
    pass

holder = Holder()
holder.itself, holder.reading = holder, reading()  # collected when the process ends
next(holder.reading)
"""


def test_a_reader_that_the_end_of_the_process_closes_does_not_hold_it_up():
    ended = subprocess.run(
        [sys.executable, "-c", AT_THE_END],
        timeout=60,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    assert ended.stdout == "closed\n"
