"""The topic of markers, which all exactly-once sinks of a cluster share.

What is marked ``all`` is played by ``tests/properties/test_sinks.py`` in each run.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin._config import ConfigResource

from integration.cluster.topics import ask, fresh_name
from integration.cluster.waiting import wait_until
from integration.consuming import committed_records
from integration.promptness import promptly
from integration.sizes import in_all
from kafka_tx import sink_assembly
from kafka_tx.config import SinkConfig
from kafka_tx.errors import (
    BrokerUnavailableError,
    ConfigError,
    FencedError,
    KafkaError,
    ReplayDiffersError,
    StateCorruptedError,
)
from kafka_tx.kafka import marker_log
from kafka_tx.kafka.marker_topic import ALL, MarkerTopic
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.model import TransactionAttempt
from kafka_tx.running.kafka_sink_bolt import write_part
from kafka_tx.sinks.sink_memory import Entry, Memory
from kafka_tx.sinks.sink_parts import Digest, Marker, Wish

COMPACTED_SOON = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
}
WELL_BELOW_A_TIMEOUT_S = 10.0
"""Other sinks' transactions were waited for 150 s."""


@pytest.fixture
def sink(kafka, topic):
    """What writes a sink of this test's own, with a marker topic of its own."""
    return Sink(kafka, topic(1))


class Sink:
    def __init__(self, kafka, topic):
        self.kafka, self.topic, self.id = kafka, topic, topic
        self.markers = f"{topic}-markers"

    def config(self, **more):
        return SinkConfig(
            kafka={"bootstrap.servers": self.kafka.bootstrap_servers},
            topic=self.topic,
            id=self.id,
            marker_topic=self.markers,
            **more,
        )

    def part(self, txid, index=0, *, epoch=1, **more):
        more = {"parts": 2, "run": "1"} | more
        attempt = TransactionAttempt.of(txid, epoch=epoch, number=0)
        config = self.config(attempt=attempt, **more)
        return sink_assembly.part_transaction(config, index)

    def write(self, txid, index=0, **more):
        record = OutRecord(self.topic, b"k", f"{txid}-{index}".encode())
        return self.part(txid, index, **more).write([record]).now

    def settle(self, txid, epoch=1):
        wish = Wish(self.id, TransactionAttempt.of(txid, epoch=epoch, number=1), 2)
        return sink_assembly.plan_keeper(self.config()).settle(wish)

    def start_again(self, txid):
        """As another run does it: the driver first, then the task."""
        _, memory = self.settle(txid, epoch=2)
        known = sink_assembly.handed(memory)
        return self.write(txid, run="2", epoch=2, reads_all_markers=True, memory=known)

    def put(self, key, value):
        """Write a record into the marker topic, as anybody may who has the right."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers})
        producer.produce(self.markers, value, key, partition=0)
        assert producer.flush(30) == 0

    def set_group(self, entry):
        """Set a group's offset, as a copy of an older state does."""
        settings = {
            "bootstrap.servers": self.kafka.bootstrap_servers,
            "group.id": entry.group,
        }
        place = sink_assembly.marker_log(self.config()).offset(entry)
        with Consumer(settings) as consumer:
            consumer.commit(offsets=[place], asynchronous=False)

    def recall(self, **more):
        return sink_assembly.marker_log(self.config()).recall(self.id, **more)

    def has_lost(self, topic, log):
        """Whether no record that the marker topic had is there any more."""
        self.put(b"other", b"")  # the newest segment is never compacted
        return not list(topic.read(log, ALL))

    def values(self):
        found = committed_records(self.kafka.bootstrap_servers, self.topic)
        return sorted(record.text for record in found)

    def forget_groups(self):
        admin = ask([self.kafka.bootstrap_servers])
        groups = [g.group_id for g in admin.list_consumer_groups().result(60).valid]
        ours = [group for group in groups if group.startswith(f"kafka_tx.{self.id}.")]
        for done in admin.delete_consumer_groups(ours).values():
            done.result(60)

    def open(self, sink, index=0, *, adds_offset=False):
        """Let a writer write its marker, and stand still."""
        marker = Marker(index, TransactionAttempt(9, 0), 1, Digest(), "0")
        entry = Entry(sink, marker)
        producer = Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "transactional.id": entry.name,
                "transaction.timeout.ms": "900000",
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(self.markers, entry.value, entry.key, partition=0)
        assert producer.flush(30) == 0
        if adds_offset:
            place = sink_assembly.marker_log(self.config()).offset(entry)
            with Consumer(
                {
                    "bootstrap.servers": self.kafka.bootstrap_servers,
                    "group.id": entry.group,
                }
            ) as consumer:
                group = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([place], group, 30)
        return producer


# --- who makes it ---------------------------------------------------------------------


