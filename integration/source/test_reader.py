"""Exact ranges of real logs, by both readers: holes, markers, truncation, faults."""

from __future__ import annotations

import subprocess
import threading
import time

import pytest

from integration.cluster.jars import class_path
from integration.cluster.java import java
from integration.cluster.records import Produce, Record
from integration.cluster.topics import fresh_name
from integration.cluster.versions import KAFKA_JARS
from integration.cluster.waiting import wait_until
from integration.log_ends import log_ends
from integration.promptness import promptly
from integration.sizes import in_all
from kafka_tx.errors import OffsetOutOfRangeError, OtherTopicError, UnknownTopicError
from kafka_tx.kafka import range_fetch
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.cluster import KafkaClusterView
from kafka_tx.kafka.reader import KafkaRangeReader
from kafka_tx.model import OffsetRange, TopicPartition, Topics
from kafka_tx.native import reader as native_reader
from kafka_tx.native.reader import NativeRangeReader
from kafka_tx.testing import QUICK_JAVA

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
PROMPT_S = 1.5
"""A read that waits for nothing is over by then, on a busy machine too."""


@pytest.fixture(params=[KafkaRangeReader, NativeRangeReader])
def new_reader(request):
    """The class of a reader, in turn both."""
    return request.param


BOTH_IN_ALL = pytest.mark.parametrize(
    "new_reader", [NativeRangeReader, *in_all(KafkaRangeReader)], indirect=True
)
"""For what takes seconds; ``tests/native`` asks the same of both on a mock cluster."""


@pytest.fixture
def read(kafka, new_reader):
    """Read a range of partition 0; gives (offset, value) of each record."""

    def rows(topic, start, end, *, isolation=UNCOMMITTED, timeout_ms=20_000, **more):
        reader = new_reader(
            settings(kafka, "consumer", isolation), timeout_ms=timeout_ms, **more
        )
        batches = reader.read(OffsetRange(TopicPartition(topic, 0), start, end))
        return [
            (row["offset"], row["value"])
            for batch in batches
            for row in batch.to_pylist()
        ]

    return rows


@pytest.fixture
def end_of(kafka):
    """The end of partition 0 as the planning side sees it."""

    def end(topic, isolation=UNCOMMITTED):
        return log_ends(kafka.bootstrap_servers, topic, isolation=isolation)[0]

    return end


def settings(cluster, purpose, isolation=UNCOMMITTED, **more):
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "isolation.level": isolation,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return client_settings(options, purpose=purpose)


def values(rows):
    return [value for _, value in rows]


def trim(cluster, topic, before):
    """Move log starts; the client may miss the leaders at first, so more than once."""
    wait_until(
        f"{topic} is trimmed", lambda: cluster.delete_records(topic, before) is None
    )


# --- transactions -------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(kafka, produce):
    """Committed 0-1 with marker 2, aborted 3-4 with 5, committed 6 with 7."""
    name = fresh_name("mixed")
    kafka.create_topic(name, 1)
    produce.committed(name, ["a", "b"])
    produce.aborted(name, ["x", "y"])
    produce.committed(name, ["c"])
    return name


def test_markers_and_aborted_records_are_holes_to_a_committed_read(mixed, read, end_of):
    assert end_of(mixed, COMMITTED) == 8
    assert read(mixed, 0, 8, isolation=COMMITTED) == [(0, b"a"), (1, b"b"), (6, b"c")]


def test_an_uncommitted_read_sees_aborted_records_but_no_markers(mixed, read, end_of):
    assert end_of(mixed) == 8
    assert values(read(mixed, 0, 8)) == [b"a", b"b", b"x", b"y", b"c"]


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize(
    ("start", "end", "committed", "uncommitted"),
    [
        (0, 3, "ab", "ab"),  # ends behind a marker
        (2, 3, "", ""),  # only a marker
        (3, 6, "", "xy"),  # only an aborted transaction
        (3, 4, "", "x"),  # ends inside it
        (4, 7, "c", "yc"),  # begins inside it
        (6, 8, "c", "c"),  # the marker is the end of the log
        (7, 8, "", ""),  # only the last marker of the log
    ],
)
def test_a_range_may_begin_and_end_anywhere(
    mixed, read, isolation, start, end, committed, uncommitted
):
    rows = promptly(lambda: read(mixed, start, end, isolation=isolation), PROMPT_S)

    wanted = committed if isolation == COMMITTED else uncommitted
    assert b"".join(values(rows)).decode() == wanted
    assert all(start <= offset < end for offset, _ in rows)


