"""What both readers make of logs and brokers that are not as they should be."""

from __future__ import annotations

import ctypes
import re
import socketserver
import threading
import time

import pytest

from kafka_tx.errors import (
    AuthenticationError,
    ConfigError,
    DamagedRecordsError,
    FetchError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafka_tx.kafka import range_fetch
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.native import reader as native_reader
from kafka_tx.testing.mock import MockCluster
from tests.native.asking import for_consumer, range_of, values_of
from tests.prompt_errors import prompt_error


@pytest.fixture
def short_grace(monkeypatch):
    monkeypatch.setattr(range_fetch, "_GRACE_S", 0.3)
    monkeypatch.setattr(native_reader, "_GRACE_MS", 300)


# --- what is not in the log ---------------------------------------------------------


def test_a_range_beyond_the_log_names_what_the_log_holds(reader, topic):
    name = topic(b"a", b"b")

    with pytest.raises(OffsetOutOfRangeError, match=r"\[0, 2\)") as caught:
        values_of(reader(), range_of(name, 10, 20))

    fields = caught.value.fields
    assert (fields["topic"], fields["partition"]) == (name, 0)
    assert (fields["wanted"], fields["log_start"], fields["log_end"]) == (10, 0, 2)


def test_a_range_that_ends_beyond_the_log_is_given_up_after_a_grace(
    reader, topic, short_grace
):
    name = topic(b"a", b"b")

    error = prompt_error(
        lambda: values_of(reader(), range_of(name, 1, 5)), 4, OffsetOutOfRangeError
    )

    fields = error.fields
    assert (fields["wanted"], fields["log_start"], fields["log_end"]) == (2, 0, 2)


def test_records_that_come_within_the_grace_are_read(reader, topic, cluster):
    name = topic(b"a", b"b")

    def produce_later():
        time.sleep(0.5)
        cluster.produce(name, b"c")
        cluster.flush()

    thread = threading.Thread(target=produce_later)
    thread.start()
    found = values_of(reader(), range_of(name, 1, 3))
    thread.join()

    assert found == [b"b", b"c"]


def test_a_partition_that_does_not_exist_is_named(reader, topic, short_grace):
    name = topic(b"a")

    with pytest.raises(UnknownTopicError, match=f"{name}-9"):
        list(reader().read(OffsetRange(TopicPartition(name, 9), 0, 1)))


def test_the_grace_of_a_small_range_is_no_longer_than_that_of_others(
    reader, topic, monkeypatch
):
    monkeypatch.setattr(range_fetch, "_GRACE_S", 1.5)
    monkeypatch.setattr(native_reader, "_GRACE_MS", 1_500)
    missing = OffsetRange(TopicPartition(topic(b"a"), 9), 0, 1)

    def read():
        list(reader().read(missing))

    prompt_error(read, 3.4, UnknownTopicError)


# --- brokers that cannot be had -----------------------------------------------------


def test_an_address_where_nobody_listens_is_named_within_the_time_out(reader):
    nowhere = for_consumer(bootstrap_servers="127.0.0.1:1")

    def read():
        values_of(reader(nowhere, timeout_ms=700), range_of("orders", 7, 9))

    error = prompt_error(read, 4, FetchError)

    text = str(error)
    assert "orders-0 [7, 9)" in text
    assert "no progress for 0.7 s at offset 7" in text
    assert "127.0.0.1:1" in text
    assert "Connection refused" in text
    assert error.retryable
    assert error.fields["position"] == 7


def test_a_broker_lost_in_mid_range_is_waited_for(reader):
    values = [b"%08d" % number + b"x" * 992 for number in range(4_000)]
    with MockCluster() as own:
        own.create_topic("orders")
        for value in values:
            own.produce("orders", value)
        own.flush()
        settings = for_consumer(
            bootstrap_servers=own.bootstrap_servers,
            queued_min_messages="1",
            max_partition_fetch_bytes="20000",
        )
        patient = reader(settings, timeout_ms=15_000, batch_bytes=50_000)
        batches = patient.read(range_of("orders", 0, len(values)))

        found = next(batches)["value"].to_pylist()
        own.stop_broker()
        starter = threading.Timer(0.7, own.start_broker)
        starter.start()
        for batch in batches:
            found += batch["value"].to_pylist()
        starter.join()

    assert found == values


class SpeaksNoTls(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(1_000)
        self.request.sendall(b"this is no handshake")


def test_a_broker_that_speaks_no_tls_refuses_the_client(reader):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), SpeaksNoTls) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        settings = for_consumer(
            bootstrap_servers=f"127.0.0.1:{server.server_address[1]}",
            security_protocol="ssl",
        )
        try:
            with pytest.raises(AuthenticationError, match="refused this client"):
                values_of(reader(settings, timeout_ms=15_000), range_of("t", 0, 1))
        finally:
            server.shutdown()
            thread.join()


