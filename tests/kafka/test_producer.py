"""Sending: everything is delivered, or the record that is not is named."""

from __future__ import annotations

import pickle
import threading
import weakref

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from kafka_tx.errors import DeliveryError, KafkaError
from kafka_tx.kafka import producer
from kafka_tx.kafka import sender as senders
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.producer import Deliveries, ProducerClient
from kafka_tx.kafka.sender import Sender
from kafka_tx.kafka.transaction import Transaction
from kafka_tx.native.idle_clients import Idle
from kafka_tx.testing.mock import MockCluster

LARGE = b"x" * 3_000_000


@pytest.fixture
def settings(cluster):
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "max.request.size": "1048576",  # the mock takes records of any size
    }
    return client_settings(options, purpose="producer")


def test_all_are_delivered_when_send_returns(settings, topic):
    records = [OutRecord(topic(), b"k", b"v")] * 1200

    with Sender(settings) as sender:
        assert sender.send(iter(records)) == 1200
        assert len(sender) == 0


def test_a_record_that_is_too_large_is_named_with_what_to_do(settings, topic):
    name = topic()

    with pytest.raises(DeliveryError) as raised, Sender(settings) as sender:
        sender.send([OutRecord(name, b"small", b"v"), OutRecord(name, b"big", LARGE)])

    error = pickle.loads(pickle.dumps(raised.value))
    assert (error.topic, error.key, error.size) == (name, b"big", 3_000_003)
    assert not error.retryable
    assert f"topic '{name}' with key b'big' and 3000003 bytes" in str(error)
    assert "kafka.max.request.size" in str(error)


def test_brokers_that_are_away_may_be_tried_again():
    with MockCluster() as away:
        options = {
            "bootstrap.servers": away.bootstrap_servers,
            "delivery.timeout.ms": "300",
        }
        away.create_topic("t")
        away.stop_broker()

        with pytest.raises(DeliveryError) as raised:
            Sender(client_settings(options, purpose="producer")).send(
                [OutRecord("t", None, b"v")]
            )

    assert raised.value.retryable
    assert "topic 't' with key null and 1 bytes" in str(raised.value)


def test_who_posts_a_record_is_told_of_it_alone(settings, topic):
    name = topic()
    outcomes: dict[str, DeliveryError | None] = {}

    with Sender(settings) as sender:
        sender.post(
            OutRecord(name, b"k", b"v"), lambda error: outcomes.update(good=error)
        )
        with pytest.raises(DeliveryError):
            sender.post(
                OutRecord(name, b"k", LARGE), lambda _: outcomes.update(bad=None)
            )
        sender.flush()

    assert outcomes == {"good": None}


def test_a_sender_is_used_again_but_never_by_two_at_once(settings):
    first = senders.borrow(settings)
    second = senders.borrow(settings)
    assert first is not second

    first.give_back()

    assert senders.borrow(settings) is first


def test_a_sender_that_nobody_awaits_is_not_lent_to_those_who_do(settings):
    forgetful = senders.borrow(settings, is_awaited=False)
    forgetful.give_back()

    assert senders.borrow(settings) is not forgetful
    assert senders.borrow(settings, is_awaited=False) is forgetful


def test_senders_that_nobody_borrows_are_closed(settings, monkeypatch):
    monkeypatch.setattr(senders, "_awaited", Idle(0.2, each=2))
    closed = [threading.Event() for _ in range(3)]
    for event in closed:
        sender = Sender(settings)
        weakref.finalize(sender, event.set)
        sender.give_back()
        del sender

    assert closed[0].is_set()  # there was no room for it
    assert all(event.wait(60) for event in closed)


@pytest.mark.parametrize(
    "contrary",
    [{"acks": "1"}, {"retries": "0"}, {"max.in.flight.requests.per.connection": "50"}],
    ids=lambda given: next(iter(given)),
)
def test_settings_that_contradict_idempotence_turn_it_off(cluster, topic, contrary):
    options = {"bootstrap.servers": cluster.bootstrap_servers, **contrary}

    with Sender(client_settings(options, purpose="producer")) as sender:
        assert sender.send([OutRecord(topic(), b"k", b"v")]) == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "true"), ({"acks": "all"}, "true"), ({"acks": "1"}, "false")],
    ids=["nothing", "acks=all", "acks=1"],
)
def test_retries_repeat_and_reorder_nothing_unless_told_otherwise(
    cluster, monkeypatch, given, expected
):
    made = {}

    def remember(settings, watch):
        made.update(settings)

    monkeypatch.setattr(producer, "new_producer", remember)
    options = {"bootstrap.servers": cluster.bootstrap_servers, **given}

    ProducerClient(client_settings(options, purpose="producer"), Deliveries())

    assert made["enable.idempotence"] == expected


def test_a_transaction_may_be_shorter_than_an_answer_is_awaited(settings, topic):
    short = settings | {"transaction.timeout.ms": "1500"}
    transaction = Transaction(short, "short", "a test", settings, "group")

    with transaction, transaction.writing():
        transaction.send([OutRecord(topic(), b"k", b"v")])
        transaction.client.commit_transaction(10)


@pytest.mark.parametrize(
    ("given", "becomes"), [("0", "120000"), ("9000", "9000"), ("999999", "120000")]
)
@pytest.mark.parametrize("name", ["delivery.timeout.ms", "message.timeout.ms"])
def test_no_record_of_a_transaction_is_awaited_longer_than_it_is_open(
    settings, name, given, becomes
):
    """0 is without limit: a partition without leader would be awaited for ever."""
    made = Transaction(settings | {name: given}, "t", "a test", settings, "group")

    assert made._settings[name] == becomes


@pytest.mark.parametrize(
    "code", [ClientError.PRODUCER_FENCED, ClientError._TIMED_OUT, ClientError._FAIL]
)
def test_a_commit_whose_answer_was_lost_may_have_been_done(
    settings, topic, monkeypatch, code
):
    made = Transaction(settings, topic(), "a test", settings, "group")
    commit = made.client.commit_transaction

    def commit_unheard(_):
        commit(30)
        raise KafkaException(ClientError(code))

    monkeypatch.setattr(made.client, "commit_transaction", commit_unheard)
    with made, made.writing():
        made.send([OutRecord(topic(), b"k", b"v")])
    monkeypatch.setattr("kafka_tx.kafka.transaction._WAIT_S", 0)
    with pytest.raises(
        KafkaError, match="whether it was committed is not known"
    ) as raised:
        made.commit()

    assert "is visible" not in str(raised.value)
