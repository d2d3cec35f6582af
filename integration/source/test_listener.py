"""What ``attach`` shows of short, failing and many queries."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.bounded import read_out
from integration.cluster.waiting import wait_until
from integration.reading import Run
from kafka_tx.source import commits
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.layout.stops import last_stop
from kafka_tx.transactions.ledger.ledger import Ledger

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
        options = {"subscribe": name, "tx__store": f"sqlite:///{tmp_path}/state.db"}
        return Run(spark, kafka.bootstrap_servers, tx__id=tx_id, **{**options, **more})

    return make


def scraped(attached):
    """Every sample by its name, id and reason."""
    text = requests.get(f"http://127.0.0.1:{attached.port}/metrics", timeout=60).text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [sample.labels[n] for n in ("id", "reason") if n in sample.labels]
            found[(sample.name, *labels)] = sample.value
    return found


def test_a_query_that_another_thread_starts_is_measured_too(attached, job, tmp_path):
    run = job("elsewhere")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(run.until_done, tmp_path / "elsewhere").result()

    def is_measured() -> bool:
        found = scraped(attached)
        return bool(found.get(("kafka_tx_records_total", "elsewhere")) == RECORDS)

    wait_until("its records are counted", is_measured)
    assert scraped(attached)["kafka_tx_bytes_total", "elsewhere"] > 0


@pytest.mark.all
def test_bounded_runs_beside_others_all_appear_and_are_let_go_later(
    attached, job, tmp_path, caplog, monkeypatch
):
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

        wait_until("every id is shown", all_are_shown)
        found = scraped(attached)
        for id_ in (*ids, "endless"):
            newest = found["kafka_tx_newest_record_timestamp_seconds", id_]
            assert began - 600 < newest <= time.time()
            assert found["kafka_tx_stops_total", id_, "user"] == 0

        monkeypatch.setattr(commits, "RELEASED_AFTER_MS", 0)

        def only_the_endless_one_is_watched() -> bool:
            attached._listener._lag.poll()
            return set(attached._listener.feed.partitions()) == {"endless"}

        wait_until("the others are let go", only_the_endless_one_is_watched)
        found = scraped(attached)
        gauge = "kafka_tx_committed_txid"
        assert {key[1] for key in found if key[0] == gauge} == {"endless"}
        assert found["kafka_tx_records_total", ids[0]] == RECORDS
    finally:
        query.stop()
    late = [text for text in caplog.messages if "not known here" in text]
    assert not [text for text in late if any(id_ in text for id_ in (*ids, "endless"))]


def test_records_that_are_read_twice_are_counted_once(attached, job, tmp_path):
    def twice(df, _):
        assert df.count() == len(df.collect())

    writer = job("twice")._writer.foreachBatch(twice)
    read_out(writer.option("checkpointLocation", str(tmp_path / "c")))

    records = ("kafka_tx_records_total", "twice")
    wait_until("they are counted", lambda: scraped(attached).get(records) == RECORDS)


def test_the_store_knows_what_each_batch_held_whoever_committed_it(
    attached, job, tmp_path
):
    job("told-of", maxOffsetsPerTrigger=2).until_done(tmp_path / "c")

    ledger = Ledger(SqlStore(f"sqlite:///{tmp_path}/state.db", "told-of"))
    try:
        wait_until(
            "every batch is told of",
            lambda: (
                [each.from_tasks.records for each in ledger.load().commit_stats]
                == [2] * (RECORDS // 2)
            ),
        )
    finally:
        ledger.close()


def test_what_was_skipped_is_counted_whatever_failed_and_was_restarted(
    attached, kafka, topic, produce, job, tmp_path
):
    name, checkpoint = topic(1), tmp_path / "c"

    def run():
        return job("skips", subscribe=name, tx__mode="opaque")

    produce(name, ["a"] * 10)
    run().until_done(checkpoint)
    produce(name, ["b"] * 10)
    kafka.delete_records(name, {0: 14})
    failing = run()._writer.foreachBatch(fail)
    with pytest.raises(StreamingQueryException, match="no such customer"):
        read_out(failing.option("checkpointLocation", str(checkpoint)))
    assert run().until_done(checkpoint) == [b"b"] * 6
    produce(name, ["c"] * 10)
    kafka.delete_records(name, {0: 23})
    assert run().until_done(checkpoint) == [b"c"] * 7

    wanted = {"skipped_offsets": 4 + 3, "records": 10 + 6 + 7, "replays": 1}

    def shown() -> dict[str, float | None]:
        found = scraped(attached)
        reason = {"skipped_offsets": ("retention",)}
        return {
            what: found.get((f"kafka_tx_{what}_total", "skips", *reason.get(what, ())))
            for what in wanted
        }

    wait_until("all is counted", lambda: shown() == wanted)


def test_a_restarted_job_that_hangs_in_its_first_batch_has_a_lag(
    spark, topic, produce, job, tmp_path
):
    name, is_over = topic(1), threading.Event()
    produce(name, ["before"] * 3)
    job("hangs", subscribe=name).until_done(tmp_path / "c")  # nobody is attached
    produce(name, ["after"] * 4)

    attached = kafka_tx.attach(spark, metrics_port=0)
    hanging = job("hangs", subscribe=name)._writer.foreachBatch(
        lambda *_: is_over.wait(180)
    )
    query = hanging.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        lag = ("kafka_tx_lag_records", "hangs")
        wait_until("its lag is known", lambda: scraped(attached).get(lag) == 4)
        found = scraped(attached)
        assert found["kafka_tx_retention_headroom_records", "hangs"] == 3
        assert found["kafka_tx_committed_txid", "hangs"] == 1
        assert (
            time.time() - 600 < found["kafka_tx_last_commit_timestamp_seconds", "hangs"]
        )
    finally:
        is_over.set()
        query.stop()
        attached.close()


def fail(df, _):
    raise ValueError("no such customer")


def test_a_job_that_fails_in_its_first_batch_is_counted_and_remembered(
    spark, attached, job, tmp_path
):
    broken = job("broken")
    writer = broken._writer.foreachBatch(fail)

    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    wait_until("it has failed", lambda: not query.isActive)

    stop = ("kafka_tx_stops_total", "broken", "user")
    wait_until("it is counted", lambda: scraped(attached).get(stop) == 1)
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
        )
    finally:
        after.close()