def test_a_committed_end_stays_before_an_open_transaction(topic, produce, read, end_of):
    name = topic()
    produce(name, ["a"])
    transaction = produce.open_transaction(name, ["b"])
    produce(name, ["c"])

    open_end, high_watermark = end_of(name, COMMITTED), end_of(name)
    seen = read(name, 0, open_end, isolation=COMMITTED)
    transaction.commit()

    assert (open_end, high_watermark) == (1, 3)
    assert values(seen) == [b"a"]
    assert values(read(name, 0, 4, isolation=COMMITTED)) == [b"a", b"b", b"c"]


# --- what the log no longer holds ---------------------------------------------------


@BOTH_IN_ALL
def test_a_quota_that_lets_brokers_wait_for_seconds_is_no_time_out(
    kafka, topic, produce, new_reader
):
    name, client = topic(1), fresh_name("slow")
    for n in range(4):
        produce(name, [str(n) * 10_000])
    limited(kafka, client, consumer_byte_rate=3_600)  # of an average over 10 s
    slow = {"client.id": client, "fetch.message.max.bytes": "10000"}
    reader = new_reader(settings(kafka, "consumer") | slow, timeout_ms=20_000)

    def was_held_up():
        began = time.monotonic()
        found = reader.read(OffsetRange(TopicPartition(name, 0), 0, 4))
        offsets = [n for batch in found for n in batch["offset"].to_pylist()]
        assert offsets == [0, 1, 2, 3]
        return time.monotonic() - began > 0.5

    wait_until("the broker knows the quota", was_held_up)


def limited(kafka, client, **quotas):
    """Give all clients of this name a quota."""
    wanted = ",".join(f"{name}={value}" for name, value in quotas.items())
    subprocess.run(
        [
            *(java(), *QUICK_JAVA, "-cp", class_path(KAFKA_JARS)),
            *("kafka.admin.ConfigCommand", "--alter", "--add-config", wanted),
            *("--bootstrap-server", kafka.bootstrap_servers),
            *("--entity-type", "clients", "--entity-name", client),
        ],
        check=True,
        capture_output=True,
    )


def test_the_holes_of_a_compacted_topic_are_no_loss(topic, produce, read, end_of):
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "600000",
    }
    name = topic(config=config)
    for number in range(5):
        produce(name, [Record(f"{number}", key="k"), Record(f"{number}", key="j")])
    produce(name, [Record(None, key="j"), Record("last", key="k")])
    time.sleep(0.2)  # the segment is old enough to be rolled by the next record
    produce(name, [Record("open", key="other")])
    end = end_of(name)

    def rows():
        return read(name, 0, end)

    wait_until("the topic is compacted", lambda: len(rows()) == 3)

    assert rows() == [(10, None), (11, b"last"), (12, b"open")]
    assert values(read(name, 0, 10)) == []
    assert values(read(name, 3, 11)) == [None]


def test_a_range_below_the_log_start_names_what_is_left(kafka, topic, produce, read):
    name = topic()
    produce(name, [f"{number}" for number in range(10)])
    trim(kafka, name, {0: 4})

    with pytest.raises(OffsetOutOfRangeError) as caught:
        read(name, 2, 8)

    fields = caught.value.fields
    assert (fields["wanted"], fields["log_start"], fields["log_end"]) == (2, 4, 10)
    assert values(read(name, 4, 6)) == [b"4", b"5"]


def test_an_emptied_log_can_only_be_read_at_its_end(kafka, topic, produce, read):
    name = topic()
    produce(name, ["a", "b"])
    trim(kafka, name, {0: 2})

    with pytest.raises(OffsetOutOfRangeError):
        read(name, 0, 2)
    assert read(name, 2, 2) == []


def test_a_deleted_topic_is_named(kafka, topic, read, monkeypatch):
    monkeypatch.setattr(range_fetch, "_GRACE_S", 1.0)
    monkeypatch.setattr(native_reader, "_GRACE_MS", 1_000)
    name = topic()
    kafka.delete_topic(name)

    with pytest.raises(UnknownTopicError, match=name):
        read(name, 0, 1)


# --- records ------------------------------------------------------------------------


