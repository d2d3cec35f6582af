"""What a sender promises, asked of both producers: speed alone tells them apart."""

from __future__ import annotations

import ctypes
import datetime
import pickle
import time
from itertools import count
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import KafkaError as ClientError
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from integration.sizes import size
from kafka_tx.errors import ConfigError, DeliveryError, KafkaError, WriteDeniedError
from kafka_tx.kafka import sender as sender_module
from kafka_tx.kafka import transaction as transaction_module
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.native_producer import NativeProducer, new_client
from kafka_tx.kafka.out_batch import OutBatch
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.producer import Deliveries, ProducerClient, with_defaults
from kafka_tx.kafka.sender import Sender
from kafka_tx.kafka.transaction import BatchRefusedError, Transaction
from kafka_tx.native import library, writer
from kafka_tx.native.library import load
from kafka_tx.testing.mock import MockCluster

pytestmark = pytest.mark.skipif(
    library.status().is_native and writer.refusal({}) is not None,
    reason="the extension was built from older sources",
)

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS = 0, 22, 24
PARTITIONS = 3
_numbers = count()


@pytest.fixture(params=["python", "native"])
def kind(request, monkeypatch):
    """Senders of one kind."""
    made = ProducerClient if request.param == "python" else NativeProducer
    monkeypatch.setattr(sender_module, "new_client", made)
    return made


@pytest.fixture
def settings(cluster):
    return for_producer(cluster)


TOGETHER = {"linger_ms": "30000"}
"""Records wait for each other until they are flushed. With a short wait a halt of the
machine parts them, and a batch that is refused may have one record."""


def first_of(topic):
    """Before other records: a flush parts those whose broker is not known yet."""
    return OutBatch.of(topic, pa.array(["first"]))


def for_producer(cluster, **more):
    options = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": "1"}
    options |= {name.replace("_", "."): value for name, value in more.items()}
    return client_settings(options, purpose="producer")


def logs_of(cluster, topics, partitions=PARTITIONS):
    """By topic and partition: what is in the log."""
    places = [TopicPartition(t, p, 0) for t in topics for p in range(partitions)]
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "reader",
        "fetch.wait.max.ms": "10",
        "enable.partition.eof": "true",
    }
    consumer = Consumer(settings)
    consumer.assign(places)
    logs: dict[Any, list[Any]] = {(one.topic, one.partition): [] for one in places}
    open_logs = set(logs)
    while open_logs:
        message = consumer.poll(10)
        assert message is not None
        error, place = message.error(), (message.topic(), message.partition())
        if error is None:
            logs[place].append(message)
        else:
            assert error.code() == ClientError._PARTITION_EOF
            open_logs.discard(place)
    consumer.close()
    return logs


def log_of(cluster, topic):
    """What is in the only partition of a topic."""
    (log,) = logs_of(cluster, [topic], 1).values()
    return log


def error_of(settings, batch):
    """With which a sender fails to write the batch, as Spark hands it on."""
    with pytest.raises(KafkaError) as raised, Sender(settings) as sender:
        write(sender, batch)
    return pickle.loads(pickle.dumps(raised.value))


def write(sender, batch):
    sender.write(batch)
    sender.flush()


def as_record(message):
    at_ms = message.timestamp()[1]
    return message.key(), message.value(), message.headers(), at_ms


# --- any columns --------------------------------------------------------------------

texts = st.text(max_size=8)
names = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5
)
kinds = st.sampled_from(
    [
        *(pa.string(), pa.large_string(), pa.string_view()),
        *(pa.binary(), pa.large_binary(), pa.binary_view()),
        *(
            pa.dictionary(pa.int8(), pa.string()),
            pa.dictionary(pa.int32(), pa.binary()),
        ),
    ]
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | texts,
            "value": st.none() | texts | st.just("x" * 5_000),
            "topic": st.integers(0, 2),
            "partition": st.none() | st.integers(0, PARTITIONS - 1),
            "timestamp": st.none() | st.integers(1, 4_102_444_800_000),
            "headers": st.none()
            | st.lists(st.tuples(names, st.none() | st.binary(max_size=5)), max_size=3),
        }
    ),
    min_size=1,
    max_size=25,
)


