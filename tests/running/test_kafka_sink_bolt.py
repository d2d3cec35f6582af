"""The Kafka bolt in both kinds of topologies, on the mock cluster."""

from __future__ import annotations

import itertools
import logging
import pickle
import time
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_tx import FieldMapper, FieldTopic, KafkaBolt, KafkaMessage, sink_assembly
from kafka_tx.errors import (
    ComponentError,
    ConfigError,
    DeliveryError,
    FailedException,
)
from kafka_tx.kafka import transaction
from kafka_tx.kafka.part_transaction import Written
from kafka_tx.kafka.producer import ProducerClient
from kafka_tx.model import TransactionAttempt
from kafka_tx.native import writer
from kafka_tx.own_topics import MARKER_TOPIC
from kafka_tx.sinks.sink_memory import Memory
from kafka_tx.sinks.sink_parts import Digest
from kafka_tx.spark.at_least_once.topology import TopologyBuilder
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.testing.mock import MockCluster
from kafka_tx.topology.at_least_once.chunks import run_chunk
from kafka_tx.topology.declare.bolts import TaskContext
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout
from kafka_tx.topology.run import attempt_run as attempts
from kafka_tx.topology.run.messages import BatchFailed, BatchStopped
from tests.local_engine import (
    GivenBlocks,
    GivenRecords,
    LocalEngine,
    run_commit,
    run_processing,
)

ENGINES = pytest.mark.parametrize(
    "engine",
    [
        LocalEngine(),
        LocalEngine(travels=True),
        LocalEngine(travels=True, is_together=True),
    ],
    ids=["in place", "travelling", "together"],
)
DELIVERIES = pytest.mark.parametrize("delivery", ["async", "sync"])
FIELDS = ("key", "value", "to")

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster():
    with MockCluster() as mock:
        mock.create_topic(MARKER_TOPIC)  # it answers no request to make one
        yield mock


@pytest.fixture
def topic(cluster):
    name = f"out-{next(_numbers)}"
    cluster.create_topic(name, 1)
    return name


@pytest.fixture
def options(cluster, topic):
    servers = cluster.bootstrap_servers
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.max.request.size": "1048576",  # the mock takes records of any size
        "topic": topic,
    }


@pytest.fixture
def read(cluster):
    """Committed records of a topic: (key, value)."""

    def committed(topic):
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": "10",
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while True:
            message = consumer.poll(10)
            assert message is not None
            if message.error():
                break
            found.append((message.key(), message.value()))
        consumer.close()
        return found

    return committed


def in_batches(
    bolt, rows, *, tasks=1, txid=1, attempt_id=1, engine=None, settings=None
):
    """Both phases of one batch of a transactional topology."""
    spout = MemoryTransactionalSpout({0: []}, FIELDS, 10)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    builder.set_bolt("out", bolt, tasks).fields_grouping("spout", ["key"])
    attempt = TransactionAttempt(txid, attempt_id)
    engine = engine or LocalEngine()
    plan = replace(builder.build().plan, settings=settings or {})
    processed = attempts.run_processing(plan, attempt, GivenBlocks((rows,)), engine)
    if processed.failure is None:
        run_commit(processed, engine)
    return processed


class Lines:
    fields = FIELDS

    def empty_chunk(self):
        return GivenRecords(())


def in_chunks(bolt, rows, engine=None):
    """One chunk of an at-least-once topology: what completed, and the reasons."""
    builder = TopologyBuilder("t")
    builder.set_spout("spout", Lines())
    builder.set_bolt("out", bolt).shuffle_grouping("spout")
    records = {"spout": GivenRecords(tuple([row] for row in rows))}
    attempt = TransactionAttempt(1, 1)
    chunk = run_chunk(builder.build().plan, attempt, records, engine or LocalEngine())
    reasons = {root: f.reason for f in chunk.failed for root in f.roots.tolist()}
    return chunk.settle(0, len(rows)).completed.tolist(), reasons


ROWS = [("k1", "v1", "a"), (None, "v2", "b"), ("k3", None, None)]
WRITTEN = [(b"k1", b"v1"), (None, b"v2"), (b"k3", None)]


@ENGINES
@DELIVERIES
def test_a_batch_is_written_when_it_is_processed(
    options, topic, read, delivery, engine
):
    bolt = KafkaBolt(options, delivery=delivery)

    assert in_batches(bolt, ROWS, engine=engine).failure is None

    assert read(topic) == WRITTEN


@ENGINES
@DELIVERIES
def test_records_are_acked_when_they_are_delivered(
    options, topic, read, delivery, engine
):
    completed, reasons = in_chunks(KafkaBolt(options, delivery=delivery), ROWS, engine)

    assert (completed, reasons) == ([0, 1, 2], {})
    assert read(topic) == WRITTEN


