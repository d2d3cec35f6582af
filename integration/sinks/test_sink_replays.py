"""Batches that come again to the Kafka sink after its surroundings have changed."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.bounded import read_out
from integration.cluster.records import Produce, Record
from integration.cluster.running import running
from integration.cluster.topics import ask
from integration.cluster.waiting import wait_until
from integration.consuming import committed_records
from integration.reading import reader
from integration.sizes import in_all
from kafka_tx import sink_assembly
from kafka_tx.config import SinkConfig
from kafka_tx.errors import (
    AnotherNumberingError,
    ConfigError,
    FencedError,
    StateCorruptedError,
)
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.model import TransactionAttempt

TIMEOUT_S = 300


@pytest.fixture
def values(kafka):
    """Values of a topic as a reader of committed records sees them, sorted."""

    def read(topic):
        return values_of(kafka, topic)

    return read


def values_of(cluster, topic):
    found = committed_records(cluster.bootstrap_servers, topic)
    return sorted(record.text for record in found)


@pytest.fixture
def sink(kafka, topic):
    """Options of a sink of this test's own, with a marker topic of its own."""
    name = topic(1)
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": name,
        "tx.id": f"{name}-sink",
        "tx.markerTopic": f"{name}-markers",
    }


@pytest.fixture(autouse=True)
def fresh_driver(monkeypatch):
    """Let this program forget what it has settled, as a new one would."""
    from kafka_tx.spark.sinks import transaction

    def forget():
        monkeypatch.setattr(transaction, "_plans", {})

    forget()
    return forget


def config(sink, *, txid=0, epoch=0, **more):
    return SinkConfig(
        attempt=TransactionAttempt.of(txid, epoch=epoch, number=0),
        kafka={"bootstrap.servers": sink["kafka.bootstrap.servers"]},
        topic=sink["topic"],
        id=sink["tx.id"],
        marker_topic=sink["tx.markerTopic"],
        **more,
    )


def rows(spark, txid, count=12):
    return spark.range(count).selectExpr(
        "cast(id AS string) AS key", f"concat('t{txid}-', id) AS value"
    )


def expected(*txids):
    return sorted(f"t{txid}-{n}" for txid in txids for n in range(12))


def write(spark, sink, txid, *, epoch=1, number=0, **more):
    attempt = TransactionAttempt.of(txid, epoch=epoch, number=number)
    kafka_tx.write_transaction(rows(spark, txid), attempt, sink, **more)


def forget_offsets(sink):
    """What the brokers do after ``offsets.retention.minutes``."""
    admin = ask([sink["kafka.bootstrap.servers"]])
    listed = admin.list_consumer_groups().result(60).valid
    groups = [
        g.group_id for g in listed if g.group_id.startswith(f"kafka_tx.{sink['tx.id']}")
    ]
    assert groups
    for done in admin.delete_consumer_groups(groups).values():
        done.result(60)


@pytest.mark.all
def test_a_batch_is_not_repeated_where_brokers_really_forgot(
    spark, servers, fresh_driver
):
    soon = {
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "1000",
    }
    with running(servers.kafka(settings=soon)) as cluster:
        cluster.create_topic("out", 1)
        sink = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "topic": "out",
            "tx.id": "forgetful",
        }
        admin = ask([cluster.bootstrap_servers])

        def remembered():
            groups = admin.list_consumer_groups().result(60).valid
            return [g for g in groups if "forgetful" in g.group_id]

        write(spark, sink, 1, parts=2)
        assert remembered()
        wait_until("the brokers forgot", lambda: not remembered(), timeout_s=TIMEOUT_S)
        fresh_driver()
        write(spark, sink, 1, epoch=2, parts=2)
        write(spark, sink, 2, epoch=2, number=1, parts=2)

        found = values_of(cluster, "out")
    assert found == expected(1, 2)


@pytest.mark.all
@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (3, 1)])
def test_a_half_written_batch_is_finished_in_its_old_parts_and_the_next_in_new_ones(
    spark, sink, values, fresh_driver, before, after
):
    write(spark, sink, 1, parts=before)
    begun = config(sink, txid=2, parts=before, epoch=1)
    first_part = spread(spark, sink["topic"], 2, before)[0]
    assert sink_assembly.part_transaction(begun, 0).write(first_part).now
    fresh_driver()

    write(spark, sink, 2, epoch=2, parts=after)
    assert values(sink["topic"]) == expected(1, 2)

    write(spark, sink, 3, epoch=2, number=1, parts=after)
    assert values(sink["topic"]) == expected(1, 2, 3)
    memory = sink_assembly.marker_log(config(sink)).recall(sink["tx.id"])
    newest = {m.index: m.parts for m in memory.markers if m.txid == 3}
    assert newest == dict.fromkeys(range(after), after)


