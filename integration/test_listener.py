"""What ``attach`` shows of short, failing and many queries."""

from __future__ import annotations

import time

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

import kafka_tx
from integration.cluster.waiting import wait_until
from integration.reading import Run
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.stops import last_stop

RECORDS = 6


@pytest.fixture
def attached(spark):
    attached = kafka_tx.attach(spark, metrics_port=0)
    yield attached
    attached.close()


@pytest.fixture
def job(spark, kafka, topic, produce, tmp_path):
    """Makes runs over a topic of ``RECORDS`` records, each with an id of its own."""
    name = topic(1)
    produce(name, [f"v{n}" for n in range(RECORDS)])

    def make(tx_id: str, **more) -> Run:
        return Run(
            spark,
            kafka.bootstrap_servers,
            subscribe=name,
            tx__id=tx_id,
            tx__store=f"sqlite:///{tmp_path}/state.db",
            **more,
        )

    return make


def scraped(attached):
    """Every sample by its name, id and reason."""
    text = requests.get(f"http://127.0.0.1:{attached.port}/metrics", timeout=10).text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [sample.labels[n] for n in ("id", "reason") if n in sample.labels]
            found[(sample.name, *labels)] = sample.value
    return found


def test_bounded_runs_beside_others_all_appear(attached, job, tmp_path, caplog):
    began = time.time()
    endless = job("endless")._writer.option(
        "checkpointLocation", str(tmp_path / "endless")
    )
    query = endless.start()
    try:
        ids = [f"bounded-{n}" for n in range(2)]
        for id_ in ids:
            assert len(job(id_).until_done(tmp_path / id_)) == RECORDS

        def all_are_shown() -> bool:
            found = scraped(attached)
            return all(
                found.get(("kafka_tx_records_total", id_)) == RECORDS
                for id_ in (*ids, "endless")
            )

        wait_until("every id is shown", all_are_shown, timeout_s=60)
        found = scraped(attached)
        for id_ in (*ids, "endless"):
            newest = found["kafka_tx_newest_record_timestamp_seconds", id_]
            assert began - 600 < newest <= time.time()
            assert found["kafka_tx_stops_total", id_, "user"] == 0
    finally:
        query.stop()
    assert "not known here" not in caplog.text


def fail(df, _):
    raise ValueError("no such customer")


def test_a_job_that_fails_in_its_first_batch_is_counted_and_remembered(
    spark, attached, job, tmp_path
):
    broken = job("broken")
    writer = broken._writer.foreachBatch(fail)

    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    wait_until("it has failed", lambda: not query.isActive, timeout_s=90)

    stop = ("kafka_tx_stops_total", "broken", "user")
    wait_until("it is counted", lambda: scraped(attached).get(stop) == 1, timeout_s=60)
    store = SqlStore(f"sqlite:///{tmp_path}/state.db", "broken")
    wait_until("it is written down", lambda: last_stop(store) is not None)
    found = last_stop(store)
    store.close()
    assert found is not None
    assert found.reason == "user"
    assert "no such customer" in found.error

    # The process that comes next shows it too.
    attached.close()
    after = kafka_tx.attach(spark, metrics_port=0)
    try:
        assert len(job("broken").until_done(tmp_path / "c")) == RECORDS
        last = ("kafka_tx_last_stop_timestamp_seconds", "broken", "user")
        wait_until(
            "the next one shows it",
            lambda: scraped(after).get(last) == found.at_ms / 1000,
            timeout_s=60,
        )
    finally:
        after.close()