def test_what_is_forgotten_is_acked_at_once_and_written_later(options, topic, read):
    completed, reasons = in_chunks(KafkaBolt(options, delivery="forget"), ROWS)

    assert (completed, reasons) == ([0, 1, 2], {})
    deadline = time.monotonic() + 60
    while len(read(topic)) < 3:
        assert time.monotonic() < deadline
    assert read(topic) == WRITTEN


def test_a_forgotten_failure_disturbs_nobody(options, topic, read):
    rows = [("k", "x" * 3_000_000, ""), ("k", "small", "")]

    completed, _ = in_chunks(KafkaBolt(options, delivery="sync"), rows)
    assert completed == [1]
    assert in_batches(KafkaBolt(options, delivery="forget"), rows[1:]).failure is None


class Parts:
    """Stands for the brokers' memory of txids, which the mock has none of."""

    def __init__(self):
        self.written = {}

    def __call__(self, config, index):
        self.name = (config.id, config.attempt.txid, index, config.parts, config.topic)
        return self

    def write(self, records):
        self.written.setdefault(self.name, list(records))
        return Written(True, Digest())


@pytest.mark.parametrize("tasks", [1, 3])
def test_with_an_id_each_task_writes_its_part_of_the_txid(
    options, topic, monkeypatch, tasks
):
    parts = Parts()
    monkeypatch.setattr(sink_assembly, "part_transaction", parts)
    bolt = KafkaBolt(options | {"tx.id": "once"})
    rows = [(f"k{n}", f"v{n}", "") for n in range(20)]

    for txid in (1, 2, 2):
        processed = in_batches(bolt, rows, tasks=tasks, txid=txid)
        assert processed.failure is None

    names = [("once", txid, n, tasks, topic) for txid in (1, 2) for n in range(tasks)]
    assert sorted(parts.written) == names
    batches = chain.from_iterable(parts.written.values())
    values = [record.value.decode() for some in batches for record in some.records()]
    assert sorted(values) == sorted(f"v{n}" for n in range(20) for _ in "12")


def test_tasks_are_told_what_the_driver_knew_of_the_markers(
    options, topic, monkeypatch
):
    bolt = KafkaBolt(options | {"tx.id": topic})
    assert KafkaBolt(options).remembered() == {}
    assert in_batches(bolt, ROWS).failure is None
    known = bolt.remembered()
    markers = []
    real = sink_assembly.part_transaction

    def spied(config, index):
        markers.append(Memory.of_text(config.memory).own("", index))
        return real(config, index)

    monkeypatch.setattr(sink_assembly, "part_transaction", spied)
    processed = in_batches(bolt, ROWS, txid=2, attempt_id=2, settings=known)

    assert processed.failure is None
    assert [marker and marker.txid for marker in markers] == [1]


def test_nothing_is_written_before_the_commit_phase(options, topic, read):
    spout = MemoryTransactionalSpout({0: []}, FIELDS, 10)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    bolt = KafkaBolt(options | {"tx.id": topic})
    builder.set_bolt("out", bolt).global_grouping("spout")

    processed = run_processing(builder.build(), TransactionAttempt(1, 1), [ROWS])

    assert read(topic) == []
    run_commit(processed)
    assert read(topic) == WRITTEN


def test_a_committer_without_an_id_travels_between_the_phases(options, topic, read):
    spout = MemoryTransactionalSpout({0: []}, FIELDS, 10)
    builder = TransactionalTopologyBuilder("t", "spout", spout, 2)
    declared = builder.set_committer_bolt("out", KafkaBolt(options), 2)
    declared.fields_grouping("spout", ["key"])
    engine = LocalEngine(travels=True)

    attempt = TransactionAttempt(1, 1)
    processed = run_processing(builder.build(), attempt, [ROWS], engine)
    run_commit(processed, engine)

    assert processed.failure is None
    assert sorted(read(topic), key=str) == sorted(WRITTEN, key=str)


def to_field(row):
    return row.to


def doubled(row):
    return KafkaMessage(value=row.value * 2, key=row.to, partition=0)


SELECTORS: dict[str, Any] = {"field": FieldTopic("to"), "function": to_field}


@pytest.mark.parametrize("kind", ["field", "index", "function"])
@pytest.mark.parametrize("door", ["batches", "chunks"])
def test_a_row_may_name_its_topic_and_one_without_is_not_written(
    cluster, options, topic, read, kind, door, caplog
):
    other = f"{topic}-other"
    cluster.create_topic(other, 1)
    rows = [("k", "v1", topic), ("k", "v2", other), ("k", "v3", None)]
    by_index = FieldTopic(3 if door == "batches" else 2)  # tx is a field too
    bolt = KafkaBolt(options, topic=SELECTORS.get(kind, by_index))

    with caplog.at_level(logging.WARNING):
        if door == "batches":
            assert in_batches(bolt, rows).failure is None
        else:
            assert in_chunks(bolt, rows) == ([0, 1, 2], {})

    assert (read(topic), read(other)) == ([(b"k", b"v1")], [(b"k", b"v2")])
    assert "their topic is None" in caplog.text


