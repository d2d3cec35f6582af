"""The exactly-once sink, and looks at logs, on a network that swallows everything."""

from __future__ import annotations

import threading
import time

import pytest

from integration.cluster.proxied import ProxiedKafka
from integration.cluster.running import running
from integration.cluster.settings import STEADY
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import wait_until
from integration.sizes import EVERYTHING
from kafka_tx import sink_assembly
from kafka_tx.config import SinkConfig
from kafka_tx.errors import BrokerUnavailableError, KafkaError
from kafka_tx.kafka import transaction
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.cluster import KafkaClusterView
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.model import TopicPartition, TransactionAttempt

WAITS_S = 30 if EVERYTHING else 6
"""What users have, or less: it is waited out here."""
GIVES_UP_WITHIN_S = 2 * WAITS_S + 15
"""Two requests: the commit, and the look whether it was made."""


@pytest.fixture(scope="module")
def proxied():
    proxied = ProxiedKafka(settings=STEADY)
    with running(proxied):
        proxied.cluster.create_topic("out", 1)
        part(proxied, "first").write(RECORDS)  # makes the topics of transactions
        yield proxied


@pytest.fixture
def network(proxied, monkeypatch):
    """The brokers and the network to them, which is healed after each test."""
    assert transaction._WAIT_S == 30
    monkeypatch.setattr(transaction, "_WAIT_S", WAITS_S)
    yield proxied
    proxied.heal()


def part(network, sink, txid=1):
    options = {
        "bootstrap.servers": network.bootstrap_servers,
        "socket.timeout.ms": str(WAITS_S * 1000),
    }
    config = SinkConfig(
        kafka=options,
        topic="out",
        id=sink,
        attempt=TransactionAttempt(txid, 0),
        run="1",
    )
    return sink_assembly.part_transaction(config, 0)


RECORDS = [OutRecord("out", b"k", b"v")]


def test_a_writer_gives_up_on_silent_brokers_and_the_next_one_writes(network):
    sink = fresh_name("opening")
    assert part(network, sink).write(RECORDS).now
    network.half_open()
    began = time.monotonic()

    with pytest.raises(KafkaError) as caught:
        part(network, sink, 2).write(RECORDS)

    assert time.monotonic() - began < GIVES_UP_WITHIN_S
    assert caught.value.retryable
    network.heal()
    # the request that was given up may still arrive, and fence who comes first
    wait_until("it is written", lambda: part(network, sink, 2).write(RECORDS))
    assert not part(network, sink, 2).write(RECORDS).now


def test_a_commit_whose_answer_is_lost_is_looked_up(network, monkeypatch):
    real = transaction.Transaction.commit
    timer = threading.Timer(3, network.heal)

    def silenced(begun):
        network.half_open()
        timer.start()
        real(begun)

    sink = fresh_name("committing")
    writing = part(network, sink)
    with monkeypatch.context() as patch:
        patch.setattr(transaction.Transaction, "commit", silenced)
        try:
            writing.write(RECORDS)
        except KafkaError as error:
            assert error.retryable  # noqa: PT017 - either way is legal
        finally:
            timer.join()

    wait_until("it is written", lambda: part(network, sink).write(RECORDS))
    assert not part(network, sink).write(RECORDS).now


def test_a_request_goes_on_as_soon_as_the_network_does(network):
    """The connection that was silent stays so; the client would wait 30 s for it."""
    settings = client_settings(
        {"bootstrap.servers": network.bootstrap_servers}, purpose="admin"
    )
    view = KafkaClusterView(settings, timeout_ms=10_000, num_retries=1)
    # the broker may still end what an earlier test has begun in the other one
    quiet = fresh_name("quiet")
    network.cluster.create_topic(quiet, 1)
    first = [TopicPartition(quiet, 0)]
    before = view.bounds(first)
    network.half_open()
    with pytest.raises(BrokerUnavailableError):
        view.bounds(first)
    network.heal()

    assert view.bounds(first) == before
    view.close()
