"""Dead letters of spouts whose records go, and of topologies that are stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kafka_tx
from integration.cluster.waiting import wait_until
from integration.killed.spout import committed
from integration.log_ends import log_ends
from integration.topologies.test_spout import dead_letters
from kafka_tx.errors import DataLossError

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


def test_retention_takes_no_more_from_dead_letters_than_what_is_gone(
    kafka, topic, produce, start, stored
):
    name, dead = topic(1), topic(1)
    produce(name, [f"v{n}" for n in range(10)])
    ON_FIRST_ROW.append(lambda: kafka.delete_records(name, {0: 4}))

    handle = start(name, dead)
    assert handle.process_all_available(60)

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
        start(name, dead, out_of_range="fail").awaitTermination(60)

    assert stored(name) in ({}, {0: 0})


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
    assert start(name, dead).process_all_available(60)

    assert offsets(kafka, dead) == [0, 1, 2, 3, 4, 5]
