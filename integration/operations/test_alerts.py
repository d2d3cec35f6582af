"""Real jobs bring alerts about, and end them; the rules count seconds here."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

import kafka_tx
from integration.cluster.records import Record
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.operations.observing import PrometheusApi, alert_rules
from integration.operations.watching import watching
from integration.reading import reader
from integration.topologies.tally import ending
from kafka_tx.errors import FencedError

RECORDS = 20


class Gate(kafka_tx.BasicBolt):
    """Lets rows through once a file is there; without ``waits`` it fails them."""

    def __init__(self, opened: Path, *, waits: bool = True) -> None:
        self.opened, self.waits = opened, waits

    def execute(self, row: Any, collector: Any) -> None:
        while self.waits and not self.opened.exists():
            time.sleep(0.1)
        if not self.opened.exists():
            raise kafka_tx.FailedException("the gate is shut")


class Poison(kafka_tx.BasicBolt):
    """Fails every row."""

    def execute(self, row: Any, collector: Any) -> None:
        raise kafka_tx.FailedException("poison")


@pytest.fixture(scope="module")
def attached(spark: Any) -> Iterator[Any]:
    found = kafka_tx.attach(spark, metrics_port=0)
    yield found
    found.close()


@pytest.fixture(scope="module")
def prometheus(attached: Any) -> Iterator[PrometheusApi]:
    with watching(f"127.0.0.1:{attached.port}", quick=True) as api:
        yield api


@pytest.fixture
def name() -> str:
    return f"alert-{uuid.uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
def recorded(request, prometheus, name):
    """Write the series of the test's ids into a folder, if ``RECORD_SERIES`` names one.

    ``python -m integration.tools.alert_series`` makes tests of promtool of them.
    """
    began = time.time()
    yield
    place = os.environ.get("RECORD_SERIES", "")
    if place:
        wanted = f'{{__name__=~"kafka_tx_.*", __name__!~".*_bucket", id=~"{name}.*"}}'
        found = [
            ({**labels, "id": labels["id"].replace(name, "job")}, values)
            for labels, values in prometheus.range(wanted, began, time.time())
        ]
        Path(place).mkdir(exist_ok=True)
        (Path(place) / f"{request.node.name}.json").write_text(json.dumps(found))


def source(spark, kafka, topic, name, place, function, **options):
    made = reader(
        spark,
        kafka.bootstrap_servers,
        subscribe=topic,
        tx__id=name,
        tx__store=f"sqlite:///{place}/source.db",
        **options,
    )
    writer = made.load().writeStream.foreachBatch(function)
    return writer.option("checkpointLocation", f"{place}/checkpoint").start()


def numbered(spark, kafka, topic, name, place, bolt):
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}
    spout = kafka_tx.TransactionalKafkaSpout(options, scheme=kafka_tx.MetadataScheme())
    builder = kafka_tx.TransactionalTopologyBuilder(name, "spout", spout)
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout")
    settings = {"tx.store": f"sqlite:///{place}/numbered.db", "tx.retryMs": 50}
    return builder.build().start(spark, settings)


def at_least_once(spark, kafka, topic, name, place, bolt, **spout):
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=topic,
        id=name,
        scheme=kafka_tx.MetadataScheme(),
        store=f"sqlite:///{place}/offsets.db",
        **spout,
    )
    builder = kafka_tx.TopologyBuilder(name)
    builder.set_spout("spout", kafka_tx.KafkaSpout(config))
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout")
    return builder.build().start(spark)


@contextmanager
def live_member(kafka, group, topic):
    """A consumer that holds the group: nobody else may commit its offsets."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    with closing(consumer):
        wait_until(
            "it is a member", lambda: consumer.poll(0.1) or consumer.assignment()
        )
        yield consumer


def fires_and_ends(prometheus, alert, ids, end):
    fires(prometheus, alert, ids)
    end()
    ends(prometheus, alert, ids)


def fires(prometheus, alert, ids, meanwhile=lambda: None):
    def firing():
        meanwhile()
        return ids <= prometheus.alerting(alert)

    wait_until(f"{alert} fires for {ids}", firing)


