"""Exact ranges of a partition as Arrow record batches."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from confluent_kafka import Consumer

from kafka_tx.errors import (
    AuthenticationError,
    FetchError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafka_tx.kafka import range_fetch
from kafka_tx.kafka.client_settings import ClientSettings, client_settings
from kafka_tx.kafka.clients import new_consumer
from kafka_tx.kafka.errors import ErrorWatch
from kafka_tx.kafka.reader import KafkaRangeReader
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.protocols import RangeReader
from kafka_tx.record_schema import arrow_schema
from kafka_tx.testing.mock import MockCluster
from tests.prompt_errors import prompt_error

MakeTopic = Callable[..., str]


def range_of(topic: str, start: int, end: int) -> OffsetRange:
    return OffsetRange(TopicPartition(topic, 0), start, end)


def values_of(reader: RangeReader, wanted: OffsetRange) -> list[bytes]:
    batches = list(reader.read(wanted))
    return [value for batch in batches for value in batch["value"].to_pylist()]


@pytest.fixture
def reader(consumer_settings: ClientSettings) -> KafkaRangeReader:
    return KafkaRangeReader(consumer_settings, timeout_ms=5_000)


def test_it_is_what_the_other_rooms_ask_for(consumer_settings: ClientSettings) -> None:
    as_seam: RangeReader = KafkaRangeReader(consumer_settings, include_headers=True)

    assert as_seam is not None


@pytest.mark.parametrize(("start", "end"), [(0, 5), (0, 1), (4, 5), (2, 4)], ids=str)
def test_exactly_the_range_is_read(
    reader: KafkaRangeReader, topic: MakeTopic, start: int, end: int
) -> None:
    values = [b"a", b"b", b"c", b"d", b"e"]
    name = topic(*values)

    assert values_of(reader, range_of(name, start, end)) == values[start:end]


def test_an_empty_range_asks_no_broker() -> None:
    settings = client_settings({"bootstrap.servers": "127.0.0.1:1"}, purpose="consumer")

    assert list(KafkaRangeReader(settings).read(range_of("t", 3, 3))) == []


def test_rows_carry_key_topic_offset_time_and_headers(
    cluster: MockCluster, topic: MakeTopic, consumer_settings: ClientSettings
) -> None:
    name = topic(b"first")
    cluster.produce(name, b"v", key=b"k", timestamp_ms=1234, headers=[("h", b"1")])
    cluster.produce(name, None, key=b"gone", timestamp_ms=1235)
    cluster.flush()
    reader = KafkaRangeReader(consumer_settings, include_headers=True)

    (batch,) = reader.read(range_of(name, 1, 3))

    assert batch.schema == arrow_schema(True)
    rows = batch.set_column(5, "timestamp", batch["timestamp"].cast(pa.int64()))
    assert rows.to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": name,
            "partition": 0,
            "offset": 1,
            "timestamp": 1_234_000,
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"1"}],
        },
        {
            "key": b"gone",
            "value": None,
            "topic": name,
            "partition": 0,
            "offset": 2,
            "timestamp": 1_235_000,
            "timestampType": 0,
            "headers": None,
        },
    ]


def test_batches_are_bounded_by_bytes_and_keep_the_order(
    topic: MakeTopic, consumer_settings: ClientSettings
) -> None:
    size, count = 1_000, 3_000
    values = [b"%08d" % number + b"x" * (size - 8) for number in range(count)]
    name = topic(*values)
    reader = KafkaRangeReader(consumer_settings, batch_bytes=100 * size)

    batches = list(reader.read(range_of(name, 0, count)))

    assert [v for b in batches for v in b["value"].to_pylist()] == values
    # the first batch is taken before the size of records is known
    assert all(batch.nbytes <= 100 * size for batch in batches[1:])
    assert len(batches) < 40


def test_a_record_larger_than_a_batch_is_a_batch(
    topic: MakeTopic, consumer_settings: ClientSettings
) -> None:
    name = topic(b"x" * 500_000, b"y" * 500_000, b"z")
    reader = KafkaRangeReader(consumer_settings, batch_bytes=10)

    assert [len(v) for v in values_of(reader, range_of(name, 0, 3))] == [
        500_000,
        500_000,
        1,
    ]


def test_many_records_fill_few_batches(
    reader: KafkaRangeReader, topic: MakeTopic
) -> None:
    count = 30_000
    name = topic(*[b"x" * 20] * count)

    batches = list(reader.read(range_of(name, 0, count)))

    assert sum(batch.num_rows for batch in batches) == count
    assert len(batches) <= 3


# --- what is not in the log ---------------------------------------------------------


def test_a_range_beyond_the_log_names_what_the_log_holds(
    reader: KafkaRangeReader, topic: MakeTopic
) -> None:
    name = topic(b"a", b"b")

    with pytest.raises(OffsetOutOfRangeError, match=r"\[0, 2\)") as caught:
        values_of(reader, range_of(name, 10, 20))

    assert caught.value.fields["wanted"] == 10
    assert caught.value.fields["log_start"] == 0
    assert caught.value.fields["log_end"] == 2


def test_a_range_that_ends_beyond_the_log_is_given_up_after_a_grace(
    reader: KafkaRangeReader, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_fetch, "_GRACE_S", 0.3)
    name = topic(b"a", b"b")

    error = prompt_error(
        lambda: values_of(reader, range_of(name, 1, 5)), 3, OffsetOutOfRangeError
    )

    assert error.fields["log_end"] == 2


def test_records_that_come_within_the_grace_are_read(
    reader: KafkaRangeReader, topic: MakeTopic, cluster: MockCluster
) -> None:
    name = topic(b"a", b"b")

    def produce_later() -> None:
        time.sleep(0.5)
        cluster.produce(name, b"c")
        cluster.flush()

    thread = threading.Thread(target=produce_later)
    thread.start()
    found = values_of(reader, range_of(name, 1, 3))
    thread.join()

    assert found == [b"b", b"c"]


def test_a_partition_that_does_not_exist_is_named(
    reader: KafkaRangeReader, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_fetch, "_GRACE_S", 0.3)
    name = topic(b"a")

    with pytest.raises(UnknownTopicError, match=f"{name}-9"):
        list(reader.read(OffsetRange(TopicPartition(name, 9), 0, 1)))


# --- brokers that cannot be had -----------------------------------------------------


def test_an_address_where_nobody_listens_is_named_within_the_time_out() -> None:
    settings = client_settings({"bootstrap.servers": "127.0.0.1:1"}, purpose="consumer")
    reader = KafkaRangeReader(settings, timeout_ms=700)

    error = prompt_error(
        lambda: values_of(reader, range_of("orders", 7, 9)), 4, FetchError
    )

    text = str(error)
    assert "orders-0 [7, 9)" in text
    assert "offset 7" in text
    assert "127.0.0.1:1" in text
    assert "Connection refused" in text
    assert error.retryable


def test_a_refused_log_in_is_told_long_before_the_time_out(
    login_options: dict[str, str],
) -> None:
    reader = KafkaRangeReader(client_settings(login_options, purpose="consumer"))

    wanted = range_of("orders", 0, 1)
    prompt_error(lambda: values_of(reader, wanted), 5, AuthenticationError, "SASL")


def test_a_broker_lost_in_mid_range_is_waited_for() -> None:
    values = [b"%08d" % number + b"x" * 992 for number in range(4_000)]
    with MockCluster() as own:
        own.create_topic("orders")
        for value in values:
            own.produce("orders", value)
        own.flush()
        settings = client_settings(
            {
                "bootstrap.servers": own.bootstrap_servers,
                "queued.min.messages": "1",
                "max.partition.fetch.bytes": "20000",
            },
            purpose="consumer",
        )
        reader = KafkaRangeReader(settings, timeout_ms=15_000, batch_bytes=50_000)
        batches = reader.read(range_of("orders", 0, len(values)))

        found = next(batches)["value"].to_pylist()
        own.stop_broker()
        starter = threading.Timer(0.7, own.start_broker)
        starter.start()
        for batch in batches:
            found += batch["value"].to_pylist()
        starter.join()

    assert found == values


# --- life ---------------------------------------------------------------------------


def test_closing_the_iterator_early_releases_the_consumer(
    reader: KafkaRangeReader, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Consumer] = []

    def remember(
        settings: Mapping[str, str], watch: ErrorWatch, *more: Callable[[str], None]
    ) -> Consumer:
        made.append(new_consumer(settings, watch, *more))
        return made[-1]

    monkeypatch.setattr(range_fetch, "new_consumer", remember)
    small = KafkaRangeReader(reader._settings, batch_bytes=1)
    name = topic(*[b"x"] * 100)

    batches = small.read(range_of(name, 0, 100))
    next(batches)
    batches.close()  # type: ignore[attr-defined]

    with pytest.raises(RuntimeError, match="closed"):
        made[0].consume(1, 0)


def test_each_range_has_a_consumer_of_its_own(
    reader: KafkaRangeReader, topic: MakeTopic
) -> None:
    name = topic(b"a", b"b", b"c")
    first, second = (reader.read(range_of(name, start, 3)) for start in (0, 1))

    assert next(second)["value"].to_pylist() == [b"b", b"c"]
    assert next(first)["value"].to_pylist() == [b"a", b"b", b"c"]


def test_it_can_be_pickled_after_use(
    reader: KafkaRangeReader, topic: MakeTopic
) -> None:
    name = topic(b"a")
    values_of(reader, range_of(name, 0, 1))

    copy = pickle.loads(pickle.dumps(reader))

    assert values_of(copy, range_of(name, 0, 1)) == [b"a"]