def column(values, kind, around):
    """A slice of an array with other rows around it."""
    is_text = any(test(value_type(kind)) for test in TEXTS)
    given = [v if is_text or v is None else v.encode() for v in values]
    other = ["?" if is_text else b"?"] * around
    if pa.types.is_dictionary(kind):
        made = pa.array(other + given + other, value_type(kind)).dictionary_encode()
        made = made.cast(kind)
    else:
        made = pa.array(other + given + other, kind)
    return made.slice(around, len(values))


TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def value_type(kind):
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def batch_of(found, topics, key_kind, value_kind, around, with_more):
    more = {}
    if with_more:
        in_ms = [row["timestamp"] for row in found]
        times = pa.array(in_ms, pa.timestamp("ms", "UTC")).cast(
            pa.timestamp("us", "UTC")
        )
        entries = [
            None
            if row["headers"] is None
            else [{"key": k, "value": v} for k, v in row["headers"]]
            for row in found
        ]
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        padding = [[{"key": "?", "value": b"?"}]] * around
        more["headers"] = pa.array(padding + entries + padding, kind).slice(
            around, len(found)
        )
        more["partition"] = pa.array([row["partition"] for row in found], pa.int32())
        more["timestamp"] = times
    return OutBatch.of(
        pa.array([topics[row["topic"]] for row in found], pa.string()),
        column([row["value"] for row in found], value_kind, around),
        column([row["key"] for row in found], key_kind, around),
        **more,
    )


@pytest.fixture
def clients(cluster):
    """One of each kind, with what it is told."""
    deliveries = [Deliveries(), Deliveries()]
    kinds = [ProducerClient, NativeProducer]
    settings = for_producer(cluster)
    return [
        (make(settings, to), to) for make, to in zip(kinds, deliveries, strict=True)
    ]


