"""At-least-once topologies whose bolts are slow, or hang, on real Spark and brokers."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kafka_tx
from integration.log_ends import log_ends

RECORDS = 960


class Slow(kafka_tx.BasicBolt):
    """Needs its time for each record, and never ends with the one named ``hang``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def execute(self, row: Any, collector: Any) -> None:
        time.sleep(120 if row.str == "hang" else self.seconds)


def started(
    spark, kafka, name, tmp_path, bolt, settings, then=None, *, on_driver=False
):
    spout = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=name,
        scheme=kafka_tx.StringScheme(),
        retry_limit=0,
    )
    builder = kafka_tx.TopologyBuilder("slow-job")
    builder.set_spout("spout", kafka_tx.KafkaSpout(spout), 2)
    work = builder.set_bolt("work", bolt, 2).shuffle_grouping("spout")
    if on_driver:
        work.on_driver()
    if then is not None:
        then(builder)
    store = f"sqlite:///{tmp_path}/offsets.db"
    return builder.build().start(spark, {"tx.store": store, **settings})


@pytest.mark.all
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


class Fans(kafka_tx.BasicBolt):
    """Makes sixty rows of each record."""

    fields = "n int"

    def execute(self, row: Any, collector: Any) -> None:
        for n in range(60):
            collector.emit((n,))


class Takes(kafka_tx.BasicBolt):
    def execute(self, row: Any, collector: Any) -> None:
        time.sleep(0.03)


@pytest.mark.all
def test_a_record_that_fans_out_to_more_than_a_tasks_share_is_completed(
    kafka, topic, produce, spark, tmp_path
):
    name = topic(1)
    produce(name, ["one", "two"])

    def then(builder):
        builder.set_bolt("takes", Takes).fields_grouping("work", ["n"])

    settings = {"tx.timeoutMs": 4_000}
    handle = started(spark, kafka, name, tmp_path, Fans, settings, then)
    try:
        assert handle.process_all_available(180)
        status = handle.status
    finally:
        handle.stop(finish=False)

    assert (status.completed, status.failed, status.skipped) == (2, 0, 0)


BEYOND_YEAR_9999 = 1_760_000_000_000_000_000


class Times(kafka_tx.BasicBolt):
    """Microseconds as Arrow timestamps; Python cannot hold all of them."""

    fields = "at timestamp"

    def execute_arrow(self, batch: pa.RecordBatch, collector: Any) -> None:
        numbers = pc.cast(batch.column("str"), pa.int64())
        at = pc.cast(numbers, pa.timestamp("us", tz="UTC"))
        collector.emit_arrow(pa.RecordBatch.from_arrays([at], names=["at"]))


class Years(kafka_tx.BasicBolt):
    """Untyped fields; what comes of year 1970 cannot be pickled, 1971 has no stream."""

    fields = ("year", "rest")

    def execute(self, row: Any, collector: Any) -> None:
        rest = memoryview(b"") if row.at.year == 1970 else b""
        stream = "nowhere" if row.at.year == 1971 else "default"
        collector.emit((row.at.year, rest), stream=stream)


class Ends(kafka_tx.BasicBolt):
    def execute(self, row: Any, collector: Any) -> None:
        assert row.year >= 2000


def test_records_that_break_outside_of_their_bolt_fail_alone(
    kafka, topic, produce, spark, tmp_path
):
    name = topic(1)
    year_us, good = 366 * 86_400 * 10**6, 1_760_000_000_000_000
    odd = {3: BEYOND_YEAR_9999, 17: 0, 23: year_us, 29: BEYOND_YEAR_9999}
    produce(name, [str(odd.get(n, good + n)) for n in range(40)])

    def then(builder):
        builder.set_bolt("years", Years).shuffle_grouping("work")
        builder.set_bolt("ends", Ends, 2).fields_grouping("years", ["year"])

    handle = started(spark, kafka, name, tmp_path, Times, {}, then)
    try:
        assert handle.process_all_available(180)
        status = handle.status
    finally:
        handle.stop(finish=False)

    assert (status.completed, status.failed, status.skipped) == (40, 4, 4)


@pytest.mark.all
def test_a_bolt_on_the_driver_that_hangs_gives_its_place_to_others(
    kafka, topic, produce, spark, tmp_path
):
    name = topic(1)
    produce(name, ["hang" if n in (3, 4, 9) else f"v{n}" for n in range(12)])

    settings = {"tx.timeoutMs": 1_000}
    handle = started(spark, kafka, name, tmp_path, Slow(0.0), settings, on_driver=True)
    try:
        assert handle.process_all_available(180)
        produce(name, ["later"])
        assert handle.process_all_available(180)
        status = handle.status
    finally:
        handle.stop(finish=False, timeout_s=5)

    assert (status.completed, status.failed, status.skipped) == (13, 3, 3)
