"""Whatever a log holds arrives unchanged, and both readers agree about it."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from integration.sizes import size
from kafka_tx.errors import FetchError
from kafka_tx.kafka.reader import KafkaRangeReader
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.native.reader import NativeRangeReader
from tests.native.raw_producer import RawProducer

# --- any records --------------------------------------------------------------------

small = st.none() | st.binary(max_size=20)
contents = small | st.just(b"x" * 70_000)
header_names = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8
)
# at most 360 kB: with all of them large a record would be refused
headers = st.none() | st.builds(
    lambda some, large: some + large,
    st.lists(st.tuples(header_names, small), max_size=35),
    st.lists(st.tuples(header_names, contents), max_size=5),
)
# 0 is "now" to a producer; the far ends are the last ones that fit into microseconds
timestamps = st.sampled_from([-1, -9_223_372_036_854_775, 9_223_372_036_854_775]) | (
    st.integers(1, 4_102_444_800_000)
)
records = st.fixed_dictionaries(
    {
        "value": contents,
        "key": contents,
        "timestamp_ms": timestamps,
        "headers": headers,
    }
)


def expected_row(record, name, offset, include_headers):
    row = {
        "key": record["key"],
        "value": record["value"],
        "topic": name,
        "partition": 0,
        "offset": offset,
        "timestamp": record["timestamp_ms"] * 1_000,
        "timestampType": 0,
    }
    if include_headers:
        entries = [{"key": k, "value": v} for k, v in record["headers"] or []]
        row["headers"] = entries or None
    return row


def rows_of(batches):
    table = pa.Table.from_batches(batches)
    table.validate(full=True)
    as_numbers = table["timestamp"].cast(pa.int64())
    return table.set_column(5, "timestamp", as_numbers).to_pylist()


@pytest.fixture
def log(topic):
    """A topic, with its length as the only element of a list."""
    return topic(), [0]


@hypothesis_settings(
    max_examples=size(60, 300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    written=st.lists(records, min_size=1, max_size=12),
    include_headers=st.booleans(),
    batch_bytes=st.sampled_from([1, 300, 100_000, 4 << 20]),
)
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
def test_what_was_written_is_read(
    cluster, settings, log, written, include_headers, batch_bytes
):
    name, length = log
    start = length[0]
    for record in written:
        cluster.produce(name, **record)
    cluster.flush()
    length[0] += len(written)
    wanted = OffsetRange(TopicPartition(name, 0), start, length[0])
    more = {"include_headers": include_headers, "timeout_ms": 10_000}

    native = NativeRangeReader(settings, batch_bytes=batch_bytes, **more)
    batches = list(native.read(wanted))
    in_python = list(KafkaRangeReader(settings, **more).read(wanted))

    assert rows_of(batches) == [
        expected_row(record, name, start + number, include_headers)
        for number, record in enumerate(written)
    ]
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches(in_python))
    oversized = [
        b for b in batches if b.num_rows > 1 and columns_bytes(b) > batch_bytes
    ]
    assert oversized == []


def columns_bytes(batch):
    plain = (
        batch.drop_columns(["headers"]) if "headers" in batch.schema.names else batch
    )
    topic_ends, bitmaps = 4, batch.num_rows // 4 + 64  # one more than rows; nulls
    return plain.nbytes - 3 * topic_ends - bitmaps


@pytest.mark.parametrize("beyond", [9_223_372_036_854_776, 2**63 - 1, -(2**62)])
def test_a_timestamp_beyond_microseconds_is_null(reader, cluster, topic, beyond):
    name = topic(b"before")
    cluster.produce(name, b"v", timestamp_ms=beyond)
    cluster.produce(name, b"after", timestamp_ms=7)
    cluster.flush()
    (batch,) = reader().read(OffsetRange(TopicPartition(name, 0), 0, 3))

    times = batch["timestamp"]
    assert batch["value"].to_pylist() == [b"before", b"v", b"after"]
    assert times.is_null().to_pylist() == [False, True, False]
    assert times.null_count == 1
    assert times.view(pa.int64())[2].as_py() == 7_000
    batch.validate(full=True)


# --- header keys that are no text ---------------------------------------------------

REPAIRED_BY_JAVA = {
    b"plain": "plain",
    "ü€😀".encode(): "ü€😀",
    b"a\xffz": "a\ufffdz",
    b"\xfe\xff": "\ufffd\ufffd",
    b"\xc3": "\ufffd",  # cut after the first byte
    b"\xc3(": "\ufffd(",
    b"\xe2\x82": "\ufffd",  # cut after the second
    b"\xe2\x82z": "\ufffdz",
    b"\xf0\x9f\x98": "\ufffd",  # cut after the third
    b"\xf0\x9f\x98\xf0\x9f\x98\x80": "\ufffd😀",
    b"\x80\xbf": "\ufffd\ufffd",  # no first byte
    b"\xc0\xaf": "\ufffd\ufffd",  # longer than need be
    b"\xe0\x80\xaf": "\ufffd\ufffd\ufffd",
    b"\xf0\x80\x80\xaf": "\ufffd\ufffd\ufffd\ufffd",
    b"\xf4\x90\x80\x80": "\ufffd\ufffd\ufffd\ufffd",  # beyond the last character
    b"\xf5\x80\x80\x80": "\ufffd\ufffd\ufffd\ufffd",
    b"\xf8\x88\x80\x80\x80": "\ufffd" * 5,
    b"\xed\xa0\x80": "\ufffd",  # a surrogate is one; Python would say three
    b"\xed\xa0\xbd\xed\xb8\x80": "\ufffd\ufffd",
    b"\xed\xa0z": "\ufffdz",
    b"\xed\x9f\xbf\xee\x80\x80": "\ud7ff\ue000",
}
"""What java.lang.String makes of these bytes, as seen on Java 17."""


@pytest.fixture
def raw(cluster):
    producer = RawProducer(cluster.bootstrap_servers)
    yield producer
    producer.close()


def test_header_keys_are_repaired_as_java_does(raw, settings, topic):
    name = topic()
    raw.produce(name, [(key, b"v") for key in REPAIRED_BY_JAVA])

    (batch,) = NativeRangeReader(settings, include_headers=True).read(
        OffsetRange(TopicPartition(name, 0), 0, 1)
    )

    batch.validate(full=True)
    (found,) = batch["headers"].to_pylist()
    assert [header["key"] for header in found] == list(REPAIRED_BY_JAVA.values())


def test_a_header_key_that_python_cannot_show_names_the_record(
    raw, cluster, settings, topic
):
    name = topic(b"before")
    raw.produce(name, [(b"fine", b"v"), (b"a\xffz", b"v")])
    cluster.produce(name, b"after")
    cluster.flush()
    wanted = OffsetRange(TopicPartition(name, 0), 0, 3)
    reader = KafkaRangeReader(settings, include_headers=True)
    batches = reader.read(wanted)

    assert next(batches)["value"].to_pylist() == [b"before"]
    with pytest.raises(FetchError, match="not UTF-8") as caught:
        next(batches)
    named = caught.value.fields
    assert (named["topic"], named["partition"], named["position"]) == (
        name,
        0,
        1,
    )
    assert pickle.loads(pickle.dumps(caught.value)).fields == named


@pytest.mark.parametrize("kind", [KafkaRangeReader, NativeRangeReader])
def test_header_keys_do_not_matter_where_headers_are_not_asked_for(
    raw, settings, topic, kind
):
    name = topic()
    raw.produce(name, [(b"a\xffz", b"v")])

    (batch,) = kind(settings).read(OffsetRange(TopicPartition(name, 0), 0, 1))

    assert batch["value"].to_pylist() == [b"v"]


def test_many_headers_are_kept_in_order(raw, settings, topic):
    name = topic()
    many = [(b"h%d" % (number % 7), b"%d" % number) for number in range(20_000)]
    raw.produce(name, many)

    (batch,) = NativeRangeReader(settings, include_headers=True).read(
        OffsetRange(TopicPartition(name, 0), 0, 1)
    )

    (found,) = batch["headers"].to_pylist()
    assert [(h["key"].encode(), h["value"]) for h in found] == many


def test_more_headers_than_librdkafka_decodes_are_an_error(raw, settings, topic):
    name = topic()
    raw.produce(name, [(b"", b"")] * 100_001)

    with pytest.raises(FetchError, match="headers cannot be decoded") as caught:
        list(
            NativeRangeReader(settings, include_headers=True).read(
                OffsetRange(TopicPartition(name, 0), 0, 1)
            )
        )
    assert caught.value.fields["position"] == 0
