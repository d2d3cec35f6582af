"""What real brokers tell about topics and offsets."""

from __future__ import annotations

import gc
import json
import time
from contextlib import closing

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Uuid
from confluent_kafka import TopicPartition as ClientPartition

from integration.cluster.records import Record
from integration.cluster.running import running
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import wait_until
from integration.promptness import promptly
from kafka_tx import assembly, sink_assembly
from kafka_tx.errors import ConfigError, GroupOccupiedError
from kafka_tx.kafka import admin as admin_module
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.cluster import KafkaClusterView
from kafka_tx.kafka.group_offsets import LIMIT
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.kafka.offset_requests import ListedOffset, list_offsets
from kafka_tx.kafka.out_batch import OutBatch
from kafka_tx.kafka.sender import Sender
from kafka_tx.model import (
    AtTime,
    Earliest,
    Latest,
    LogBounds,
    LogPosition,
    TopicPartition,
    TopicPattern,
    Topics,
    Unavailable,
)
from kafka_tx.options.sink import parse_sink
from kafka_tx.options.source import parse_source
from kafka_tx.planning.deleted_topics import CONFIRMED_AFTER_MS
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.spark.source.stream import KafkaTxStreamReader
from kafka_tx.testing import ManualClock
from kafka_tx.topology.kafka.spout import KafkaBatchSpout


def view_of(cluster, **more):
    options = {"bootstrap.servers": cluster.bootstrap_servers}
    return KafkaClusterView(client_settings(options, purpose="admin"), **more)


@pytest.fixture
def view(kafka):
    view = view_of(kafka, retry_interval_ms=100)
    yield view
    view.close()


def trim(cluster, topic, before):
    """Move log starts; the client may miss the leaders at first, so more than once."""
    wait_until(
        f"{topic} is trimmed", lambda: cluster.delete_records(topic, before) is None
    )


def test_nothing_of_former_answers_is_cached(view, topic):
    name = topic(partitions=1)

    def ids_after(polls):
        for _ in range(polls):
            assert view.topics(Topics((name,)))[name].topic_id
        gc.collect()
        return sum(type(thing) is Uuid for thing in gc.get_objects())

    assert ids_after(50) == ids_after(10)


def test_topics_have_leaders_and_ids(view, topic):
    name = topic(partitions=3)

    found = view.topics(Topics((name, "absent")))

    assert list(found) == [name]
    assert sorted(found[name].leaders) == [0, 1, 2]
    assert all(leader is not None for leader in found[name].leaders.values())
    assert found[name].topic_id
    assert view.topic_ids([name, "absent"]) == {
        name: found[name].topic_id,
        "absent": None,
    }


def test_a_topic_made_again_has_another_id(kafka, view, topic):
    name = topic(partitions=3)
    before = view.topics(Topics((name,)))[name]

    kafka.delete_topic(name)
    assert view.topics(Topics((name,))) == {}
    kafka.create_topic(name, 1)
    after = view.topics(Topics((name,)))[name]

    assert after.topic_id != before.topic_id
    assert len(after.leaders) == 1


def test_positions_of_a_deleted_topic_leave_a_source_and_a_spout(
    kafka, topic, produce, tmp_path
):
    kept, gone = topic(1), topic(1)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": f"{kept},{gone}",
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
    }
    transactions = {"tx.id": "topics", "tx.store": f"sqlite:///{tmp_path}/s.db"}
    config = parse_source(options | transactions, streaming=True)
    assert config.transactions is not None
    clock, view = ManualClock(), view_of(kafka, retry_interval_ms=100)
    ledger = assembly.ledger(config.transactions)
    run = TransactionalMicroBatches(config, config.transactions, view, clock, ledger)
    other = view_of(kafka, retry_interval_ms=100)
    spout = KafkaBatchSpout(config, other, assembly.range_reader(config), clock)
    for name in (kept, gone):
        produce(name, ["v"] * 3)
    end = run.latest(run.initial(), everything=True)
    plan = spout.initialize_transaction(1, None)
    kafka.delete_topic(gone)

    for txid in range(2, 6):
        produce(kept, ["v"])
        clock.advance(CONFIRMED_AFTER_MS)
        end = run.latest(end, everything=True)
        plan = spout.initialize_transaction(txid, plan)

    run.finished(end)
    state = ledger.load().committed
    run.close()
    spout.close()
    assert gone not in str(end.to_json())
    assert list(end.positions.values()) == [7]
    assert state is not None
    assert {p.topic for p in state.offsets} == {kept}
    assert [*map(str, plan.ends())] == [f"{kept}-0"]