def test_nulls_headers_and_both_kinds_of_time_arrive(kafka, topic, produce, new_reader):
    created, appended = (
        topic(config={"retention.ms": "-1"}),  # else its records go at once
        topic(config={"message.timestamp.type": "LogAppendTime"}),
    )
    for name in (created, appended):
        produce(
            name,
            [
                Record(None, key=b"", timestamp_ms=1_700_000_000_123),
                Record(b"", headers=[("h", b"1"), ("h", None)], timestamp_ms=5),
            ],
        )
    reader = new_reader(settings(kafka, "consumer"), include_headers=True)

    first, second = (
        [
            row
            for batch in reader.read(OffsetRange(TopicPartition(name, 0), 0, 2))
            for row in batch.to_pylist()
        ]
        for name in (created, appended)
    )

    assert [(r["key"], r["value"]) for r in first] == [(b"", None), (None, b"")]
    assert first[0]["headers"] is None
    assert [(h["key"], h["value"]) for h in first[1]["headers"]] == [
        ("h", b"1"),
        ("h", None),
    ]
    assert [r["timestampType"] for r in first + second] == [0, 0, 1, 1]
    assert first[0]["timestamp"].timestamp() == 1_700_000_000.123
    assert abs(second[0]["timestamp"].timestamp() - time.time()) < 600


@BOTH_IN_ALL
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(topic, produce, read, codec):
    name = topic(config={"compression.type": codec})
    produce(name, [f"value {number}" for number in range(500)])

    rows = read(name, 100, 400)

    assert rows == [(n, f"value {n}".encode()) for n in range(100, 400)]


def test_a_record_larger_than_a_fetch_is_read(topic, produce, read):
    name = topic(config={"max.message.bytes": "3000000"})
    large = "x" * 900_000
    produce(name, ["a", large, "b"])

    rows = read(name, 0, 3, batch_bytes=1_000)

    assert values(rows) == [b"a", large.encode(), b"b"]


# --- faults -------------------------------------------------------------------------


@pytest.mark.all
def test_a_broker_killed_and_restarted_in_mid_range_costs_no_record(
    mortal_kafka, new_reader
):
    count, size = 20_000, 500
    name = fresh_name("orders")
    mortal_kafka.create_topic(name)
    wanted = [f"{number:0{size}}" for number in range(count)]
    Produce(mortal_kafka.bootstrap_servers)(name, wanted)
    options = settings(
        mortal_kafka,
        "consumer",
        queued_min_messages="1",
        max_partition_fetch_bytes="50000",
    )
    reader = new_reader(options, timeout_ms=60_000, batch_bytes=100_000)
    batches = reader.read(OffsetRange(TopicPartition(name, 0), 0, count))

    found = next(batches)["value"].to_pylist()
    mortal_kafka.kill(1)
    restarted = threading.Thread(target=mortal_kafka.heal)
    restarted.start()
    for batch in batches:
        found += batch["value"].to_pylist()
    restarted.join()

    assert found == [value.encode() for value in wanted]


@pytest.fixture
def read_planned(kafka, new_reader):
    """Read ten records of partition 0 that were planned of a topic with an id."""

    def given(topic, topic_id, batch_bytes):
        reader = new_reader(settings(kafka, "consumer"), batch_bytes=batch_bytes)
        wanted = OffsetRange(TopicPartition(topic, 0), 0, 10, topic_id)
        return [row for batch in reader.read(wanted) for row in batch.to_pylist()]

    return given


@BOTH_IN_ALL
@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_a_topic_made_anew_is_not_read_as_the_one_that_was_planned(
    kafka, read_planned, topic, produce, batch_bytes
):
    name = topic(1)
    produce(name, ["a"] * 10)
    planned = id_of(kafka, name)
    assert len(read_planned(name, planned, batch_bytes)) == 10
    kafka.delete_topic(name)
    kafka.create_topic(name, 1)
    produce(name, ["b"] * 12)

    with pytest.raises(OtherTopicError) as caught:
        read_planned(name, planned, batch_bytes)

    assert caught.value.fields["found_id"] == id_of(kafka, name)
    assert len(read_planned(name, id_of(kafka, name), batch_bytes)) == 10


def test_a_topic_made_anew_under_a_read_fails_it(kafka, new_reader, topic, produce):
    """It had the planned id when the first record was given."""
    name = topic(1)
    produce(name, ["a"] * 10)
    wanted = OffsetRange(TopicPartition(name, 0), 0, 10, id_of(kafka, name))
    small = new_reader(settings(kafka, "consumer"), batch_bytes=1)

    batches = small.read(wanted)
    given = [next(batches)]
    kafka.delete_topic(name)
    kafka.create_topic(name, 1)
    produce(name, ["b"] * 12)

    with pytest.raises(OtherTopicError):
        given.extend(batches)
    assert len(given) < 10


def id_of(cluster, topic):
    view = KafkaClusterView(settings(cluster, "admin"))
    try:
        return view.topics(Topics((topic,)))[topic].topic_id
    finally:
        view.close()