@pytest.mark.all  # on simulated brokers: tests/kafka/test_marker_topic.py
@pytest.mark.parametrize(("replicas", "in_sync"), [(2, "2"), (1, "1")])
def test_it_is_as_safe_as_the_sinks_topic_and_no_less_than_by_default(
    kafka_pair, replicas, in_sync
):
    name = fresh_name()
    config = {"min.insync.replicas": in_sync}
    kafka_pair.create_topic(name, 1, replication=replicas, config=config)
    sink = Sink(kafka_pair, name)

    sink.settle(1)

    admin = ask([kafka_pair.bootstrap_servers])
    found = admin.list_topics(sink.markers, timeout=30).topics[sink.markers]
    assert len(found.partitions[0].replicas) == 2
    asked = ConfigResource(ConfigResource.Type.TOPIC, sink.markers)
    told = admin.describe_configs([asked])[asked].result(30)
    assert told["min.insync.replicas"].value == in_sync
    assert told["cleanup.policy"].value == "compact"


# --- somebody else's open transaction -------------------------------------------------


@pytest.mark.all
def test_a_fenced_task_is_told_so_where_another_sink_hides_the_newer_plan(sink):
    _, memory = sink.settle(1)
    dead = sink.open(fresh_name("theirs"))
    try:
        sink.settle(1, epoch=2)
        assert sink.write(1, run="2", epoch=2)

        with pytest.raises(FencedError, match="is older than attempt"):
            sink.write(1, 1, memory=sink_assembly.handed(memory))
    finally:
        dead.abort_transaction(30)


def test_another_sinks_open_transaction_stops_nobody(sink):
    sink.settle(1)
    assert sink.write(1)
    theirs = fresh_name("theirs")
    dead = sink.open(theirs)
    try:
        assert sink.write(1, 1)  # above it in the log

        def start_again():
            plan, memory = sink.settle(2, epoch=2)
            known = sink_assembly.handed(memory)
            assert plan.parts_of(2) == 2
            assert [m.txid for m in memory.markers] == [1, 1]
            assert not sink.write(
                1, 1, run="2", epoch=2, reads_all_markers=True, memory=known
            )
            return memory

        memory = promptly(start_again, WELL_BELOW_A_TIMEOUT_S)
    finally:
        dead.abort_transaction(30)
    assert memory.plan is not None
    assert sink.write(2, 1, run="2", epoch=2)
    assert sink.values() == ["1-0", "1-1", "2-1"]


@pytest.mark.parametrize("ahead", [1, *in_all(1_000_000)])
def test_a_marker_that_the_sink_did_not_commit_is_refused_with_the_truth(sink, ahead):
    """Of this txid it hides the batch, and of a later one it comes too late."""
    sink.settle(1)
    assert sink.write(1)
    forged = Marker(0, TransactionAttempt.of(1 + ahead, epoch=1, number=0), 2)
    entry = Entry(sink.id, forged)
    sink.put(entry.key, entry.value)

    with pytest.raises(StateCorruptedError, match="commits both at once") as refused:
        sink.start_again(2)
    text = str(refused.value)
    assert f"has not written txid {1 + ahead}, write the group's marker" in text
    key, of_group = re.findall(
        r"under the key (.*), and group .* has (.*?)\. The", text
    )[0]
    sink.put(key.encode(), of_group.encode())

    assert sink.start_again(2)
    assert sink.values() == ["1-0", "2-0"]


def test_a_group_that_somebody_has_set_back_is_refused_with_the_truth(sink):
    sink.settle(1)
    assert sink.write(1)
    entry = Entry(sink.id, sink.recall().own("", 0))
    assert sink.write(2)
    sink.set_group(entry)

    with pytest.raises(StateCorruptedError, match="commits both at once") as refused:
        sink.start_again(2)
    assert "If it has, delete the group" in str(refused.value)
    sink.forget_groups()

    assert not sink.start_again(2)
    assert sink.values() == ["1-0", "2-0"]


@pytest.mark.all
def test_a_run_that_wakes_between_two_answers_of_the_next_damages_nothing(
    sink, monkeypatch
):
    """The topic was read before it wrote, and its group after."""
    in_group = marker_log.MarkerLog.set_in_group
    woken: list[bool] = []

    def wakes_first(log, entry):
        if not woken:
            woken.append(True)
            sink.settle(1)
            assert sink.write(1)
        return in_group(log, entry)

    monkeypatch.setattr(marker_log.MarkerLog, "set_in_group", wakes_first)

    with pytest.raises(KafkaError, match="another writer of the same part has begun"):
        sink.settle(1, epoch=2)
    assert not sink.start_again(1)
    assert sink.values() == ["1-0"]


