"""From progress reports to commits and metrics."""

import uuid
from dataclasses import replace

import pytest

from kafka_tx.errors import StateUnavailableError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.source.commits import CommitFeed, Finished
from kafka_tx.source.receipts import Receipt, Receipts
from kafka_tx.testing.crashing_store import CrashingStore
from kafka_tx.transactions.ledger import Ledger
from kafka_tx.transactions.memory import MemoryStore

P0 = TopicPartition("t", 0)


class Planner:
    """What the planning process does to the store."""

    def __init__(self):
        self.name = uuid.uuid4().hex
        self.ledger = self.open()
        self.epoch = self.ledger.acquire()

    def open(self):
        return Ledger(MemoryStore(self.name, "job"))

    def plan(self, txid, start, end):
        ranges = (OffsetRange(P0, start, end),)
        self.ledger.plan(self.epoch, BatchMetadata(txid, ranges))

    def txid(self):
        return self.ledger.load().txid


@pytest.fixture
def planner():
    return Planner()


@pytest.fixture
def registry():
    return MetricsRegistry()


@pytest.fixture
def mirrored():
    return []


@pytest.fixture
def feed(planner, registry, mirrored, clock):
    feed = CommitFeed(lambda _: (planner.open(), mirrored.append), registry, clock)
    yield feed
    feed.close()


def finished(txid, start, end, *, epoch=1, latest=None, records=7):
    def offset(n, position):
        return {
            "t": {"0": position},
            "_kafka_tx": {"id": "job", "txid": n, "epoch": epoch},
        }

    return Finished(
        start=offset(txid - 1, start),
        end=offset(txid, end),
        latest=latest,
        records=records,
        duration_ms=250,
    )


def value(registry, name, **labels):
    for family in registry.collect():
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None


def test_a_finished_batch_is_committed_mirrored_and_measured(
    feed, planner, registry, mirrored
):
    planner.plan(1, 0, 10)

    feed.finished(finished(1, 0, 10))

    assert planner.txid() == 1
    assert mirrored == [{P0: 10}]
    assert value(registry, "kafka_tx_records_total", id="job") == 7
    assert value(registry, "kafka_tx_committed_txid", id="job") == 1


def test_the_same_report_twice_counts_once(feed, planner, registry, mirrored):
    planner.plan(1, 0, 10)

    feed.finished(finished(1, 0, 10))
    feed.finished(finished(1, 0, 10))

    assert mirrored == [{P0: 10}]
    assert value(registry, "kafka_tx_records_total", id="job") == 7


def test_what_the_planner_committed_first_is_measured_all_the_same(
    feed, planner, registry, mirrored
):
    planner.plan(1, 0, 10)
    planner.ledger.commit(planner.epoch, 1, 0)

    feed.finished(finished(1, 0, 10))

    assert mirrored == []
    assert value(registry, "kafka_tx_records_total", id="job") == 7


def test_a_commit_whose_answer_was_lost_is_mirrored_once_it_is_found_done(
    planner, registry, mirrored, clock
):
    lost = StateUnavailableError("no answer came", store="memory")
    store = CrashingStore(
        MemoryStore(planner.name, "job"), at_write=1, landed=True, error=lost
    )
    feed = CommitFeed(lambda _: (Ledger(store), mirrored.append), registry, clock)
    planner.plan(1, 0, 10)

    feed.finished(finished(1, 0, 10))
    assert (planner.txid(), mirrored) == (1, [])
    feed.flush()
    feed.flush()

    assert mirrored == [{P0: 10}]
    assert value(registry, "kafka_tx_records_total", id="job") == 7


def test_an_idle_report_is_no_batch(feed, planner, registry):
    planner.plan(1, 0, 10)
    report = finished(1, 0, 10)

    feed.finished(
        Finished(
            start=report.end,
            end=report.end,
            latest=None,
            records=0,
            duration_ms=1,
        )
    )

    assert planner.txid() == 0
    assert value(registry, "kafka_tx_records_total", id="job") is None


def test_a_batch_planned_by_an_earlier_owner_waits_for_the_planner(
    feed, planner, registry
):
    planner.plan(1, 0, 10)
    planner.epoch = planner.ledger.acquire()

    feed.finished(finished(1, 0, 10, epoch=1))
    assert planner.txid() == 0
    assert value(registry, "kafka_tx_records_total", id="job") is None

    planner.ledger.commit(planner.epoch, 1, 0)
    feed.flush()
    assert value(registry, "kafka_tx_records_total", id="job") == 7


def test_a_batch_that_ends_elsewhere_than_planned_is_not_committed(feed, planner):
    planner.plan(1, 0, 10)

    feed.finished(finished(1, 0, 8))

    assert planner.txid() == 0


def test_batches_are_committed_in_order(feed, planner, mirrored):
    planner.plan(1, 0, 10)
    planner.plan(2, 10, 20)

    feed.finished(finished(1, 0, 10))
    feed.finished(finished(2, 10, 20))

    assert planner.txid() == 2
    assert mirrored == [{P0: 10}, {P0: 20}]


def test_batches_that_waited_for_the_store_are_committed_in_order(
    planner, registry, mirrored, clock, monkeypatch
):
    ledger, is_away = planner.open(), [True]
    load = ledger.load

    def load_when_back():
        if is_away:
            raise StateUnavailableError("away")
        return load()

    monkeypatch.setattr(ledger, "load", load_when_back)
    feed = CommitFeed(lambda _: (ledger, mirrored.append), registry, clock)
    planner.plan(1, 0, 10)
    planner.plan(2, 10, 20)
    feed.finished(finished(1, 0, 10))
    assert planner.txid() == 0

    is_away.clear()
    feed.finished(finished(2, 10, 20))

    assert planner.txid() == 2
    assert mirrored == [{P0: 10}, {P0: 20}]
    feed.close()