def ends(prometheus, alert, ids, label="id"):
    wait_until(
        f"{alert} has ended for {ids}",
        lambda: not ids & prometheus.alerting(alert, label),
    )


@pytest.mark.all
def test_a_job_that_hangs_in_its_very_first_batch_raises_an_alert_behind_each_door(
    spark, kafka, topic, produce, tmp_path, prometheus, name
):
    read = topic(1)
    produce(read, ["v"] * RECORDS)
    opened, gate = tmp_path / "opened", threading.Event()

    def hang(batch, _):
        batch.collect()
        gate.wait(120)

    def end():
        gate.set()
        opened.touch()

    ids = {f"{name}-{door}" for door in ("source", "numbered", "records")}
    with ExitStack() as running:
        running.callback(end)
        query = source(spark, kafka, read, f"{name}-source", tmp_path, hang)
        running.callback(query.stop)
        for start, door in ((numbered, "numbered"), (at_least_once, "records")):
            handle = start(spark, kafka, read, f"{name}-{door}", tmp_path, Gate(opened))
            running.enter_context(ending(handle))

        fires(prometheus, "KafkaTxPendingTooLong", {f"{name}-records"})
        fires_and_ends(prometheus, "KafkaTxCommitStalled", ids, end)
        ends(prometheus, "KafkaTxPendingTooLong", ids)


@pytest.mark.all
def test_a_job_whose_group_is_taken_waits_hangs_and_falls_behind(
    spark, kafka, topic, produce, tmp_path, attached, prometheus, name
):
    read, gate = topic(1), threading.Event()
    gate.set()

    def more():
        produce(read, ["v"])

    def function(_, number):
        if number == 0:
            attached.registry.add("kafka_tx_no_such_metric_total")
        gate.wait(120)

    with ExitStack() as running:
        running.callback(gate.set)
        member = running.enter_context(live_member(kafka, name, topic(1)))
        group = {"tx__commitGroupId": name}
        query = source(spark, kafka, read, name, tmp_path, function, **group)
        running.callback(query.stop)

        fires(prometheus, "KafkaTxMirrorFailing", {name}, more)
        endpoint = {f"127.0.0.1:{attached.port}"}
        assert prometheus.alerted("KafkaTxNotMeasured", "instance") == endpoint
        member.close()

        gate.clear()
        fires(prometheus, "KafkaTxLagGrowing", {name}, more)
        gate.set()
        for alert in ("LagGrowing", "MirrorFailing"):
            ends(prometheus, f"KafkaTx{alert}", {name})
        ends(prometheus, "KafkaTxNotMeasured", endpoint, "instance")