def test_a_setting_that_librdkafka_refuses_is_named_without_secrets(reader, cluster):
    settings = for_consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        security_protocol="ssl",
        ssl_key_pem="hidden secret",
    )

    with pytest.raises(ConfigError, match=r"ssl\.key\.pem") as caught:
        values_of(reader(settings), range_of("orders", 0, 1))

    assert "hidden secret" not in str(caught.value)


def test_a_refused_log_in_is_told_long_before_the_time_out(reader, cluster):
    settings = for_consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="sesame",
    )

    def read():
        values_of(reader(settings, timeout_ms=60_000), range_of("orders", 0, 1))

    prompt_error(read, 5, AuthenticationError, "SASL")


# --- what brokers answer to a fetch -------------------------------------------------

FETCH, LIST_OFFSETS = 1, 2
"""Kafka's numbers of two requests."""


@pytest.fixture
def answer(cluster):
    """Let the next fetches of a topic's partition 0 be answered with these errors."""
    library, mock = cluster._library, ctypes.c_void_p(cluster._cluster)

    def push(name, *codes):
        numbers = [ctypes.c_int(code) for code in codes]
        count = ctypes.c_size_t(len(codes))
        assert not library.rd_kafka_mock_partition_push_request_errors(
            mock, name.encode(), 0, FETCH, count, *numbers
        )

    return push


@pytest.fixture
def without_bounds(cluster):
    """No broker says where a log begins or ends."""
    library, mock = cluster._library, ctypes.c_void_p(cluster._cluster)
    api, count = ctypes.c_int16(LIST_OFFSETS), 100
    errors = (ctypes.c_int * count)(*[-1] * count)
    library.rd_kafka_mock_push_request_errors_array(
        mock, api, ctypes.c_size_t(count), errors
    )
    yield
    library.rd_kafka_mock_clear_request_errors(mock, api)


def test_what_is_not_there_is_no_loss_while_nobody_says_what_the_log_holds(
    reader, topic, answer, without_bounds
):
    name = topic(b"a", b"b")
    answer(name, *[1] * 20)

    with pytest.raises(FetchError, match="none says what the log holds") as caught:
        values_of(reader(timeout_ms=15_000), range_of(name, 0, 2))

    assert caught.value.retryable


@pytest.mark.parametrize(
    "code",
    [-1, 2, 5, 6, 7, 56, 74, 78],  # unknown, corrupt, no leader, …, not yet there
)
def test_an_error_that_may_pass_is_waited_out(reader, topic, answer, code):
    name = topic(b"a", b"b")
    answer(name, code, code)

    found = values_of(reader(timeout_ms=15_000), range_of(name, 0, 2))

    assert found == [b"a", b"b"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, FetchError),  # out of range, of a former leader: the log holds the range
        (10, DamagedRecordsError),  # a record too large
        (29, AuthenticationError),
        (76, DamagedRecordsError),  # a compression that the client does not know
    ],
)
def test_an_error_that_stays_is_raised_at_once(reader, topic, answer, code, kind):
    name = topic(b"a", b"b")

    def read():
        answer(name, *[code] * 20)
        values_of(reader(timeout_ms=15_000), range_of(name, 0, 2))

    error = prompt_error(read, 3, kind)

    assert type(error) is kind
    assert name in str(error)


def test_batches_before_an_error_are_delivered(reader, topic, answer):
    size, count = 1_000, 2_000
    name = topic(*[b"x" * size] * count)
    small = for_consumer(
        bootstrap_servers=reader()._settings["bootstrap.servers"],
        max_partition_fetch_bytes="20000",
        queued_min_messages="1",
    )
    batches = reader(small, batch_bytes=20 * size).read(range_of(name, 0, count))

    delivered = [next(batches)]
    answer(name, *[10] * 5)
    with pytest.raises(FetchError) as caught:
        delivered.extend(batches)

    rows = sum(batch.num_rows for batch in delivered)
    position = caught.value.fields["position"]
    assert isinstance(position, int)
    assert 0 < rows <= position < count


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("_BAD_COMPRESSION", r"'kafka.receive.message.max.bytes' \(1000\) lets them"),
        ("_BAD_MSG", "records are damaged where brokers keep them"),
    ],
)
def test_an_error_of_the_client_about_a_record_names_the_option_that_helps(name, told):
    settings = {"receive.message.max.bytes": "1000"}

    assert re.search(told, native_reader._what("client", name, settings))