def spread(spark, topic, txid, parts):
    """The records of each part, as ``write_transaction`` spreads them."""
    frame = rows(spark, txid).repartition(parts, "key")
    found = frame.rdd.mapPartitions(lambda part: [[tuple(row) for row in part]])
    return [
        [OutRecord(topic, key.encode(), value.encode()) for key, value in part]
        for part in found.collect()
    ]


def test_a_batch_is_not_repeated_after_the_brokers_forgot_the_offsets(
    spark, sink, values, fresh_driver
):
    write(spark, sink, 1, parts=2)
    forget_offsets(sink)
    fresh_driver()

    write(spark, sink, 1, epoch=2, parts=2)
    write(spark, sink, 2, epoch=2, number=1, parts=2)

    assert values(sink["topic"]) == expected(1, 2)


@pytest.mark.parametrize("forgets_program", [True, False])
def test_a_marker_topic_that_lost_the_sink_is_refused(
    spark, sink, values, kafka, fresh_driver, forgets_program
):
    write(spark, sink, 1)
    kafka.delete_topic(sink["tx.markerTopic"])
    if forgets_program:
        fresh_driver()
        with pytest.raises(StateCorruptedError, match=r"Give the former 'tx\.marker"):
            write(spark, sink, 1, epoch=2)
        renamed = {**sink, "tx.id": f"{sink['tx.id']}-2"}  # nothing is unfinished
        write(spark, renamed, 2, epoch=2)
        assert values(sink["topic"]) == expected(1, 2)
    else:
        write(spark, sink, 1, number=1)  # the group still knows
        assert values(sink["topic"]) == expected(1)


STRANGERS = [
    ("heartbeat", "2026-11-27T08:00:00Z"),
    ("[" * 20_000, "[" * 20_000),
    ('["part","another","",0]', "no marker"),
    ('["plan"]', "[]"),
]


def test_records_of_others_in_the_marker_topic_stop_no_sink(
    spark, sink, values, kafka, fresh_driver
):
    write(spark, sink, 1)
    put = Produce(kafka.bootstrap_servers)
    put(sink["tx.markerTopic"], [Record(value, key=key) for key, value in STRANGERS])
    fresh_driver()

    write(spark, sink, 1, epoch=2)
    write(spark, sink, 2, epoch=2)

    assert values(sink["topic"]) == expected(1, 2)


@pytest.mark.all
@pytest.mark.parametrize(
    "value",
    [
        "[" * 20_000,
        *in_all('["x",""]', None),
    ],
)
def test_an_overwritten_marker_is_taken_from_the_group_or_named(
    spark, sink, values, kafka, fresh_driver, value
):
    own = json.dumps(["part", sink["tx.id"], "", 0], separators=(",", ":"))
    put = Produce(kafka.bootstrap_servers)
    write(spark, sink, 1)
    put(sink["tx.markerTopic"], [Record(value, key=own)])
    fresh_driver()
    write(spark, sink, 1, epoch=2)
    assert values(sink["topic"]) == expected(1)

    put(sink["tx.markerTopic"], [Record(value, key=own)])
    forget_offsets(sink)
    fresh_driver()
    with pytest.raises(StateCorruptedError, match="took the place of a marker"):
        write(spark, sink, 1, epoch=3)
    assert values(sink["topic"]) == expected(1)

    # the sink begins again on purpose, as the text says: all its keys are deleted
    keys = [
        ["plan", sink["tx.id"]],
        *(["part", sink["tx.id"], "", n] for n in range(9)),
    ]
    texts = [json.dumps(key, separators=(",", ":")) for key in keys]
    put(sink["tx.markerTopic"], [Record(None, key=text) for text in texts])
    fresh_driver()
    write(spark, sink, 1, epoch=3)
    assert values(sink["topic"]) == sorted(2 * expected(1))


@pytest.mark.parametrize("offset", [*in_all(0), 99])
def test_a_group_that_an_operator_reset_is_no_marker(
    spark, sink, values, kafka, fresh_driver, offset
):
    write(spark, sink, 1)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": ""}
    for which in (0, "plan"):
        settings["group.id"] = f"kafka_tx.{sink['tx.id']}.{which}"
        with closing(Consumer(settings)) as consumer:
            for topic in (sink["topic"], sink["tx.markerTopic"]):
                at = TopicPartition(topic, 0, offset)
                consumer.commit(offsets=[at], asynchronous=False)
    fresh_driver()

    write(spark, sink, 1, epoch=2)
    write(spark, sink, 2, epoch=2)

    assert values(sink["topic"]) == expected(1, 2)


