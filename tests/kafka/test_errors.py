"""What a client reports becomes one clear error."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    KafkaError,
    UnknownTopicError,
)
from kafka_tx.kafka.errors import (
    ErrorWatch,
    client_error,
    translated,
    unreachable,
    without_secrets,
)

ADDRESSES = "one:9092,two:9092"


def watch_after(*errors: ClientError) -> ErrorWatch:
    watch = ErrorWatch(ADDRESSES)
    for error in errors:
        watch(error)
    return watch


def test_refused_credentials_are_raised_with_the_addresses() -> None:
    watch = watch_after(ClientError(ClientError._AUTHENTICATION, "wrong password"))

    with pytest.raises(AuthenticationError, match=r"one:9092,two:9092.*wrong"):
        watch.raise_refusal()


def test_a_bad_certificate_is_raised_at_once() -> None:
    watch = watch_after(ClientError(ClientError._SSL, "certificate verify failed"))

    with pytest.raises(AuthenticationError, match="certificate verify failed"):
        watch.raise_refusal()


def test_a_broken_handshake_is_raised_when_it_repeats() -> None:
    broken = ClientError(ClientError._SSL, "handshake failed: Disconnected")

    watch_after(broken, broken).raise_refusal()
    with pytest.raises(AuthenticationError, match="Disconnected"):
        watch_after(broken, broken, broken).raise_refusal()


def test_a_rejected_certificate_of_the_client_is_raised_whatever_its_code() -> None:
    alert = "Receive failed: SSL routines::ssl/tls alert bad certificate"
    watch = watch_after(ClientError(ClientError._TRANSPORT, alert))

    with pytest.raises(AuthenticationError, match="alert bad certificate"):
        watch.raise_refusal()


def test_a_login_cut_off_by_a_dying_broker_is_raised_when_it_repeats() -> None:
    cut = ClientError(
        ClientError._AUTHENTICATION,
        "SASL PLAIN mechanism handshake failed: Local: Broker transport failure",
    )

    watch_after(cut).raise_refusal()
    with pytest.raises(AuthenticationError):
        watch_after(cut, cut, cut).raise_refusal()


def test_the_client_s_log_gives_the_reason_where_nothing_was_reported() -> None:
    watch = watch_after(ClientError(ClientError._ALL_BROKERS_DOWN, "1/1 are down"))

    watch.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#1", "[thrd:x]: to SSL?")

    assert watch.reason() == " Last report of the client: to SSL?."


def test_the_client_s_log_is_passed_on_as_information(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        ErrorWatch(ADDRESSES).log(logging.CRITICAL, "%s [%s] %s", "FAIL", "me", "down")

    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", "FAIL [me] down")
    ]


def test_broken_handshakes_before_an_answer_are_forgotten() -> None:
    broken = ClientError(ClientError._SSL, "handshake failed: Disconnected")
    watch = watch_after(broken, broken)

    watch.answered()
    watch(broken)

    watch.raise_refusal()


def test_a_broker_that_is_away_is_no_refusal() -> None:
    watch_after(ClientError(ClientError._TRANSPORT, "refused")).raise_refusal()


def test_an_unreachable_cluster_is_told_with_addresses_time_and_last_report() -> None:
    watch = watch_after(
        ClientError(ClientError._TRANSPORT, "Connection refused"),
        ClientError(ClientError._ALL_BROKERS_DOWN, "2/2 brokers are down"),
    )

    text = str(unreachable("a metadata request", 1500, watch))

    assert "no broker at one:9092,two:9092 answered a metadata request" in text
    assert "within 1500 ms" in text
    assert "Connection refused" in text


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ClientError.TOPIC_AUTHORIZATION_FAILED, AuthenticationError),
        (ClientError.GROUP_AUTHORIZATION_FAILED, AuthenticationError),
        (ClientError.SASL_AUTHENTICATION_FAILED, AuthenticationError),
        (ClientError.UNKNOWN_TOPIC_OR_PART, UnknownTopicError),
        (ClientError._UNKNOWN_PARTITION, UnknownTopicError),
        (ClientError._TIMED_OUT, BrokerUnavailableError),
        (ClientError._TRANSPORT, BrokerUnavailableError),
        (ClientError.REQUEST_TIMED_OUT, BrokerUnavailableError),
        (ClientError.INVALID_REQUEST, KafkaError),
    ],
)
def test_a_code_becomes_an_error_of_the_tree(code: int, kind: type[KafkaError]) -> None:
    error = translated(
        ClientError(code, "because"), "topic 'orders'", ErrorWatch("a:1")
    )

    assert type(error) is kind
    assert "topic 'orders'" in str(error)
    assert "because" in str(error)
    assert "a:1" in str(error)


def test_an_exception_of_the_client_without_an_error_inside_keeps_its_text() -> None:
    assert "odd" in client_error(KafkaException("odd")).str()


def test_secrets_are_blotted_out() -> None:
    text = without_secrets("value sesame is bad", {"sasl.password": "sesame", "x": ""})

    assert text == "value *** is bad"


@pytest.mark.parametrize(
    "host", ["certificate.example:9093", "my-certificate-broker:9093/bootstrap"]
)
def test_a_host_may_be_called_certificate(host: str) -> None:
    text = f"ssl://{host}: Connect to ipv4#10.0.0.1:9093 failed: Connection refused"
    watch = watch_after(ClientError(ClientError._TRANSPORT, text))
    watch.raise_refusal()

    refusal = f"ssl://{host}: error:0A000086:SSL routines::certificate verify failed"
    watch = watch_after(ClientError(ClientError._SSL, refusal))
    with pytest.raises(AuthenticationError):
        watch.raise_refusal()


def test_a_client_that_was_answered_forgets_a_refusal() -> None:
    watch = watch_after(ClientError(ClientError._AUTHENTICATION, "wrong password"))
    watch.answered()

    watch.raise_refusal()


def test_a_token_that_comes_too_soon_is_no_refusal_yet() -> None:
    text = "handshake failed: Broker: Request not valid in current SASL state"
    watch_after(ClientError(ClientError._AUTHENTICATION, text)).raise_refusal()