def test_added_partitions_are_seen(kafka, view, topic):
    name = topic()
    view.topics(Topics((name,)))

    kafka.add_partitions(name, 4)

    assert len(view.topics(Topics((name,)))[name].leaders) == 4


def test_a_pattern_finds_topics_but_no_internal_ones(view, topic, produce):
    name = topic()
    produce.committed(name, ["a"])  # makes __transaction_state

    found = view.topics(TopicPattern("topic-.*|__.*"))

    assert name in found
    assert not [other for other in found if other.startswith("__")]


@pytest.mark.all
def test_asking_never_creates_a_topic(servers):
    with running(
        servers.kafka(settings={"auto.create.topics.enable": "true"})
    ) as cluster:
        view = view_of(cluster)
        partition = TopicPartition("never-made", 0)

        assert view.topics(Topics(("never-made",))) == {}
        assert isinstance(view.bounds([partition])[partition], Unavailable)
        assert view.topics(TopicPattern("never")) == {}

        written = client_settings(
            {"bootstrap.servers": cluster.bootstrap_servers}, purpose="producer"
        )
        with Sender(written) as sender:  # as Java's producers, where brokers do
            sender.write(OutBatch.of("made", pa.array(["v"])))
            sender.flush()
        letters = parse_sink(
            {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "letters"}
        )
        with pytest.raises(ConfigError, match="a topic that exists"):
            sink_assembly.check_letter_topic("topic", letters)
        assert set(view.topics(TopicPattern("never.*|made|letters"))) == {"made"}
        view.close()


def test_offsets_follow_time_and_retention(kafka, view, topic, produce):
    name = topic()
    partition = TopicPartition(name, 0)
    first = int(time.time() * 1000) - 10_000
    produce(name, [Record("v", timestamp_ms=first + 1000 * n) for n in range(5)])
    trim(kafka, name, {0: 2})

    def resolved(position):
        return view.offsets({partition: position})[partition]

    topic_id = view.topics(Topics((name,)))[name].topic_id
    assert topic_id
    assert view.bounds([partition]) == {partition: LogBounds(2, 5, topic_id, 0)}
    assert resolved(Earliest()) == 2
    assert resolved(Latest()) == 5
    assert resolved(AtTime(first + 3000)) == 3
    assert resolved(AtTime(first + 3001)) == 4
    assert resolved(AtTime(0)) == 2
    assert resolved(AtTime(first + 3_600_000)) is None


def test_the_bounds_of_many_partitions_come_in_few_requests(view, topic):
    count = 300
    name = topic(partitions=count)
    partitions = [TopicPartition(name, number) for number in range(count)]
    topic_id = view.topics(Topics((name,)))[name].topic_id
    empty = dict.fromkeys(partitions, LogBounds(0, 0, topic_id, 0))
    wait_until("all leaders are at work", lambda: view.bounds(partitions) == empty)

    assert promptly(lambda: view.bounds(partitions), 1.0) == empty


def test_many_partitions_are_described_and_asked_again_in_native_code(
    kafka, topic, produce
):
    """What is reported again is the same object: nobody need look at each partition."""
    name, other = topic(partitions=120), topic()
    wanted = Topics((name, other, fresh_name("absent")))
    in_python, natively = (view_of(kafka, retry_interval_ms=100) for _ in range(2))
    partitions = tuple(TopicPartition(name, number) for number in range(120))
    wait_until(
        "all have leaders",
        lambda: all(in_python.topics(wanted)[name].leaders.values()),
    )

    natively.survey(wanted, partitions)  # asked first, so in Python
    natively.ends(partitions)
    assert natively._admin._native is not None
    described, ends = natively.topics(wanted), natively.ends(partitions)

    assert described == in_python.topics(wanted)
    assert {tp: tuple(at) for tp, at in ends.items()} == dict.fromkeys(
        partitions, (0, 0)
    )
    assert natively.topics(wanted) is described
    assert natively.ends(partitions) is ends
    produce(name, ["v"], partition=7)
    later = natively.ends(partitions)
    assert [tp for tp in partitions if later[tp] != ends[tp]] == [partitions[7]]
    kafka.delete_topic(other)
    wait_until("it is gone", lambda: other not in in_python.topics(wanted))
    assert natively.topics(wanted) == in_python.topics(wanted)
    assert natively._admin._native is not None
    for view in (in_python, natively):
        view.close()