@hypothesis_settings(
    max_examples=size(15, 150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    found=rows,
    key_kind=kinds,
    value_kind=kinds,
    around=st.integers(0, 9),
    with_more=st.booleans(),
)
def test_both_write_the_same_records_from_any_columns(
    cluster, clients, found, key_kind, value_kind, around, with_more
):
    """Same bytes, partitions of keys, order, headers and times."""
    written = []
    for client, deliveries in clients:
        topics = [f"any-{next(_numbers)}" for _ in range(3)]
        for topic in topics:
            cluster.create_topic(topic, PARTITIONS)
        batch = batch_of(found, topics, key_kind, value_kind, around, with_more)
        done = 0
        while done < len(batch):
            done += client.write(batch.rest(done), lambda: None)
        client.flush(lambda: None)
        assert deliveries.failed is None
        assert not deliveries.since_refusal
        logs = logs_of(cluster, topics)
        written.append([[logs[t, p] for p in range(PARTITIONS)] for t in topics])
    check_same(written, found, with_more=with_more)


def check_same(written, found, *, with_more):
    for number, (one, other) in enumerate(zip(*written, strict=True)):
        sent = [row for row in found if row["topic"] == number]
        everything = []
        for partition in range(PARTITIONS):
            logs = [
                [as_record(message) for message in log[partition]]
                for log in (one, other)
            ]
            keyed = [[r for r in log if r[0] is not None] for log in logs]
            if not with_more:  # times are those of writing
                keyed = [[r[:3] for r in log] for log in keyed]
            assert [r[:3] for r in keyed[0]] == [r[:3] for r in keyed[1]]
            everything += logs[1]
        expected = [as_expected(row, with_more) for row in sent]
        got = [(r[0], r[1], r[2], r[3] if with_more else None) for r in everything]
        times = {row["timestamp"] for row in sent}
        got = [(*r[:3], r[3] if r[3] in times else None) for r in got]
        assert sorted(map(repr, got)) == sorted(map(repr, expected))


def as_expected(row, with_more):
    key, value = (
        None if row[name] is None else row[name].encode() for name in ("key", "value")
    )
    if not with_more:
        return key, value, None, None
    return key, value, row["headers"] or None, row["timestamp"]


@hypothesis_settings(max_examples=size(60, 300), deadline=None)
@given(
    found=rows,
    key_kind=kinds,
    value_kind=kinds,
    around=st.integers(0, 9),
    with_more=st.booleans(),
)
def test_both_know_the_same_records_again(
    found, key_kind, value_kind, around, with_more
):
    """A replay is compared by check sums, which each kind computes by itself."""
    topics = ["a", "bß", "c" * 30]
    batch = batch_of(found, topics, key_kind, value_kind, around, with_more)

    one_by_one = [record.counted() for record in batch.records()]

    assert writer.check_sums(batch.columns, batch.topics) is not None
    assert batch.counted() == (len(batch), sum(total for _, total in one_by_one))
    assert batch.rest(1).counted()[1] == batch.counted()[1] - one_by_one[0][1]


def test_a_record_goes_where_its_partition_says(kind, cluster, topic):
    name = topic(partitions=PARTITIONS)
    batch = OutBatch.of(
        name, pa.array(["a", "b", "c"]), partition=pa.array([2, 0, 2], pa.int32())
    )

    with Sender(for_producer(cluster)) as sender:
        sender.write(batch)
        sender.flush()

    logs = logs_of(cluster, [name])
    found = [[m.value() for m in logs[name, p]] for p in range(PARTITIONS)]
    assert found == [[b"b"], [], [b"a", b"c"]]


def test_columns_and_single_records_keep_their_order(kind, cluster, topic):
    name = topic()

    with Sender(for_producer(cluster)) as sender:
        sender.queue([OutRecord(name, b"k", b"first", [("h", None)], 0, 1234)])
        sender.write(OutBatch.of(name, pa.array(["second", "third"])))
        sender.queue([OutRecord(name, None, None)])
        sender.flush()
        assert len(sender) == 0

    log = log_of(cluster, name)
    assert [message.value() for message in log] == [b"first", b"second", b"third", None]
    assert as_record(log[0]) == (b"k", b"first", [("h", None)], 1234)


def test_topics_with_batches_of_several_sizes_are_written_apart(kind, cluster, topic):
    names = [topic(), topic(), topic()]
    sender = Sender(for_producer(cluster))
    sender._at = {names[1]: 5_000}
    given = [names[n % 3] for n in range(30)]
    values = [str(n) for n in range(30)]

    write(sender, OutBatch.of(pa.array(given), pa.array(values)))

    assert len(sender._clients) == 2
    for number, name in enumerate(names):
        found = [message.value().decode() for message in log_of(cluster, name)]
        assert found == values[number::3]


def test_more_than_fits_into_the_queue_is_written_in_order(kind, cluster, topic):
    name = topic()
    values = [b"%06d" % number for number in range(30_000)]
    settings = for_producer(cluster, queue_buffering_max_messages="500")

    with Sender(settings) as sender:
        sender.write(OutBatch.of(name, pa.array(values, pa.binary())))
        sender.flush()

    log = log_of(cluster, name)
    assert [message.value() for message in log] == values


@pytest.mark.parametrize(("linger_ms", "is_limited"), [("5", True), ("50", False)])
def test_few_records_are_on_their_way_until_brokers_take_long(linger_ms, is_limited):
    values = pa.array([b"%d" % number for number in range(20_000)])
    schema, array = pa.record_batch({"value": values}).__arrow_c_array__()
    row = 0

    with MockCluster() as own:
        own.create_topic("t")
        own.stop_broker()
        settings = with_defaults(for_producer(own, linger_ms=linger_ms), 60_000)
        producer = writer.producer(settings, ())
        for _ in range(5):
            producer.news()
            row, _ = producer.send(schema, array, ("t",), row, 0)
        assert (row < 20_000) == is_limited
        assert row >= 10_000
        for _ in range(100):
            producer.news()
            row, _ = producer.send(schema, array, ("t",), row, 20)
        assert row == 20_000
        producer.purge()


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"partition": pa.array([None, -1], pa.int32())}, "'partition' is -1"),
        (
            {"headers": pa.array([None, [{"key": None, "value": b"v"}]])},
            "headers with a key",
        ),
        ({"headers": pa.array([[{"key": "k", "value": b"v"}, None], None])}, "headers"),
    ],
    ids=["partition", "header key", "header"],
)
def test_columns_that_hold_no_records_are_refused(more, text):
    with pytest.raises(ConfigError, match=text):
        OutBatch.of("t", pa.array(["a", "b"]), **more)