def test_an_offset_without_a_mark_is_not_ours(feed, planner):
    feed.finished(
        Finished(
            start=None,
            end={"t": {"0": 5}},
            latest=None,
            records=1,
            duration_ms=1,
        )
    )

    assert planner.txid() == 0


def test_a_store_that_does_not_answer_raises_nothing(registry, clock):
    def unavailable(_):
        raise StateUnavailableError("away")

    CommitFeed(unavailable, registry, clock).finished(finished(1, 0, 10))


def test_lag_and_headroom_come_from_the_report(feed, planner, registry):
    planner.plan(1, 0, 10)
    latest = {"t": {"0": 25}, "_kafka_tx": {"logStart": {"t": {"0": 4}}}}

    feed.finished(finished(1, 0, 10, latest=latest))

    labels = {"id": "job", "topic": "t", "partition": "0"}
    assert value(registry, "kafka_tx_lag_records", **labels) == 15
    assert value(registry, "kafka_tx_retention_headroom_records", **labels) == 6


def test_an_end_in_place_of_the_report_is_no_end_of_a_log(feed, planner, registry):
    planner.plan(1, 0, 10)
    batch = finished(1, 0, 10)
    first = {**batch.end, '_kafka_tx {"begins": {"t": {"0": 0}}}': {}}

    feed.finished(replace(batch, end=first, latest=first))

    assert value(registry, "kafka_tx_records_total", id="job") == 7
    assert value(registry, "kafka_tx_lag_records", id="job") is None


def test_skipped_offsets_are_added_once(feed, planner, registry):
    latest = {
        "t": {"0": 25},
        "_kafka_tx": {
            "logStart": {"t": {"0": 4}},
            "skipped": {"retention": {"t": {"0": 3}}},
        },
    }
    for txid in (1, 2):
        planner.plan(txid, txid * 10, txid * 10 + 10)
        feed.finished(finished(txid, txid * 10, txid * 10 + 10, latest=latest))

    skipped = value(registry, "kafka_tx_skipped_offsets_total", reason="retention")
    assert skipped == 3


def without_records(batch_id, txid=1, *, start=True):
    """The report of a batch of Spark whose offsets did not move."""
    end = finished(txid, 0, 10).end
    return Finished(
        start=end if start else None,
        end=end if start else end | {"_kafka_tx": end["_kafka_tx"] | {"start": True}},
        latest=None,
        records=0,
        duration_ms=50,
        spark_batch=f"q/{batch_id}",
    )


@pytest.mark.parametrize("start", [True, False])
def test_a_batch_without_records_is_committed_under_its_own_txid(
    feed, planner, registry, start
):
    planner.plan(1, 0, 10)
    feed.finished(finished(1, 0, 10))
    gone = TopicPartition("unsubscribed", 0)
    ranges = (OffsetRange(P0, 10, 10), OffsetRange(gone, 3, 3))
    empty = BatchMetadata(2, ranges, {}, "q/7")
    planner.ledger.plan(planner.epoch, empty)

    feed.finished(without_records(6, start=start))
    assert planner.txid() == 1
    feed.finished(without_records(7, start=start))

    assert planner.txid() == 2
    assert value(registry, "kafka_tx_committed_txid", id="job") == 2
    assert value(registry, "kafka_tx_records_total", id="job") == 7


def test_one_that_nobody_numbered_holds_nothing_up(feed, planner, registry):
    planner.plan(1, 0, 10)
    feed.finished(without_records(0, txid=0, start=False))

    feed.finished(finished(1, 0, 10))

    assert planner.txid() == 1


def test_batches_that_nobody_commits_are_not_kept_for_ever(feed, planner):
    for txid in range(1, 1000):
        feed.finished(finished(txid, txid, txid + 1))

    assert len(feed._queries["job"].waiting) <= 100
    assert planner.txid() == 0


def test_an_id_that_was_forgotten_is_opened_anew(planner, registry, mirrored, clock):
    stores = [Planner(), planner]  # the query moves from one to the other
    opened = iter(stores)
    feed = CommitFeed(lambda _: (next(opened).open(), None), registry, clock)
    stores[0].plan(1, 0, 10)
    feed.finished(finished(1, 0, 10))
    planner.plan(1, 0, 10)

    feed.forget("job")
    feed.finished(finished(1, 0, 10))

    assert [store.txid() for store in stores] == [1, 1]
    feed.close()


@pytest.mark.parametrize(("end", "counted", "unmeasured"), [(10, 70, 0), (9, None, 1)])
def test_bytes_are_only_counted_when_every_task_has_reported(
    feed, planner, registry, end, counted, unmeasured
):
    planner.plan(1, 0, 10)
    receipts = Receipts()
    receipts.add(Receipt(OffsetRange(P0, 0, end), 70, newest_ms=9_000))

    feed.finished(replace(finished(1, 0, 10), receipts=receipts))

    assert value(registry, "kafka_tx_bytes_total", id="job") == counted
    newest = value(registry, "kafka_tx_newest_record_timestamp_seconds", id="job")
    assert newest == (9 if counted else None)
    missing = value(registry, "kafka_tx_unmeasured_batches_total", id="job")
    assert missing == unmeasured