class Planner:
    """A source as Spark's planning process asks it, from one end to the next."""

    def __init__(self, kafka, name, folder):
        self.reader = KafkaTxStreamReader(
            {
                "kafka.bootstrap.servers": kafka.bootstrap_servers,
                "subscribe": name,
                "startingOffsets": "earliest",
                "failOnDataLoss": "false",
                "tx.id": name,
                "tx.store": f"sqlite:///{folder}/store.db",
                "fetchOffset.retryIntervalMs": "100",
            }
        )
        self.at = json.loads(json.dumps(self.reader.initialOffset()))

    def _latest(self):
        limit = self.reader.getDefaultReadLimit()
        return json.loads(json.dumps(self.reader.latestOffset(self.at, limit)))

    def read(self):
        """Wait for something new: its ranges."""
        wait_until("something is new", lambda: self._latest() != self.at)
        start, self.at = self.at, self._latest()
        return [str(task.wanted) for task in self.reader.partitions(start, self.at)]

    def rest(self):
        for _ in range(5):
            assert self._latest() == self.at
        planner = self.reader._batches
        assert planner is not None
        assert planner._rest is not None


def test_a_source_that_rests_on_many_partitions_sees_what_happens(
    kafka, topic, produce, tmp_path
):
    """A topic that is made anew with as many records, and one new record."""
    name, count = topic(partitions=120), 120
    first_of_each = [f"{name}-{number} [0, 1)" for number in range(count)]

    def write_to_each():
        for number in range(count):
            produce(name, ["v"], partition=number)

    write_to_each()
    planner = Planner(kafka, name, tmp_path)
    assert planner.read() == first_of_each
    planner.rest()
    kafka.delete_topic(name)
    kafka.create_topic(name, count)
    write_to_each()
    assert planner.read() == first_of_each
    planner.rest()
    produce(name, ["v"], partition=7)
    assert planner.read() == [f"{name}-7 [1, 2)"]
    planner.rest()
    planner.reader.stop()


def answers(admin, questions, committed):
    """The answers on a connection, as values that compare."""
    deadline = Deadline(10_000)
    return [
        {
            tp: a if isinstance(a, ListedOffset) else (a.code(), a.str())
            for tp, a in offsets.items()
        }
        for offsets in list_offsets(admin, questions, deadline, committed=committed)
    ]


def test_python_and_native_code_are_told_the_same(kafka, topic, produce, monkeypatch):
    monkeypatch.setattr(admin_module, "MANY", 1)
    settings = client_settings(
        {"bootstrap.servers": kafka.bootstrap_servers}, purpose="admin"
    )
    name = topic(partitions=3)
    trimmed, undecided, empty = (TopicPartition(name, n) for n in range(3))
    first = int(time.time() * 1000) - 10_000
    for n in (0, 1):
        written = [Record("v", timestamp_ms=first + 1000 * k) for k in range(5)]
        produce(name, written, partition=n)
    trim(kafka, name, {0: 2})
    open_one = produce.open_transaction(name, ["v"], partition=1)
    every = (trimmed, undecided, empty)
    questions = [
        dict.fromkeys(every, Earliest()),
        dict.fromkeys(every, Latest()),
        {trimmed: AtTime(first + 3001), undecided: AtTime(0), empty: AtTime(first)},
    ]
    wrong = [
        {trimmed: Latest(), TopicPartition(name, 7): Latest()},
        {trimmed: Latest(), TopicPartition(fresh_name("absent"), 0): Latest()},
    ]
    found = {}

    for committed in (False, True):
        admin = AdminConnection(settings)
        in_python, natively = (answers(admin, questions, committed) for _ in range(2))
        assert admin._native is not None, "the second question is asked natively"
        assert in_python == natively
        found[committed] = [[listed[tp].offset for tp in every] for listed in natively]
        assert {listed.leader_epoch for listed in natively[1].values()} == {0}
    for question in wrong:
        admin = AdminConnection(settings)
        answers(admin, questions, committed=False)
        natively = answers(admin, [question], committed=False)
        assert admin._native is None, "a failed answer is asked in Python next"
        assert natively == answers(admin, [question], committed=False)
        failed = [tp for tp, told in natively[0].items() if type(told) is tuple]
        assert failed == [tp for tp in question if tp is not trimmed]

    assert found[False] == [[2, 0, 0], [5, 6, 0], [4, 0, -1]]
    assert found[True] == [[2, 0, 0], [5, 5, 0], [4, 0, -1]]
    open_one.abort()