@pytest.fixture(params=["native", "python"])
def kind(request, monkeypatch):
    """Producers and check sums of one kind."""
    if request.param == "python":
        monkeypatch.setattr(transaction, "new_client", ProducerClient)
        monkeypatch.setattr(writer, "check_sums", lambda columns, topics: None)


@pytest.mark.usefixtures("kind")
def test_a_block_of_which_no_row_has_a_topic_is_a_part_without_records(
    options, topic, read
):
    bolt = KafkaBolt(options | {"tx.id": topic}, topic=FieldTopic("to"))

    for txid, to in (1, None), (2, topic):
        rows = [("k", f"v{txid}", to)]
        assert in_batches(bolt, rows, txid=txid, attempt_id=txid).failure is None

    assert read(topic) == [(b"k", b"v2")]


def test_a_missing_topic_field_means_the_default(options, topic, read):
    del options["topic"]
    bolt = KafkaBolt(options, topic=FieldTopic("nowhere", default=topic))

    assert in_batches(bolt, ROWS[:1]).failure is None

    assert read(topic) == WRITTEN[:1]


def test_a_function_makes_whole_messages(options, topic, read):
    assert in_batches(KafkaBolt(options, mapper=doubled), ROWS[:2]).failure is None

    assert read(topic) == [(b"a", b"v1v1"), (b"b", b"v2v2")]


def test_rows_are_arrow_where_no_function_looks_at_them(options):
    assert KafkaBolt(options).is_vectorised
    assert KafkaBolt(options, topic=FieldTopic("to")).is_vectorised
    assert not KafkaBolt(options, topic=to_field).is_vectorised
    assert not KafkaBolt(options, mapper=doubled).is_vectorised


def test_fields_have_the_names_that_the_mapper_says(options, topic, read):
    bolt = KafkaBolt(options, mapper=FieldMapper(key="to", value="key"))

    assert in_batches(bolt, ROWS[:1]).failure is None
    assert in_chunks(bolt, ROWS[:1]) == ([0], {})

    assert read(topic) == [(b"a", b"k1")] * 2


def test_one_record_that_is_too_large_fails_alone_and_is_named(options, topic, read):
    rows = [("k", "small", ""), ("big", "x" * 3_000_000, ""), ("k", "after", "")]

    completed, reasons = in_chunks(KafkaBolt(options), rows)

    assert completed == [0, 2]
    assert list(reasons) == [1]
    for word in (topic, "b'big'", "3000003 bytes", "kafka.max.request.size"):
        assert word in reasons[1]
    assert read(topic) == [(b"k", b"small"), (b"k", b"after")]


@pytest.mark.parametrize("more", [{}, {"tx.id": "large"}], ids=["plain", "once"])
def test_a_record_that_is_too_large_stops_a_transactional_topology(
    options, topic, more
):
    # The mock cluster shows aborted records to readers of committed ones, so what is
    # visible of the part is looked at on a real broker: integration/sinks/test_sink.py.
    rows = [("k", "small", ""), ("big", "x" * 3_000_000, "")]
    bolt = KafkaBolt(options | ({"tx.id": f"{topic}-large"} if more else {}))

    failure = in_batches(bolt, rows).failure

    assert isinstance(failure, BatchStopped)
    assert isinstance(failure.error, ComponentError)
    cause = failure.error.cause
    assert isinstance(cause, DeliveryError)
    assert (cause.topic, cause.key, cause.size) == (topic, b"big", 3_000_003)


def test_a_lost_broker_asks_for_a_replay(options, cluster):
    quick = options | {"kafka.delivery.timeout.ms": "300"}
    try:
        cluster.stop_broker()
        processed = in_batches(KafkaBolt(quick), ROWS)
        _, reasons = in_chunks(KafkaBolt(quick), ROWS)
    finally:
        cluster.start_broker()

    assert isinstance(processed.failure, BatchFailed)
    assert "timed out" in processed.failure.reason.lower()
    assert sorted(reasons) == [0, 1, 2]
    assert "b'k1'" in reasons[0]


def test_values_that_are_no_text_stop_the_topology(options):
    failure = in_batches(KafkaBolt(options), [("k", 7, "")]).failure

    assert isinstance(failure, BatchStopped)
    assert "the value of a message is 7; legal: text, bytes or None" in str(
        failure.error
    )