def test_values_that_are_neither_text_nor_bytes_are_refused():
    with pytest.raises(TypeError, match="the value of a message is 7"):
        OutBatch.of("t", pa.array([7]))
    assert len(OutBatch.of("t", pa.nulls(2))) == 2


def test_a_topic_whose_name_clients_would_cut_is_refused():
    with pytest.raises(ConfigError, match="'topic' is 'orders.x00x'; legal: names"):
        OutBatch.of(pa.array(["orders", "orders\0x", None]), pa.array(["a", "b", "c"]))


def test_times_are_cut_to_milliseconds_and_may_be_in_a_zone_that_is_given():
    time = datetime.datetime(2026, 1, 2, 3, 4, 5, 1_999, datetime.UTC)
    local = time.astimezone(ZoneInfo("Asia/Tokyo")).replace(tzinfo=None)
    for kind, at in (pa.timestamp("us"), local), (pa.timestamp("us", "UTC"), time):
        times, values = pa.array([at, None], kind), pa.array(["a", "b"])
        batch = OutBatch.of("t", values, timestamp=times, zone="Asia/Tokyo")
        assert batch.columns["timestamp"].to_pylist() == [
            int(time.replace(microsecond=0).timestamp()) * 1000 + 1,
            None,
        ]


def test_text_that_is_not_utf_8_is_written_as_it_is():
    odd = pa.array([b"\xff"], pa.binary()).view(pa.string())
    (record,) = OutBatch.of("t", odd, odd).records()
    assert (record.key, record.value) == (b"\xff", b"\xff")


@pytest.mark.parametrize("name", ["a\ud83d", b"a", 7])
def test_a_record_with_a_header_that_no_client_can_name_is_refused(name, cluster):
    record = OutRecord("t", None, b"v", [(name, b"x")])
    with pytest.raises(ConfigError, match="'headers' is .* written as UTF-8"):
        Sender(for_producer(cluster)).post(record, lambda _: None)


def test_a_header_name_that_is_not_utf_8_is_refused():
    odd = pa.array([b"\xff"], pa.binary()).view(pa.string())
    entries = pa.StructArray.from_arrays([odd, pa.array([b"x"])], ["key", "value"])
    headers = pa.ListArray.from_arrays([0, 0, 1], entries)
    with pytest.raises(ConfigError, match="'headers' is b'.xff'.*written as UTF-8"):
        OutBatch.of("t", pa.array(["a", "b"]), headers=headers)
    assert len(OutBatch.of("t", pa.array(["a"]), headers=headers[:1])) == 1


def test_no_client_cuts_the_name_of_a_topic(kind, cluster, topic):
    name = topic()
    client = kind(for_producer(cluster), Deliveries())

    with pytest.raises(ValueError, match="null character"):
        client.produce(OutRecord(f"{name}\0x", None, b"v"), lambda: None)

    client.flush(lambda: None)
    assert not log_of(cluster, name)


@pytest.mark.parametrize("more", [{}, {"enable_idempotence": "false"}])
def test_a_topic_whose_name_is_too_long_is_named(kind, cluster, more):
    batch = OutBatch.of("t" * 600, pa.array(["v"]))
    client = kind(for_producer(cluster, **more), Deliveries())

    with pytest.raises(DeliveryError, match="for topic 'ttt") as raised:
        client.write(batch, lambda: None)

    assert not raised.value.retryable


def test_a_topic_name_that_is_not_utf_8_is_refused():
    odd = pa.array([b"\xff"], pa.binary()).view(pa.string())
    with pytest.raises(ConfigError, match="'topic' is b'.xff'.*column 'topic'"):
        OutBatch.of(odd, odd)


# --- failures -----------------------------------------------------------------------


@pytest.fixture
def broken(cluster):
    """Let the next requests to write into a partition fail with these codes."""
    library, mock = cluster._library, ctypes.c_void_p(cluster._cluster)

    def push(topic, *codes):
        numbers = [ctypes.c_int(code) for code in codes]
        count = ctypes.c_size_t(len(codes))
        assert not library.rd_kafka_mock_partition_push_request_errors(
            mock, topic.encode(), 0, PRODUCE, count, *numbers
        )

    return push