@pytest.mark.all
@pytest.mark.parametrize("fewest", [1, 1 << 30], ids=["native", "python"])
def test_partitions_whose_broker_is_away_do_not_hold_back_the_others(
    kafka_pair, fewest, monkeypatch
):
    monkeypatch.setattr(admin_module, "MANY", fewest)
    name = fresh_name("spread")
    kafka_pair.create_topic(name, 6, replication=1)
    view = view_of(kafka_pair, timeout_ms=15_000, retry_interval_ms=100)
    partitions = view.topics(Topics((name,)))[name].partitions
    away = {tp for tp in partitions if kafka_pair.leader(name, tp.partition) == 2}

    def lost(answer):
        return {tp for tp in partitions if isinstance(answer[tp], Unavailable)}

    def leaderless():
        leaders = view.topics(Topics((name,)))[name].leaders
        return {tp for tp in partitions if leaders[tp.partition] is None}

    before = view.bounds(partitions)  # asked first, so in Python
    kafka_pair.kill(2)
    try:
        at_once = lost(view.bounds(partitions))
        wait_until("the leaders are known to be away", lambda: leaderless() == away)
        later = lost(promptly(lambda: view.bounds(partitions), 5.0))
    finally:
        kafka_pair.restart(2)
    healed = view.bounds(partitions)
    view.close()

    assert 0 < len(away) < len(partitions)
    assert at_once == away
    assert later == away
    assert {(b.log_start, b.end) for b in healed.values()} == {(0, 0)}
    for tp in partitions:  # a leader that comes back counts its epoch up
        assert (healed[tp].leader_epoch > before[tp].leader_epoch) == (tp in away)
        assert healed[tp].topic_id == before[tp].topic_id is not None


# --- groups -------------------------------------------------------------------------


@pytest.fixture
def mirror(kafka, topic):
    options = {"bootstrap.servers": kafka.bootstrap_servers}
    mirror = GroupMirror(client_settings(options, purpose="admin"), f"group-{topic()}")
    yield mirror
    mirror.close()


def test_offsets_are_mirrored_to_a_group_that_nobody_joined(mirror, topic):
    name = topic(partitions=2)
    zero, one = TopicPartition(name, 0), TopicPartition(name, 1)

    assert mirror.load([zero, one]) == {}
    mirror.store({zero: LogPosition(5, None)})
    last = {zero: LogPosition(7, None, 0), one: LogPosition(0, None)}
    mirror.store(last)

    assert mirror.load([zero, one]) == last


def test_a_group_takes_more_than_one_batch_of_its_topic_holds(kafka, topic):
    """As for 15,000 partitions: here 300, each with as much text as brokers take."""
    name = topic(partitions=300)
    options = {"bootstrap.servers": kafka.bootstrap_servers}
    mirror = GroupMirror(client_settings(options, purpose="admin"), f"large-{name}")
    text = "x" * LIMIT

    with closing(mirror):
        mirror.store_positions([ClientPartition(name, n, 7, text) for n in range(300)])
        found = mirror.load(TopicPartition(name, n) for n in range(300))

    assert [at.offset for at in found.values()] == [7] * 300


def test_a_group_with_members_refuses_the_mirror(kafka, topic):
    name = topic()
    group = f"busy-{name}"
    options = {"bootstrap.servers": kafka.bootstrap_servers}
    consumer = Consumer({**options, "group.id": group, "log_level": 0})
    consumer.subscribe([name])
    deadline = time.monotonic() + 30
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.1)
    mirror = GroupMirror(client_settings(options, purpose="admin"), group)
    first = {TopicPartition(name, 0): LogPosition(1, None)}

    try:
        with pytest.raises(GroupOccupiedError, match=f"'{group}'") as refused:
            mirror.store(first)
        assert "until it leaves" in str(refused.value)
        assert refused.value.retryable
        consumer.close()
        mirror.store(first)
        assert mirror.load([*first]) == first
    finally:
        consumer.close()
        mirror.close()