@pytest.mark.all
def test_another_marker_topic_is_refused_until_the_former_one_is_given(
    spark, sink, values, fresh_driver
):
    write(spark, sink, 1, parts=2)
    fresh_driver()
    changed = {**sink, "tx.markerTopic": f"{sink['tx.markerTopic']}-other"}

    with pytest.raises(StateCorruptedError, match=r"Give the former 'tx\.marker"):
        write(spark, changed, 1, epoch=2, parts=2)
    write(spark, sink, 1, epoch=2, parts=2)
    write(spark, sink, 2, epoch=2, parts=2)

    assert values(sink["topic"]) == expected(1, 2)


def test_an_empty_batch_is_written_too(spark, sink, values):
    empty = rows(spark, 2).limit(0)
    write(spark, sink, 1, parts=2)
    attempt = TransactionAttempt.of(2, epoch=1, number=1)
    kafka_tx.write_transaction(empty, attempt, sink, parts=2)
    write(spark, sink, 3, number=2, parts=2)

    assert values(sink["topic"]) == expected(1, 3)
    kafka_tx.write_transaction(rows(spark, 4).where("false"), attempt_of(4), sink)
    memory = sink_assembly.marker_log(config(sink)).recall(sink["tx.id"])
    assert {m.txid for m in memory.markers} == {4}


def attempt_of(txid, epoch=1, number=9, **more):
    made = TransactionAttempt.of(txid, epoch=epoch, number=number)
    return replace(made, **more)


def test_two_writes_of_one_batch_are_refused_by_name(spark, sink, values):
    write(spark, sink, 1)

    with pytest.raises(ConfigError, match="takes one write of each"):
        write(spark, sink, 1)
    assert values(sink["topic"]) == expected(1)
    write(spark, {**sink, "tx.id": f"{sink['tx.id']}-second"}, 1)
    assert values(sink["topic"]) == sorted(2 * expected(1))


def test_a_sink_belongs_to_one_source(spark, sink, values, fresh_driver):
    kafka_tx.write_transaction(rows(spark, 1), attempt_of(1, source="orders"), sink)
    fresh_driver()

    payments = attempt_of(2, source="payments")
    with pytest.raises(AnotherNumberingError, match="'orders'.*'payments'"):
        kafka_tx.write_transaction(rows(spark, 2), payments, sink)
    assert values(sink["topic"]) == expected(1)
    its_own = {**sink, "tx.id": f"{sink['tx.id']}-payments"}
    kafka_tx.write_transaction(rows(spark, 2), payments, its_own)
    assert values(sink["topic"]) == expected(1, 2)


@pytest.mark.parametrize("parts", [1, pytest.param(2, marks=pytest.mark.all)])
def test_a_store_that_begins_anew_is_refused_before_anything_is_written(
    spark, sink, values, fresh_driver, parts
):
    """Its txids begin with 1 again, and come to those that the sink has not seen."""
    for txid in (1, 2):
        former = attempt_of(txid, numbering="former")
        kafka_tx.write_transaction(rows(spark, txid), former, sink, parts=parts)
    fresh_driver()

    for txid in (1, 2, 3):
        anew = attempt_of(txid, number=3, numbering="anew")
        with pytest.raises(AnotherNumberingError, match="former --attempt 2:"):
            kafka_tx.write_transaction(rows(spark, txid + 5), anew, sink, parts=parts)

    assert values(sink["topic"]) == expected(1, 2)


def test_an_opaque_batch_is_refused_where_it_is_not_said(spark, sink, values):
    opaque = attempt_of(1, mode="opaque")

    with pytest.raises(ConfigError, match=r"is opaque: .*opaque=True"):
        kafka_tx.write_transaction(rows(spark, 1), opaque, sink)
    kafka_tx.write_transaction(rows(spark, 2), opaque, sink, opaque=True)

    assert values(sink["topic"]) == expected(2)


def test_an_overtaken_owner_is_refused_with_any_txid(spark, sink, values, fresh_driver):
    write(spark, sink, 1, epoch=2)
    fresh_driver()

    with pytest.raises(FencedError, match="A newer owner"):
        write(spark, sink, 2, epoch=1)

    overtaken = config(sink, txid=2, epoch=1)
    with pytest.raises(FencedError, match="A newer owner"):
        sink_assembly.part_transaction(overtaken, 0).write([OutRecord("t", b"k", b"v")])
    assert values(sink["topic"]) == expected(1)


# --- writeStream -------------------------------------------------------------------


@pytest.fixture
def copy(spark, kafka, tmp_path):
    """Copy a topic into the sink's through ``writeStream``, to the end."""

    def run(source, sink, checkpoint="checkpoint", **options):
        read_out(
            reader(spark, kafka.bootstrap_servers, subscribe=source, **options)
            .load()
            .select("key", "value")
            .writeStream.format("kafka_tx")
            .options(**sink)
            .option("checkpointLocation", str(tmp_path / checkpoint))
        )

    return run


