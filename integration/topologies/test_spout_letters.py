"""Dead letters of spouts whose records go, and of topologies that are stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import kafka_tx
from integration.cluster.records import Record
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.consuming import committed_records
from integration.killed.spout import committed
from integration.log_ends import log_ends
from integration.topologies.test_spout import dead_letters
from kafka_tx.errors import ConfigError, DataLossError
from kafka_tx.running.redrive import Redrive

HOUR_MS = 3_600_000
WEEK_MS = str(7 * 24 * HOUR_MS)
SLOW = {"linger.ms": "300", "queue.buffering.max.messages": "1"}
"""One dead letter after the other."""

ON_FIRST_ROW: list[Callable[[], object]] = []
"""What happens while the first record is tried: bolts on the driver share it."""


class Poison(kafka_tx.BasicBolt):
    """Fails every record but those with the value ``good``."""

    def execute(self, row: Any, collector: Any) -> None:
        while ON_FIRST_ROW:
            ON_FIRST_ROW.pop()()
        if row.str != "good":
            raise kafka_tx.FailedException("poison")


@pytest.fixture
def start(kafka, spark, tmp_path):
    handles = []

    def start(topic, dead, **more):
        config = kafka_tx.SpoutConfig(
            hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers, refresh_freq_secs=1),
            topic=topic,
            scheme=kafka_tx.MetadataScheme(),
            dead_letter_topic=dead,
            retry_limit=0,
            **more,
        )
        builder = kafka_tx.TopologyBuilder("letters")
        builder.set_spout("spout", kafka_tx.KafkaSpout(config))
        builder.set_bolt("work", Poison()).shuffle_grouping("spout").on_driver()
        store = f"sqlite:///{tmp_path}/offsets.db"
        handles.append(builder.build().start(spark, {"tx.store": store}))
        return handles[-1]

    yield start
    ON_FIRST_ROW.clear()
    for handle in handles:
        handle.stop()


@pytest.fixture
def stored(kafka, tmp_path):
    store = f"sqlite:///{tmp_path}/offsets.db"
    return lambda name: committed(store, "letters", kafka.bootstrap_servers, name, 1)


def offsets(kafka, dead):
    found = dead_letters(kafka.bootstrap_servers, dead)
    return [int(about["offset"]) for _, about in found]


@pytest.mark.all
def test_retention_takes_no_more_from_dead_letters_than_what_is_gone(
    kafka, topic, produce, start, stored
):
    name, dead = topic(1), topic(1)
    produce(name, [f"v{n}" for n in range(10)])
    ON_FIRST_ROW.append(lambda: kafka.delete_records(name, {0: 4}))

    handle = start(name, dead)
    assert handle.process_all_available(180)

    assert offsets(kafka, dead) == [4, 5, 6, 7, 8, 9]
    assert (handle.status.lost, handle.status.dead_letters) == (4, 6)
    assert stored(name) == {0: 10}
    lost = handle.metrics.samples()["kafka_tx_lost_records_total"]
    assert {key[-1]: n for key, (n,) in lost.items()}["retention"] == 4


def test_records_that_are_gone_before_their_dead_letter_stop_a_strict_spout(
    kafka, topic, produce, start, stored
):
    name, dead = topic(1), topic(1)
    produce(name, [f"v{n}" for n in range(10)])
    ON_FIRST_ROW.append(lambda: kafka.delete_records(name, {0: 4}))

    with pytest.raises(DataLossError, match="START_OFFSET_RESET"):
        start(name, dead, out_of_range="fail").awaitTermination(PATIENT_S)

    assert stored(name) in ({}, {0: 0})


@pytest.mark.all
def test_a_topic_that_is_deleted_while_its_dead_letters_wait_stops_nothing(
    kafka, topic, produce, start
):
    dead, gone = topic(1), topic(1)
    kept = topic(1, gone + "-other")
    produce(gone, [f"v{n}" for n in range(5)])
    ON_FIRST_ROW.append(lambda: kafka.delete_topic(gone))

    handle = start(f"{gone}.*", dead, is_pattern=True)
    wait_until("the loss", lambda: handle.status.lost == 5)
    produce(kept, ["good"] * 3)
    wait_until("the others", lambda: handle.status.completed == 3)

    assert handle.exception() is None
    lost = handle.metrics.samples()["kafka_tx_lost_records_total"]
    assert {key[3]: n for key, (n,) in lost.items() if key[1] == gone and n} == {
        "topic_deleted": 5
    }


@pytest.mark.all
def test_the_dead_letters_that_a_stop_waited_for_are_not_written_again(
    kafka, topic, produce, start, stored
):
    name, dead = topic(1), topic(1)
    produce(name, [f"v{n}" for n in range(6)])
    handle = start(name, dead, kafka=SLOW)
    servers = kafka.bootstrap_servers
    wait_until("a letter", lambda: log_ends(servers, dead)[0] > 0)

    handle.stop()
    assert handle.status.dead_letters == 6
    assert stored(name) == {0: 6}
    assert start(name, dead).process_all_available(180)

    assert offsets(kafka, dead) == [0, 1, 2, 3, 4, 5]


@pytest.mark.all
def test_a_topic_that_is_smaller_than_the_reason_has_a_letter_with_less_of_it(
    kafka, topic, produce, start
):
    name, dead = topic(1), topic(1, config={"max.message.bytes": "1100"})
    produce(name, [Record("v0", "k" * 900), "v1"])
    ON_FIRST_ROW.append(long_reason)

    handle = start(name, dead)
    assert handle.process_all_available(180)

    first, second = committed_records(kafka.bootstrap_servers, dead)
    assert (first.key, first.value, second.value) == (None, None, b"v1")
    assert handle.status.dead_letters == 2


def long_reason():
    raise ValueError("because " * 500)


# --- the topic of the letters ---------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"cleanup.policy": "compact"}, "cleanup.policy=delete"),
        ({"max.message.bytes": "1000"}, "max.message.bytes=1048588"),
    ],
)
def test_a_topic_that_takes_no_dead_letters_is_refused_at_the_start(
    topic, start, config, says
):
    with pytest.raises(ConfigError, match=says):
        start(topic(1), topic(1, config=config))


def test_a_dead_letter_topic_that_the_topology_reads_is_refused(topic, start):
    name = topic(1)
    with pytest.raises(ConfigError, match="does not read"):
        start(name, name)


@pytest.mark.all
def test_a_pattern_leaves_the_dead_letters_of_its_own_topology_out(
    kafka, topic, produce, start
):
    name = topic(1)
    dead = f"{name}-dead"
    kafka.create_topic(dead, 1)
    produce(name, ["bad"])

    handle = start(f"{name}.*", dead, is_pattern=True)
    wait_until("the letter", lambda: handle.status.dead_letters == 1)
    assert handle.process_all_available(180)  # with a look for new partitions

    assert offsets(kafka, dead) == [0]
    assert handle.status.emitted == 1


@pytest.mark.all
def test_a_clock_that_is_wrong_stops_no_letter_and_send_restores_the_time(
    kafka, topic, produce, start
):
    """Brokers take no time that is more than an hour ahead; and week-old ones go."""
    any_time = {"message.timestamp.after.max.ms": str(2**62), "retention.ms": "-1"}
    name, dead = topic(1, config=any_time), topic(1, config={"retention.ms": WEEK_MS})
    now = now_ms()
    times = [now + 2 * HOUR_MS, now - 30 * 24 * HOUR_MS, now, now * 1_000]
    produce(name, [Record(f"v{t}", timestamp_ms=t) for t in times])

    assert start(name, dead).process_all_available(180)

    found = committed_records(kafka.bootstrap_servers, dead)
    assert [each.value for each in found] == [f"v{t}".encode() for t in times]
    told = [time_header(each) for each in found]
    assert told == [None if t == now else str(t).encode() for t in times]
    assert all(abs(stamp_ms(each) - now) < HOUR_MS for each in found)

    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    sent: list[Any] = []
    redrive = Redrive(settings, dead, 10_000)
    redrive.send(redrive.waiting(), {name}, sent.extend)
    assert [each.record.timestamp_ms for each in sent] == [*times[:3], None]


def now_ms() -> int:
    return int(time.time()) * 1_000


def time_header(message: Any) -> bytes | None:
    found: bytes | None = dict(message.headers or ()).get("kafka_tx.timestamp_ms")
    return found


def stamp_ms(message):
    return round(message.timestamp.timestamp() * 1_000)


@pytest.mark.all
def test_a_time_that_the_topic_begins_to_refuse_is_replaced(
    kafka, topic, produce, start
):
    """What was asked at the start is no longer true when the letter is written."""
    any_time = {"message.timestamp.after.max.ms": str(2**62)}
    name, dead = topic(1, config=any_time), topic(1, config=any_time)
    ahead = now_ms() + 2 * HOUR_MS
    produce(name, [Record("bad", timestamp_ms=ahead), "bad too"])
    soon = dict.fromkeys(any_time, "1000")
    ON_FIRST_ROW.append(lambda: kafka.alter_topic(dead, soon))

    handle = start(name, dead)
    assert handle.process_all_available(180)

    assert sorted(offsets(kafka, dead)) == [0, 1]
    found = committed_records(kafka.bootstrap_servers, dead)
    told = {time_header(each) for each in found}
    assert told == {None, str(ahead).encode()}