@pytest.mark.all
@pytest.mark.parametrize("what", ["part", "plan"])
def test_a_run_that_wakes_after_newer_markers_were_compacted_damages_nothing(
    sink, kafka, monkeypatch, what
):
    """Its group knew a marker that the topic has not kept: for a newer one."""
    kafka.create_topic(sink.markers, 1, config=COMPACTED_SOON)
    known = sink_assembly.remembered(sink.config())

    def older(*_):
        sink.settle(1)
        assert sink.write(1)

    def newer(topic, log):
        sink.settle(2, epoch=3)
        assert sink.write(2, run="3", epoch=3)
        wait_until("compacted", lambda: sink.has_lost(topic, log), timeout_s=90)

    if what == "part":
        older()
        after_bounds(monkeypatch, newer)
        more = {"reads_all_markers": True, "memory": known}
        frozen = partial(sink.write, 2, run="2", epoch=2, **more)
    else:
        after_bounds(monkeypatch, older, newer)
        frozen = partial(sink.settle, 2, epoch=2)

    with pytest.raises(FencedError, match="is older than attempt"):
        frozen()
    assert sink.values() == ["1-0", "2-0"]


def after_bounds(monkeypatch, *events):
    """Let each of the next questions for the topic's bounds be followed by an event."""
    bounds, left = MarkerTopic.bounds, list(events)

    def followed(topic):
        found = bounds(topic)
        if left:
            event, *later = left
            left.clear()  # the event asks, too
            event(topic, found[0])
            left.extend(later)
        return found

    monkeypatch.setattr(MarkerTopic, "bounds", followed)


@pytest.mark.parametrize("adds_offset", [*in_all(False), True])
def test_what_a_dead_writer_left_open_behind_it_is_ended_and_not_believed(
    sink, adds_offset
):
    assert sink.write(1)
    assert sink.write(1, 1)
    dead = [
        sink.open(fresh_name("theirs")),
        sink.open(sink.id, index=1, adds_offset=adds_offset),
    ]
    try:
        memory = promptly(sink.recall, WELL_BELOW_A_TIMEOUT_S)

        assert sorted((m.index, m.txid) for m in memory.markers) == [(0, 1), (1, 1)]
        with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
            dead[1].commit_transaction(30)
    finally:
        dead[0].abort_transaction(30)


def test_two_dead_writers_of_a_sink_do_not_hide_each_other(sink):
    """They wrote in turns: whether the one committed is hidden by the other."""
    sink.recall()
    dead = [sink.open(sink.id, index) for index in (1, 0)]
    last = Entry(sink.id, Marker(1, TransactionAttempt(9, 1), 1, Digest(), "0"))
    dead[0].produce(sink.markers, last.value, last.key, partition=0)
    assert dead[0].flush(30) == 0

    memory = promptly(sink.recall, WELL_BELOW_A_TIMEOUT_S)

    assert not memory.markers
    for writer in dead:
        with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
            writer.commit_transaction(30)


@pytest.mark.all
def test_a_bolt_with_fewer_tasks_ends_what_an_earlier_run_left_open(sink, monkeypatch):
    """Its readers would wait two minutes for the part that has no task now."""
    assert sink.write(1)
    assert sink.write(1, 1)
    dead = sink.part(2, 1)
    open_ones: list[object] = []
    monkeypatch.setattr(dead, "_mark", lambda *_: None)  # the topic tells nothing
    monkeypatch.setattr(dead, "_commit", lambda it, _: open_ones.append(it))
    dead.write([OutRecord(sink.topic, b"k", b"never")])
    assert sink_assembly.holds_readers_up(sink.config())
    attempt = TransactionAttempt.of(2, epoch=2, number=0)
    fewer = sink.config(attempt=attempt, parts=1, run="2", reads_all_markers=True)

    write_part(fewer, 0, [OutRecord(sink.topic, b"k", b"2-0")])

    assert open_ones
    assert not sink_assembly.holds_readers_up(sink.config())
    assert sink.values() == ["1-0", "1-1", "2-0"]


@pytest.mark.all
def test_the_first_task_of_a_bolt_leaves_those_beside_it_alone(sink, monkeypatch):
    """They hold readers up, too, until they commit."""
    attempt = TransactionAttempt.of(1, epoch=1, number=0)
    ours = sink.config(attempt=attempt, parts=2, run="1", reads_all_markers=True)
    beside = sink_assembly.part_transaction(ours, 1)
    commit = beside._commit

    def let_the_first_one_end(transaction, digest):
        write_part(ours, 0, [OutRecord(sink.topic, b"k", b"1-0")])
        commit(transaction, digest)

    monkeypatch.setattr(beside, "_commit", let_the_first_one_end)

    assert beside.write([OutRecord(sink.topic, b"k", b"1-1")]).now

    assert sink.values() == ["1-0", "1-1"]


