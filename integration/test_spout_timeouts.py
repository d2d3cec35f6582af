"""At-least-once topologies whose bolts are slow, or hang, on real Spark and brokers."""

from __future__ import annotations

import time
from typing import Any

import pytest

import kafka_tx
from integration.log_ends import log_ends

RECORDS = 960


class Slow(kafka_tx.BasicBolt):
    """Needs its time for each record, and never ends with the one named ``hang``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def execute(self, row: Any, collector: Any) -> None:
        time.sleep(600 if row.str == "hang" else self.seconds)


def started(spark, kafka, name, tmp_path, bolt, settings, **config):
    spout = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=name,
        scheme=kafka_tx.StringScheme(),
        retry_limit=0,
        **config,
    )
    builder = kafka_tx.TopologyBuilder("slow-job")
    builder.set_spout("spout", kafka_tx.KafkaSpout(spout), 2)
    builder.set_bolt("work", bolt, 2).shuffle_grouping("spout")
    store = f"sqlite:///{tmp_path}/offsets.db"
    return builder.build().start(spark, {"tx.store": store, **settings})


@pytest.mark.timeout(240)
def test_bolts_that_need_longer_than_the_time_out_for_a_chunk_do_their_work(
    kafka, topic, produce, spark, tmp_path
):
    name = topic(2)
    for partition in range(2):
        produce(name, [f"v{n}" for n in range(RECORDS)], partition=partition)

    settings = {"tx.timeoutMs": 2_000}
    handle = started(spark, kafka, name, tmp_path, Slow(0.005), settings)
    try:
        assert handle.process_all_available(180)
        status = handle.status
    finally:
        handle.stop()

    assert sum(log_ends(kafka.bootstrap_servers, name, 2).values()) == 2 * RECORDS
    assert (status.completed, status.failed, status.skipped) == (2 * RECORDS, 0, 0)


@pytest.mark.all
@pytest.mark.timeout(400)
def test_with_all_defaults_bolts_of_8_ms_a_record_complete_from_the_start(
    kafka, topic, produce, spark, tmp_path
):
    name = topic(2)
    for partition in range(2):
        produce(name, [f"v{n}" for n in range(6_000)], partition=partition)

    handle = started(spark, kafka, name, tmp_path, Slow(0.008), {})
    completed = []
    try:
        while not handle.process_all_available(10):
            completed.append(handle.status.completed)
            assert len(completed) < 30, completed
        status = handle.status
    finally:
        handle.stop(finish=False)

    assert (status.completed, status.failed, status.skipped) == (12_000, 0, 0)
    print(f"completed every 10 s: {completed}")
    assert completed[2] > 0, "nothing counts within the default time-out"


@pytest.mark.timeout(240)
def test_a_record_that_hangs_times_out_alone(kafka, topic, produce, spark, tmp_path):
    name = topic(1)
    produce(name, ["hang" if n == 11 else f"v{n}" for n in range(20)])

    settings = {"tx.timeoutMs": 1_500}
    handle = started(spark, kafka, name, tmp_path, Slow(0.0), settings)
    try:
        assert handle.process_all_available(180)
        status = handle.status
        timed_out = handle.metrics.samples()["kafka_tx_failed_records_total"]
    finally:
        handle.stop(finish=False)

    assert (status.completed, status.failed, status.skipped) == (20, 1, 1)
    assert sum(v[-1] for k, v in timed_out.items() if "timed_out" in k) == 1