def life(path):
    """The id of the query that a checkpoint belongs to."""
    return json.loads((path / "metadata").read_text())["id"]


def numbers(first, end):
    return sorted(f"v{n}" for n in range(first, end))


@pytest.fixture
def half_written(topic, produce, sink, copy, tmp_path):
    """A source whose second batch was begun by a run that died: one part of two."""
    source = topic(2)
    produce(source, [Record(f"v{n}", partition=n % 2) for n in range(10)])
    copy(source, sink)
    produce(source, [Record(f"v{n}", partition=n % 2) for n in range(10, 30)])
    earlier = config(
        sink, txid=2, parts=0, life=life(tmp_path / "checkpoint"), run="earlier"
    )
    records = [
        OutRecord(sink["topic"], None, f"v{n}".encode()) for n in range(10, 30, 2)
    ]
    assert sink_assembly.part_transaction(earlier, 0).write(records).now
    return source


def test_a_half_written_batch_cut_in_another_way_is_refused_and_the_old_cut_finishes_it(
    sink, copy, values, half_written
):
    begun = sorted(numbers(0, 10) + [f"v{n}" for n in range(10, 30, 2)])

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="KAFKA_TX_REPLAY_DIFFERS"):
            copy(half_written, sink, minPartitions="5")
        assert values(sink["topic"]) == begun
    copy(half_written, sink)

    assert values(sink["topic"]) == numbers(0, 30)


@pytest.mark.all
def test_a_stream_is_not_repeated_after_the_brokers_forgot_the_offsets(
    sink, copy, values, half_written
):
    forget_offsets(sink)

    copy(half_written, sink)

    assert values(sink["topic"]) == numbers(0, 30)


@pytest.mark.parametrize("is_first", [*in_all(False), True])
def test_a_part_that_was_left_open_and_has_no_task_now_holds_no_reader_up(
    topic, produce, sink, copy, values, tmp_path, monkeypatch, is_first
):
    """It was killed before its marker: an earlier one tells of it, or what it began."""
    source = topic(2)
    if not is_first:
        produce(source, [Record(f"v{n}", partition=n % 2) for n in range(10)])
        copy(source, sink)
    counted_in = "of the killed" if is_first else life(tmp_path / "checkpoint")
    earlier = config(
        sink, txid=2, parts=0, life=counted_in, run="earlier", reads_all_markers=True
    )
    dead = sink_assembly.part_transaction(earlier, 1)
    open_ones: list[object] = []
    monkeypatch.setattr(dead, "_mark", lambda transaction, _: None)
    monkeypatch.setattr(dead, "_commit", lambda it, _: open_ones.append(it))
    dead.write([OutRecord(sink["topic"], None, b"never")])
    produce(source, [Record(f"v{n}", partition=0) for n in range(10, 20)])

    copy(source, sink)

    assert open_ones
    wait_until(  # it times out after 120 s
        "all can be read",
        lambda: values(sink["topic"]) == numbers(10 if is_first else 0, 20),
        timeout_s=60,
    )


@pytest.mark.all
def test_a_query_that_another_took_over_from_is_refused(
    topic, produce, sink, copy, values
):
    source = topic(1)
    produce(source, ["a"])
    copy(source, sink, "one")
    copy(source, sink, "two")
    produce(source, ["b"])

    with pytest.raises(StreamingQueryException, match="KAFKA_TX_FENCED.*taken over"):
        copy(source, sink, "one")
    copy(source, sink, "two")
    assert values(sink["topic"]) == ["a", "a", "b"]
    copy(source, {**sink, "tx.id": f"{sink['tx.id']}-one"}, "one")  # both are needed

    assert values(sink["topic"]) == ["a", "a", "b", "b"]


def test_what_a_dead_writer_left_open_is_ended_by_the_next_run(
    spark, sink, values, fresh_driver, monkeypatch
):
    write(spark, sink, 1, parts=2)
    begun = config(sink, txid=2, parts=2, epoch=1, run="1")
    dead = sink_assembly.part_transaction(begun, 1)
    open_ones: list[object] = []
    monkeypatch.setattr(dead, "_commit", lambda it, _: open_ones.append(it))
    dead.write(spread(spark, sink["topic"], 2, 2)[1])
    fresh_driver()
    began = time.monotonic()

    write(spark, sink, 2, epoch=2, parts=2)

    assert time.monotonic() - began < 60  # it times out after 120 s
    assert open_ones
    assert values(sink["topic"]) == expected(1, 2)