def test_an_oversize_record_is_named_with_what_to_do(kind, cluster, topic):
    name = topic()
    batch = OutBatch.of(
        name, pa.array([b"v", b"x" * 3_000]), pa.array(["small", "big"])
    )
    settings = for_producer(cluster, max_request_size="2000")

    error = error_of(settings, batch)

    assert (error.topic, error.key, error.size) == (name, b"big", 3_003)
    assert not error.retryable
    assert "kafka.max.request.size" in str(error)


def test_a_record_that_is_larger_than_the_buffer_is_refused(kind, cluster, topic):
    """The client says that the buffer is full, as if waiting could help."""
    settings = for_producer(cluster, buffer_memory="20480")
    values = pa.array([b"v", b"x" * 20_000, b"x" * 21_000])
    batch = OutBatch.of(topic(), values)

    error = error_of(settings, batch)

    assert error.size == 21_000
    assert "kafka.buffer.memory" in str(error)
    with Sender(settings) as sender:
        write(sender, OutBatch.of(batch.topics[0], values[:2]))


def test_no_record_is_handed_over_behind_one_that_the_client_refuses(
    kind, cluster, topic
):
    name, deliveries = topic(), Deliveries()
    values = [b"x" * 3_000 if number == 70 else b"%d" % number for number in range(100)]
    client = kind(for_producer(cluster, max_request_size="2000"), deliveries)

    with pytest.raises(DeliveryError, match="3000 bytes"):
        client.write(OutBatch.of(name, pa.array(values)), lambda: None)
    client.flush(lambda: None)

    assert [message.value() for message in log_of(cluster, name)] == values[:70]


def test_records_with_more_than_key_and_value_keep_their_place(kind, cluster, topic):
    name = topic()
    values = [str(number) for number in range(1_300)]
    more = [number % 400 == 399 for number in range(1_300)]
    header = [{"key": "h", "value": b"v"}]
    batch = OutBatch.of(
        name,
        pa.array(values),
        headers=pa.array([header if is_more else [] for is_more in more]),
        partition=pa.array([0 if is_more else None for is_more in more], pa.int32()),
    )

    with Sender(for_producer(cluster)) as sender:
        write(sender, batch)

    log = log_of(cluster, name)
    assert [message.value().decode() for message in log] == values
    assert [bool(message.headers()) for message in log] == more


def test_of_several_failures_the_largest_record_is_named(kind, topic):
    with MockCluster() as own:
        own.create_topic("t")
        own.stop_broker()
        batch = OutBatch.of(
            "t", pa.array(["v", "larger", "v"]), pa.array(["a", "b", "c"])
        )
        settings = for_producer(own, delivery_timeout_ms="300")

        error = error_of(settings, batch)

    assert error.retryable
    assert (error.key, error.size) == (b"b", 7)
    assert error.code == "_MSG_TIMED_OUT"


def test_an_unknown_partition_is_named(kind, cluster, topic):
    name = topic()
    batch = OutBatch.of(name, pa.array(["v"]), partition=pa.array([7], pa.int32()))

    error = error_of(for_producer(cluster), batch)

    assert error.code == "_UNKNOWN_PARTITION"
    assert (error.topic, error.size) == (name, 1)


@pytest.mark.parametrize("is_columns", [True, False])
def test_a_batch_that_is_refused_is_sent_again_in_smaller_ones(
    kind, cluster, topic, broken, is_columns
):
    name = topic()
    values = [b"%04d" % number + b"x" * 100 for number in range(2_000)]
    times = pa.array([1_234] * len(values), pa.timestamp("ms", "UTC"))
    batch = OutBatch.of(
        name,
        pa.array(values, pa.binary()),
        headers=pa.array([[{"key": "h", "value": b"1"}]] * len(values)),
        timestamp=times,
    )

    with Sender(for_producer(cluster, **TOGETHER)) as sender:
        sender.write(first_of(name))
        sender.flush()
        broken(name, ClientError.MSG_SIZE_TOO_LARGE)
        if is_columns:
            sender.write(batch)
        else:
            sender.queue(batch.records())
        sender.flush()
        assert sender._at[name] < 1_000_000

    _, *log = log_of(cluster, name)
    last = {message.value(): place for place, message in enumerate(log)}
    assert sorted(last, key=last.__getitem__) == values
    for message in log:
        assert (message.headers(), message.timestamp()[1]) == ([("h", b"1")], 1_234)


