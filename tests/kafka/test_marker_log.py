"""What a marker topic holds is read to its end, however many pieces it comes in."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from integration.stored import sets, texts
from kafka_tx.errors import FormatError, StateCorruptedError
from kafka_tx.kafka.marker_log import MarkerLog
from kafka_tx.kafka.marker_topic import MarkerTopic
from kafka_tx.model import TopicPattern, TransactionAttempt
from kafka_tx.sinks.sink_memory import Entry
from kafka_tx.sinks.sink_parts import Digest, Marker


@pytest.mark.parametrize("reader", ["native", "python"])
def test_all_markers_of_a_sink_are_remembered(
    cluster, topic, consumer_settings, monkeypatch, reader
):
    monkeypatch.setenv("KAFKA_TX_READER", reader)
    log = MarkerLog(topic(), topic(), consumer_settings, {})
    wanted = [
        Marker(index, TransactionAttempt.of(7, epoch=2, number=0), 10, Digest(), "run")
        for index in range(10)
    ]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for sink in ("ours", "another"):
        for marker in wanted:
            record = log.record(Entry(sink, marker))
            producer.produce(log.topic, key=record.key, value=record.value, partition=0)
    assert producer.flush(30) == 0

    named = TopicPattern(".*").matching([log.topic, log.place])
    assert log.recall("ours").markers == wanted

    assert named == [log.topic, log.place]
    assert TopicPattern(".*").matching(named) == [log.place], "none reads markers"


def test_the_topics_policy_is_checked_by_who_reads_all_of_it_and_not_again(
    topic, consumer_settings, monkeypatch
):
    checked = []
    monkeypatch.setattr(MarkerTopic, "check_policy", lambda self: checked.append(self))
    log = MarkerLog(topic(), topic(), consumer_settings, {})

    remembered = log.recall("ours")
    assert len(checked) == 1

    log.recall("ours", since=remembered)
    assert len(checked) == 1


# --- what others write there ----------------------------------------------------------

OURS = Marker(0, TransactionAttempt.of(7, epoch=2, number=0), 1, Digest(), "run")
DEEP = b"[" * 20_000


@pytest.fixture
def log(topic, consumer_settings):
    return MarkerLog(topic(), topic(), consumer_settings, {})


@pytest.fixture
def put(cluster, log):
    """Write records as anybody may who has the right."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

    def write(*records):
        for key, value in records:
            producer.produce(log.topic, key=key, value=value, partition=0)
        assert producer.flush(30) == 0

    return write


@pytest.fixture
def commit(consumer_settings):
    """Set an offset of an entry's group, with metadata or as tools do, without."""

    def write(log, entry, metadata):
        consumer = Consumer({**consumer_settings, "group.id": entry.group})
        at = TopicPartition(log.place, 0, entry.txid, metadata)
        consumer.commit(offsets=[at], asynchronous=False)
        consumer.close()

    return write


def test_records_of_others_are_skipped(log, put):
    entry = Entry("ours", OURS)
    strangers = [
        *((b"heartbeat", b"2026-11-27"), (b"1", b"1"), (b"{}", b""), (DEEP, DEEP)),
        *((None, None), (b"\xff", b"\xff"), (b'["plan"]', b"[]")),
        *((b'["part","ours","",{"a":1}]', b"x"), (b'["part","ours",[],0]', b"x")),
        *((b'["part", "ours", "", 0]', b"x"), (b'["part","ours","",0.0]', b"x")),
        *((b'["plan","ours",1]', b"x"), (b'["part","another","",0]', DEEP)),
    ]
    put((entry.key, entry.value), *strangers)

    assert log.recall("ours").markers == [OURS]


@pytest.mark.parametrize(
    "value",
    [DEEP, b"", None, b'[1e400,""]', b'["7",""]', b"[7,7]", b'[-1,""]', b"\xff"],
)
def test_an_overwritten_marker_is_taken_from_its_group_or_named(
    log, put, commit, value
):
    entry = Entry(f"sink-{log.topic}", OURS)
    other = Entry(entry.sink, replace(OURS, index=1))
    put(*((each.key, each.value) for each in (entry, other)), (entry.key, value))
    with pytest.raises(StateCorruptedError, match=r"record 2 of topic.*a marker"):
        log.recall(entry.sink)

    commit(log, entry, entry.metadata)

    assert log.recall(entry.sink).own("", 0) == OURS
    put((entry.key, entry.value))
    assert log.recall(entry.sink).own("", 0) == OURS


def test_markers_of_the_release_are_read(log, put, commit):
    kept = json.loads((sets.RELEASE / "texts.json").read_text())["markers"]
    put(*((one["key"].encode(), one["value"].encode()) for one in kept))

    memory = log.recall("sink")

    announced, marker, plan = texts.ENTRIES
    assert announced.is_announcement
    assert memory.markers == [marker.kept]
    assert memory.plan == plan.kept
    whole = Entry(f"sink-{log.topic}", marker.kept)
    commit(log, whole, kept[1]["group"])
    assert log.kept(whole) == whole


@pytest.mark.parametrize("which", [0, 1])
def test_markers_of_another_version_are_named_and_left(log, put, commit, which):
    before = json.loads((sets.BEFORE / "set.json").read_text())
    one = before["markers"][which]
    put((one["key"].encode(), one["value"].encode()))
    with pytest.raises(FormatError, match="Kafka sink 'sink' .* A version before 0.3"):
        log.recall("sink")

    entry = Entry(f"sink-{log.topic}", OURS)
    for text in before["marker_metadata"]:
        commit(log, entry, text)
        with pytest.raises(FormatError, match="no release reads it"):
            log.kept(entry)


def test_a_sink_without_keys_and_groups_begins_again(log, put):
    entry = Entry(f"sink-{log.topic}", OURS)
    other = Entry(entry.sink, replace(OURS, index=1))
    both = [(each.key, each.value) for each in (entry, other)]
    put(*both, (entry.key, None))
    with pytest.raises(StateCorruptedError, match="it was deleted"):
        log.recall(entry.sink)

    put((other.key, None))

    assert log.recall(entry.sink).is_empty


def test_an_offset_that_a_person_has_set_is_no_marker(log, commit):
    entry = Entry(f"sink-{log.topic}", OURS)
    commit(log, entry, "")

    assert log.kept(entry) is None
    assert log.set_in_group(entry)