@pytest.mark.all
def test_a_task_whose_part_a_frozen_one_wrote_instead_with_other_rows_says_so(
    sink, monkeypatch
):
    """The frozen one woke just before the newer one committed."""
    attempt = TransactionAttempt.of(1, epoch=2, number=0)
    ours = sink.config(attempt=attempt, parts=1, run="2", reads_all_markers=True)
    frozen = replace(ours, attempt=TransactionAttempt.of(1, epoch=1, number=0), run="1")
    newer = sink_assembly.part_transaction(ours, 0)
    commit = newer._commit

    def let_the_frozen_one_write(transaction, digest):
        write_part(frozen, 0, [OutRecord(sink.topic, b"k", b"older")])
        commit(transaction, digest)

    monkeypatch.setattr(newer, "_commit", let_the_frozen_one_write)

    with pytest.raises(ReplayDiffersError):
        newer.write([OutRecord(sink.topic, b"k", b"newer")])

    assert sink.values() == ["older"]


def test_what_is_really_hidden_names_what_hides_it_and_comes_once_that_has_ended(
    sink, monkeypatch
):
    monkeypatch.setattr(marker_log, "_OPEN_MS", 500)
    sink.recall()
    theirs = fresh_name("theirs")
    dead = sink.open(theirs)
    try:
        assert sink.write(1)
        sink.forget_groups()

        with pytest.raises(BrokerUnavailableError) as raised:
            sink.write(1, run="2", epoch=2)
    finally:
        dead.abort_transaction(30)

    text = str(raised.value)
    assert f"'kafka_tx.{sink.id}.0' has committed txid 1 is hidden" in text
    assert f"describe --transactional-id kafka_tx.{theirs}.0" in text
    assert f"abort --topic {sink.markers} --partition 0 --start-offset 0" in text
    assert not sink.write(1, run="2", epoch=2)
    assert sink.values() == ["1-0"]


# --- what the driver has read ---------------------------------------------------------


@pytest.fixture
def read(monkeypatch):
    """Where readings of the marker topic begin and end."""
    seen = []
    real = MarkerTopic.read

    def spied(self, bounds, *others):
        if bounds.end > bounds.log_start:
            seen.append((bounds.log_start, bounds.end))
        return real(self, bounds, *others)

    monkeypatch.setattr(MarkerTopic, "read", spied)
    return seen


def test_a_task_reads_only_what_came_after_the_drivers_read(sink, read):
    for txid in (1, 2, 3):
        sink.write(txid)
    known = sink_assembly.remembered(sink.config())
    end = Memory.of_text(known).end
    read.clear()

    assert sink.write(4, 1, run="2", epoch=2, reads_all_markers=True, memory=known)
    assert read == []
    assert sink.write(4, run="2", epoch=2, reads_all_markers=True, memory=known)
    assert [begin for begin, _ in read] == [end]


@pytest.mark.parametrize("forgotten", [*in_all(False), True])
def test_what_a_zombie_wrote_after_the_drivers_read_is_known_to_the_task(
    sink, forgotten
):
    assert sink.write(1)
    known = sink_assembly.remembered(sink.config())
    assert sink.write(2)
    if forgotten:
        sink.forget_groups()

    for reads_all_markers in (True, False):
        again = {
            "run": "2",
            "epoch": 2,
            "reads_all_markers": reads_all_markers,
            "memory": known,
        }
        assert not sink.write(2, **again)

    assert sink.values() == ["1-0", "2-0"]


def test_what_the_driver_knew_of_a_topic_that_was_made_anew_is_dropped(sink, kafka):
    assert sink.write(1)
    memory = sink.recall()
    kafka.delete_topic(sink.markers)
    assert sink.recall(since=memory).markers == []
    for txid in (2, 3):  # more than there were
        assert sink.write(txid, 1)

    assert [(m.index, m.txid) for m in sink.recall(since=memory).markers] == [(1, 3)]


# --- a topic that others made ---------------------------------------------------------


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_forgets_is_refused_until_it_is_set_as_the_text_says(
    sink, kafka, policy
):
    kafka.create_topic(sink.markers, 1, config={"cleanup.policy": policy})
    texts = []
    for begin in (
        lambda: sink.settle(1),
        lambda: sink.write(1),
        lambda: sink_assembly.remembered(sink.config()),
    ):
        with pytest.raises(ConfigError, match=f"cleanup.policy={policy}") as raised:
            begin()
        texts.append(str(raised.value))
    assert sink.values() == []
    for text in texts:
        assert f"--entity-name {sink.markers} --add-config cleanup.policy=com" in text

    kafka.alter_topic(sink.markers, {"cleanup.policy": "compact"})

    sink.settle(1)
    assert sink.write(1)
    assert sink.values() == ["1-0"]