def test_a_record_that_is_refused_alone_is_named(kind, cluster, topic, broken):
    name = topic()
    broken(name, *[ClientError.INVALID_RECORD] * 20)

    error = error_of(
        for_producer(cluster), OutBatch.of(name, pa.array(["v"]), pa.array(["k"]))
    )

    assert (error.topic, error.key) == (name, b"k")
    assert error.code == "INVALID_RECORD"


REFUSALS = [
    ClientError.INVALID_RECORD,
    ClientError.INVALID_TIMESTAMP,
    ClientError.MSG_SIZE_TOO_LARGE,
    ClientError.TOPIC_AUTHORIZATION_FAILED,
]


@pytest.mark.parametrize("code", REFUSALS)
@pytest.mark.parametrize("records", [1, 50])
def test_both_say_the_same_of_records_that_brokers_refuse(
    cluster, topic, broken, code, records
):
    said = []
    for kind in (ProducerClient, NativeProducer):
        name, deliveries = topic(), Deliveries()
        client = kind(for_producer(cluster, **TOGETHER), deliveries)
        client.write(first_of(name), lambda: None)
        client.flush(lambda: None)
        assert not any(one.error for one in deliveries.take())
        broken(name, code)
        client.write(OutBatch.of(name, pa.array(["v"] * records)), lambda: None)
        client.flush(lambda: None)
        texts = {one.error and one.error.str() for one in deliveries.take()}
        said.append((texts, str(deliveries.failed).replace(name, "")))

    assert said[0] == said[1]


def test_after_a_refusal_later_records_are_counted_again(cluster, topic, broken):
    """What is delivered is noted only until everything before was answered."""
    name, deliveries = topic(), Deliveries()
    client = NativeProducer(for_producer(cluster, **TOGETHER), deliveries)
    batch = OutBatch.of(name, pa.array(["v"] * 50))
    client.write(first_of(name), lambda: None)
    client.flush(lambda: None)
    broken(name, ClientError.MSG_SIZE_TOO_LARGE)

    client.write(batch, lambda: None)
    client.flush(lambda: None)
    assert {one.error.code() for one in deliveries.take() if one.error} == {
        ClientError.MSG_SIZE_TOO_LARGE
    }
    client.write(batch, lambda: None)
    client.flush(lambda: None)

    assert not deliveries.since_refusal


@pytest.fixture
def denying():
    """Brokers that refuse a producer its id, as one without any right to write.

    They are down: what is written before they start waits until they refuse.
    """
    with MockCluster() as own:
        own.create_topic("closed")
        own.stop_broker()
        refusing(own, INIT_PRODUCER_ID, ClientError.CLUSTER_AUTHORIZATION_FAILED)
        yield own


def refusing(cluster, request, code):
    """Let the next requests of a kind fail with this code."""
    codes = (ctypes.c_int * 50)(*[code] * 50)
    cluster._library.rd_kafka_mock_push_request_errors_array(
        ctypes.c_void_p(cluster._cluster),
        ctypes.c_int16(request),
        ctypes.c_size_t(len(codes)),
        codes,
    )


RECORD = OutRecord("closed", b"k", b"v")


def is_denied(error):
    return (
        isinstance(error, WriteDeniedError)
        and "Grant the user WRITE and DESCRIBE on topic 'closed'" in str(error)
        and not error.retryable
    )


def denied(call):
    """Call until the client takes no record; the error of the last one."""

    def call_again():
        for _ in range(600):
            call()
            time.sleep(0.05)

    with pytest.raises(WriteDeniedError) as raised:
        call_again()
    return raised.value


def test_a_missing_right_is_named_for_queued_and_for_later_records(kind, denying):
    deliveries = Deliveries()
    client = kind(for_producer(denying), deliveries)

    client.produce(RECORD, lambda: None)
    denying.start_broker()
    time.sleep(1)  # mostly, the client has dropped it by now
    client.flush_for(30)
    later = denied(lambda: client.produce(RECORD, lambda: None))

    assert is_denied(deliveries.failed)
    assert is_denied(later)