def aged(age_ms, number=RECORDS):
    """Records that were written so long ago."""
    return [Record("v", timestamp_ms=time.time_ns() // 1_000_000 - age_ms)] * number


@pytest.mark.all
def test_old_records_raise_an_alert_only_if_the_job_does_not_get_away_from_retention(
    spark, kafka, topic, produce, tmp_path, prometheus, name
):
    """They live for an hour, and are 50 minutes old.

    On a machine that holds up the backfill, the alert may fire for it, too.
    """
    config = {"retention.ms": "3600000"}
    stands, backfill = topic(1, config=config), topic(1, config=config)
    gate = threading.Event()
    produce(stands, aged(50 * 60_000))
    produce(backfill, aged(50 * 60_000, 3_000))

    began_s = time.time()

    def slowly(batch, number):
        time.sleep(0.5)

    with ExitStack() as running:
        running.callback(gate.set)
        for id_, read, function in (
            (f"{name}-stands", stands, lambda *_: gate.wait(120)),
            (f"{name}-backfill", backfill, slowly),
        ):
            (tmp_path / id_).mkdir()
            at = {"maxOffsetsPerTrigger": "10"}
            query = source(spark, kafka, read, id_, tmp_path / id_, function, **at)
            running.callback(query.stop)

        fires(prometheus, "KafkaTxHeadroomSmall", {f"{name}-stands"})
        near = f'kafka_tx_retention_edge_offset{{id="{name}-backfill"}} > 0'
        wait_until("the backfill is watched", lambda: prometheus.query(near))
        wait_until(
            "it gets away, and raises no alert",
            lambda: prometheus.query(
                f'kafka_tx_committed_offset{{id="{name}-backfill"}} > 20'
                " and on (topic) (kafka_tx_retention_edge_offset > 0)"
                ' unless on (id) ALERTS{alertname="KafkaTxHeadroomSmall"}'
            ),
        )
        gate.set()
        ends(prometheus, "KafkaTxHeadroomSmall", {f"{name}-stands"})
        fired = prometheus.alerted("KafkaTxHeadroomSmall", "id")
    was_held_up = longest_stand_s(prometheus, f"{name}-backfill", began_s) > 5
    assert f"{name}-backfill" not in fired or was_held_up


def longest_stand_s(prometheus, id_, began_s):
    """How long a job of one partition committed nothing, as Prometheus saw it."""
    shown = f'kafka_tx_committed_offset{{id="{id_}"}}'
    ((_, values),) = prometheus.range(shown, began_s, time.time())
    moves = [at for (_, last), (at, offset) in pairwise(values) if offset != last]
    steps = [values[0][0], *moves, values[-1][0]]
    stand_s = max(after - before for before, after in pairwise(steps))
    print(f"{id_} stood for {stand_s} s at most")
    return stand_s


@pytest.mark.all
def test_an_error_that_stops_a_query_raises_alerts_until_it_runs_again(
    spark, kafka, topic, produce, tmp_path, prometheus, name
):
    """Stopped for a while, and Down as long as nobody starts it."""
    read, fails = topic(1), threading.Event()
    fails.set()
    produce(read, ["v"])

    run = f'kafka_tx_run_since_timestamp_seconds{{id="{name}", kind="unbounded"}}'

    def fail(batch, _):
        if fails.is_set():  # a run that ends between two scrapes was never seen
            wait_until("it is scraped", lambda: prometheus.query(run))
            raise ValueError("the user's own")

    source(spark, kafka, read, name, tmp_path, fail)

    fires(prometheus, "KafkaTxStopped", {name})
    fires(prometheus, "KafkaTxDown", {name})
    ends(prometheus, "KafkaTxStopped", {name})
    assert name in prometheus.alerting("KafkaTxDown")
    fails.clear()
    query = source(spark, kafka, read, name, tmp_path, fail)
    try:
        ends(prometheus, "KafkaTxDown", {name})
    finally:
        query.stop()


@pytest.mark.all
def test_a_bounded_run_that_ended_is_not_missed(
    spark, kafka, topic, produce, tmp_path, attached, prometheus, name
):
    read, gate = topic(1), threading.Event()
    produce(read, ["v"])
    made = reader(
        spark,
        kafka.bootstrap_servers,
        subscribe=read,
        tx__id=name,
        tx__store=f"sqlite:///{tmp_path}/source.db",
    )
    writer = made.load().writeStream.foreachBatch(lambda *_: gate.wait(120))
    writer = writer.option("checkpointLocation", f"{tmp_path}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    bounded = f'kafka_tx_run_since_timestamp_seconds{{id="{name}", kind="bounded"}}'
    try:
        wait_until("it is scraped", lambda: prometheus.query(bounded))
    finally:
        gate.set()
    query.awaitTermination(PATIENT_S)
    attached.registry.forget(name)
    wait_until("nobody exports it", lambda: not prometheus.query(bounded))

    assert not prometheus.alerted("KafkaTxDown", "id") & {name}


@pytest.mark.all
def test_offsets_that_are_skipped_raise_an_alert(
    spark, kafka, topic, produce, tmp_path, prometheus, name
):
    read = topic(1)
    produce(read, ["v"] * RECORDS)

    def start():
        given = {"failOnDataLoss": "false"}
        return source(
            spark, kafka, read, name, tmp_path, lambda df, _: df.collect(), **given
        )

    query = start()
    query.processAllAvailable()
    query.stop()
    produce(read, ["v"] * RECORDS)
    kafka.delete_records(read, {0: RECORDS + 5})
    query = start()
    try:
        fires(prometheus, "KafkaTxDataLoss", {name})
        ends(prometheus, "KafkaTxDataLoss", {name})
    finally:
        query.stop()


@pytest.mark.all
def test_batches_that_fail_again_and_again_raise_an_alert(
    spark, kafka, topic, produce, tmp_path, prometheus, name
):
    read, opened = topic(1), tmp_path / "opened"
    produce(read, ["v"] * RECORDS)
    bolt = Gate(opened, waits=False)
    with ending(numbered(spark, kafka, read, name, tmp_path, bolt)):
        fires_and_ends(prometheus, "KafkaTxReplayStorm", {name}, opened.touch)


@pytest.mark.all
def test_records_out_of_tries_raise_an_alert(
    spark, kafka, topic, produce, tmp_path, prometheus, name
):
    read, dead_letters = topic(1), topic(1)

    def more():
        produce(read, ["v"])

    more()
    once = {"retry_limit": 0}
    lost = at_least_once(spark, kafka, read, f"{name}-lost", tmp_path, Poison(), **once)
    kept = at_least_once(
        *(spark, kafka, read, f"{name}-kept", tmp_path, Poison()),
        **once,
        dead_letter_topic=dead_letters,
    )
    with ending(lost), ending(kept):
        fires(prometheus, "KafkaTxRecordsLost", {f"{name}-lost"}, more)
        fires(prometheus, "KafkaTxDeadLetters", {f"{name}-kept"}, more)
        ends(prometheus, "KafkaTxRecordsLost", {f"{name}-lost"})
        ends(prometheus, "KafkaTxDeadLetters", {f"{name}-kept"})


@pytest.mark.all
def test_after_a_backfill_an_idle_time_a_burst_and_a_deployment_no_alert_is_left(
    spark, kafka, topic, produce, tmp_path, prometheus, name
):
    """As in a normal week; at the true thresholds none of it fires at all."""
    read = topic(1, config={"retention.ms": "3600000"})
    produce(read, aged(50 * 60_000, 600))

    def start():
        at = {"maxOffsetsPerTrigger": "20"}
        return source(spark, kafka, read, name, tmp_path, lambda *_: None, **at)

    def is_read(end):
        asked = f'kafka_tx_committed_offset{{id="{name}"}} == {end}'
        wait_until(f"{end} records are read", lambda: prometheus.query(asked))

    query = start()
    try:
        is_read(600)
        time.sleep(15)
        produce(read, ["v"] * 100)
        is_read(700)
        query.stop()
        query = start()
        produce(read, ["v"] * 20)
        is_read(720)
        for rule in alert_rules():
            if rule["alert"] != "KafkaTxNotMeasured":  # that has no id
                ends(prometheus, rule["alert"], {name})
    finally:
        query.stop()


@pytest.mark.all
def test_owners_that_take_turns_raise_an_alert_and_one_takeover_does_not(
    spark, kafka, topic, produce, tmp_path, prometheus, name
):
    read, opened = topic(1), tmp_path / "opened"
    opened.touch()

    def start():
        produce(read, ["v"])
        return numbered(spark, kafka, read, name, tmp_path, Gate(opened))

    def take_over(older):
        newer = running.enter_context(ending(start()))
        wait_until("the older one ends", lambda: not older.isActive)
        assert isinstance(older.exception(), FencedError)
        return newer

    def is_seen():
        return prometheus.query(runs) != seen

    runs = f'max(kafka_tx_run_since_timestamp_seconds{{id="{name}"}})'
    with ExitStack() as running:
        seen = []
        owner = running.enter_context(ending(start()))
        wait_until("it is scraped", is_seen)
        for turn in range(4):
            seen = prometheus.query(runs)
            owner = take_over(owner)
            wait_until("the new owner is scraped", is_seen)
            if turn == 0:
                assert not prometheus.alerted("KafkaTxTakeovers", "id") & {name}
        fires(prometheus, "KafkaTxTakeovers", {name})
        ends(prometheus, "KafkaTxTakeovers", {name})
    assert not prometheus.alerted("KafkaTxStopped", "id") & {name}