@pytest.mark.parametrize(
    ("change", "given", "text"),
    [
        ({"topic": ""}, {}, "needs a topic"),
        ({}, {"delivery": "maybe"}, "option 'delivery' is 'maybe'"),
        ({"tx.id": "once"}, {"delivery": "sync"}, "async, with 'tx.id'"),
        ({"tx.id": "once", "topic": ""}, {"topic": FieldTopic("to")}, "exactly once"),
        ({"kafka.bootstrap.servers": ""}, {}, "kafka.bootstrap.servers"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(options, change, given, text):
    with pytest.raises(ConfigError, match=text):
        KafkaBolt(options | change, **given)


def test_exactly_once_is_refused_where_there_are_no_transactions(options):
    builder = TopologyBuilder("t")
    builder.set_spout("spout", Lines())
    bolt = KafkaBolt(options | {"tx.id": "once"})
    builder.set_bolt("out", bolt).shuffle_grouping("spout")

    with pytest.raises(ConfigError, match="committer cannot be used in this topology"):
        builder.build()


def test_a_missing_value_field_is_told_with_what_there_is(options):
    bolt = KafkaBolt(options, mapper=FieldMapper(value="message"))

    failure = in_batches(bolt, ROWS).failure

    assert isinstance(failure, BatchStopped)
    assert "'message'; legal: a field of the rows" in str(failure.error)


def test_an_unfinished_bolt_pickles_without_its_producer(options):
    bolt = KafkaBolt(options)
    bolt.prepare(TaskContext("out", 0, 1, TransactionAttempt(1, 1), {}), object())
    batch = pa.RecordBatch.from_pydict({"key": ["k"], "value": ["v"]})
    bolt.execute_arrow(batch)

    copied = pickle.loads(pickle.dumps(bolt))

    copied.execute_arrow(batch)
    copied.finish_batch()
    assert copied.__dict__["_sender"] is None


def test_an_unfinished_bolt_that_cannot_write_asks_for_a_replay(options, cluster):
    bolt = KafkaBolt(options | {"kafka.delivery.timeout.ms": "300"})
    bolt.prepare(TaskContext("out", 0, 1, TransactionAttempt(1, 1), {}), object())
    try:
        cluster.stop_broker()
        batch = pa.RecordBatch.from_pydict({"key": ["k"], "value": ["v"]})
        bolt.execute_arrow(batch)
        with pytest.raises(FailedException, match="(?i)timed out"):
            pickle.dumps(bolt)
    finally:
        cluster.start_broker()
        bolt.cleanup()


def test_an_exactly_once_sink_refuses_an_opaque_attempt_before_its_first_row():
    options = {"kafka.bootstrap.servers": "b:9092", "topic": "out", "tx.id": "sink"}
    opaque = TransactionAttempt(1, 1, mode="opaque")
    context = TaskContext("out", 0, 1, opaque, {})

    with pytest.raises(ConfigError, match="the sink 'sink' counts a txid once"):
        KafkaBolt(options).prepare(context, object())
    del options["tx.id"]
    KafkaBolt(options).prepare(context, object())


def at_the_epoch(row):
    return KafkaMessage(value=row.value, timestamp_ms=0)


def test_a_time_that_would_become_the_present_one_is_refused(options, topic, read):
    bolt = KafkaBolt(options, mapper=at_the_epoch)

    assert "takes this one for none" in str(in_batches(bolt, ROWS[:1]).failure)
    completed, reasons = in_chunks(bolt, ROWS[:1])

    assert not completed
    assert "takes this one for none" in reasons[0]
    assert read(topic) == []


def half_a_pair_in_a_header(row):
    return KafkaMessage(row.value, headers=[("a\ud83d", b"x")] if row.key else None)


def test_a_header_name_that_would_end_the_process_fails_its_row_alone(
    options, topic, read
):
    bolt = KafkaBolt(options, mapper=half_a_pair_in_a_header)

    assert "written as UTF-8" in str(in_batches(bolt, ROWS[:1]).failure)
    completed, reasons = in_chunks(bolt, ROWS[:2])

    assert completed == [1]
    assert "option 'headers' is 'a\\ud83d'" in reasons[0]
    assert read(topic) == [(None, b"v2")]


def cut_by_clients(row):
    return f"{row.to}\0x" if row.key else row.to


def test_a_topic_whose_name_clients_would_cut_fails_its_row_alone(options, topic, read):
    bolt = KafkaBolt(options, topic=cut_by_clients)
    rows = [("k", "v1", topic), (None, "v2", topic)]

    assert "legal: names of topics" in str(in_batches(bolt, rows[:1]).failure)
    completed, reasons = in_chunks(bolt, rows)

    assert completed == [1]
    assert "legal: names of topics" in reasons[0]
    assert read(topic) == [(None, b"v2")]