def test_who_posts_a_record_is_told_of_a_missing_right(denying):
    told: list[Any] = []
    sender = Sender(for_producer(denying))
    sender._at = {"closed": 1_000_000}

    sender.post(RECORD, told.append)
    denying.start_broker()
    later = denied(lambda: sender.post(RECORD, told.append))
    for _ in range(2):  # not only the first one raises
        assert is_denied(denied(sender.flush))
    assert is_denied(denied(sender.poll))

    assert is_denied(later)
    assert told
    assert all(map(is_denied, told))


# --- transactions -------------------------------------------------------------------


@pytest.fixture
def transaction(kind, cluster, monkeypatch):
    """Make a transaction of one kind of producer."""
    settings = for_producer(cluster, **TOGETHER)
    monkeypatch.setattr(transaction_module, "new_client", kind)

    def make(topic):
        name, group = f"id-{topic}", f"group-{topic}"
        return Transaction(settings, name, "a test", settings, group, {topic})

    return make


def test_what_is_committed_is_read(transaction, cluster, topic):
    name = topic()
    batch = OutBatch.of(name, pa.array(["a", "b"]))

    for number in range(2):
        writing = transaction(name)
        with writing, writing.writing():
            writing.send([OutRecord(name, b"k", b"first"), batch])
            writing.add_offset(TopicPartition(name, 0, 40 + number, "é marker"))
        writing.commit()

    assert [m.value() for m in log_of(cluster, name)] == [b"first", b"a", b"b"] * 2


def test_what_fails_is_aborted_and_the_next_one_goes_on(
    transaction, cluster, topic, broken
):
    name = topic()
    batch = OutBatch.of(name, pa.array(["a"] * 100))
    broken(name, ClientError.MSG_SIZE_TOO_LARGE)

    writing = transaction(name)
    with pytest.raises(BatchRefusedError), writing, writing.writing():
        writing.send([batch])
    again = transaction(name)
    with again, again.writing():
        again.send([batch])
    again.commit()

    assert [m.value() for m in log_of(cluster, name)][-100:] == [b"a"] * 100


def test_a_transaction_of_a_fenced_producer_says_so(kind, monkeypatch):
    monkeypatch.setattr(transaction_module, "new_client", kind)
    with MockCluster() as own:
        own.create_topic("t")
        settings = for_producer(own)
        writing = Transaction(settings, "id", "a test", settings, "group", {"t"})
        refusing(own, ADD_PARTITIONS, ClientError.PRODUCER_FENCED)
        record = OutRecord("t", b"k", b"v")

        def some():
            yield record
            time.sleep(0.5)
            yield from [record] * 100

        with (
            pytest.raises(KafkaError, match="ended the transaction of a test.*b'k'"),
            writing,
            writing.writing(),
        ):
            writing.send(some())


# --- which of them ------------------------------------------------------------------


def test_the_native_one_is_taken_where_the_settings_allow_it(settings):
    assert isinstance(new_client(settings, Deliveries()), NativeProducer)
    with_log = {**settings, "debug": "msg"}
    assert isinstance(new_client(with_log, Deliveries()), ProducerClient)
    assert "debug" in (writer.refusal(with_log) or "")
    with pytest.raises(ConfigError, match="cannot be used"):
        writer.producer(with_log, ())


def test_an_extension_without_a_writer_leaves_the_work_to_python(settings, monkeypatch):
    extension, _ = load()
    monkeypatch.delattr(extension, "WRITER_REVISION")

    assert isinstance(new_client(settings, Deliveries()), ProducerClient)
    assert "reinstall" in (writer.refusal(settings) or "")


def test_a_setting_that_librdkafka_refuses_is_named_without_secrets(kind, settings):
    wrong = {**settings, "linger.ms": "abc", "sasl.password": "abc"}

    with pytest.raises(ConfigError, match=r"queue\.buffering\.max\.ms") as raised:
        kind(wrong, Deliveries())

    assert "abc" not in str(raised.value)


def test_brokers_that_refuse_are_named(kind, cluster):
    login = for_producer(
        cluster,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="sesame",
        delivery_timeout_ms="3000",
    )

    error = error_of(login, OutBatch.of("t", pa.array(["v"])))

    assert "sesame" not in str(error)
