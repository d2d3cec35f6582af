"""From progress reports to commits and metrics."""

import uuid
from dataclasses import replace

import pytest

from kafka_tx.errors import StateLostError, StateUnavailableError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source.commits import RELEASED_AFTER_MS, CommitFeed, Finished
from kafka_tx.source.read_reports import ReadReport, ReadReports
from kafka_tx.testing import CrashingStore
from kafka_tx.transactions.layout.batch_records import Committed
from kafka_tx.transactions.layout.commit_stats import CommitStats, TableWrite, TaskSums
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ownership.memory import MemoryStore
from tests.metrics.families import Families
from tests.source.conftest import mirror_into

P0 = TopicPartition("t", 0)


class Planner:
    """What the planning process does to the store."""

    def __init__(self):
        self.name = uuid.uuid4().hex
        self.ledger = self.open()
        self.epoch = self.ledger.acquire()

    def open(self):
        return Ledger(MemoryStore(self.name, "job"))

    def plan(self, txid, start, end, **more):
        ranges = (OffsetRange(P0, start, end),)
        self.ledger.plan(self.epoch, BatchMetadata(txid, ranges, **more))

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
    feed = CommitFeed(
        lambda _: (planner.open(), mirror_into(mirrored)), registry, clock
    )
    yield feed
    feed.close()


def read(start, end):
    """What the only task reports: seven records, whatever the range."""
    found = ReadReports()
    found.add(ReadReport(OffsetRange(P0, start, end), 7, 70, newest_ms=9_000))
    return found


def finished(txid, start, end, *, epoch=1, latest=None, numbering=""):
    def offset(n, position):
        mark = {"v": 3, "id": "job", "txid": n, "epoch": epoch, "numbering": numbering}
        return {"t": {"0": position}, "_kafka_tx": mark}

    return Finished(
        start=SourceOffset.from_json(offset(txid - 1, start)),
        end=SourceOffset.from_json(offset(txid, end)),
        latest=latest,
        duration_ms=250,
        read_reports=read(start, end),
    )


def value(registry, name, **labels):
    for family in Families(registry).collect():
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
    feed = CommitFeed(lambda _: (Ledger(store), mirror_into(mirrored)), registry, clock)
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
    feed = CommitFeed(lambda _: (ledger, mirror_into(mirrored)), registry, clock)
    planner.plan(1, 0, 10)
    planner.plan(2, 10, 20)
    feed.finished(finished(1, 0, 10))
    assert planner.txid() == 0

    is_away.clear()
    feed.finished(finished(2, 10, 20))

    assert planner.txid() == 2
    assert mirrored == [{P0: 10}, {P0: 20}]
    feed.close()


@pytest.mark.parametrize("planner_commits_first", [False, True])
def test_a_store_that_was_put_back_between_two_runs_is_opened_anew(
    registry, mirrored, clock, planner_commits_first
):
    """A SQLite file tells its former users that another one is in its place."""
    planner, former = Planner(), Planner()
    feed = CommitFeed(
        lambda _: (planner.open(), mirror_into(mirrored)), registry, clock
    )
    for txid in (1, 2, 3):
        planner.plan(txid, txid * 10 - 10, txid * 10)
        feed.finished(finished(txid, txid * 10 - 10, txid * 10))
    shown = feed.partitions()

    former.plan(1, 0, 10)  # the copy
    former.ledger.commit(former.epoch, 1, 0)
    planner = former
    feed.began("job")
    assert feed.partitions() == shown  # its lag stays
    report = finished(2, 10, 10)
    feed.finished(replace(report, start=report.end))  # idle, as many runs begin
    for txid in (2, 3):
        planner.plan(txid, txid * 10 - 10, txid * 10)
        if planner_commits_first:
            planner.ledger.commit(planner.epoch, txid, 0)
        feed.finished(finished(txid, txid * 10 - 10, txid * 10))

    assert planner.txid() == 3
    assert value(registry, "kafka_tx_records_total", id="job") == 7 * 5
    assert value(registry, "kafka_tx_committed_txid", id="job") == 3
    feed.close()


def test_a_waiting_batch_of_a_former_numbering_does_not_hold_up_the_new_one(
    registry, mirrored, clock
):
    """The id was reset between two runs of one program."""
    planner, after_reset = Planner(), Planner()
    feed = CommitFeed(
        lambda _: (planner.open(), mirror_into(mirrored)), registry, clock
    )
    planner.ledger.adopt(planner.epoch, Committed(49, {P0: 490}), "former")
    planner.plan(50, 490, 500)
    planner.epoch = planner.ledger.acquire()
    feed.finished(finished(50, 490, 500, numbering="former"))
    assert planner.txid() == 49

    planner = after_reset
    feed.began("job")
    planner.ledger.adopt(planner.epoch, Committed(0, {P0: 0}), "new")
    planner.plan(1, 0, 10)
    feed.finished(finished(1, 0, 10, numbering="new"))

    assert planner.txid() == 1
    assert value(registry, "kafka_tx_records_total", id="job") == 7
    feed.close()


@pytest.fixture
def put_back(registry, mirrored, clock):
    """A program whose store is replaced by a copy: both have the same numbering."""
    case = PutBack(registry, mirrored, clock)
    yield case
    case.feed.close()


class PutBack:
    def __init__(self, registry, mirrored, clock):
        self.planner = self.at(5)
        self.feed = CommitFeed(
            lambda _: (self.planner.open(), mirror_into(mirrored)), registry, clock
        )

    def at(self, txid):
        planner = Planner()
        planner.ledger.adopt(planner.epoch, Committed(txid, {P0: txid * 10}), "same")
        return planner

    def plan(self, txid):
        self.planner.plan(txid, txid * 10 - 10, txid * 10)

    def finished(self, txid):
        report = finished(txid, txid * 10 - 10, txid * 10, numbering="same")
        self.feed.finished(report)

    def wait_for_the_planner(self):
        self.plan(6)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Ledger, "load", lost)
            self.finished(6)
        assert self.planner.txid() == 5


def lost(_):
    raise StateLostError("the store is at txid 1", store="memory", id="job")


@pytest.mark.parametrize("is_idle_before", [False, True])
def test_a_waiting_batch_does_not_hold_up_a_store_that_was_put_back(
    put_back, registry, is_idle_before
):
    put_back.wait_for_the_planner()

    put_back.planner = put_back.at(1)
    put_back.feed.began("job")
    if is_idle_before:
        put_back.feed.flush()
    for txid in (2, 3):
        put_back.plan(txid)
        put_back.finished(txid)
        assert put_back.planner.txid() == txid

    assert value(registry, "kafka_tx_records_total", id="job") == 7 * 2
    assert value(registry, "kafka_tx_committed_txid", id="job") == 3


def test_a_batch_that_a_former_run_has_finished_is_not_committed_for_the_new_one(
    put_back, registry
):
    """The copy has its plan under the same epoch, and the new run processes it."""
    put_back.wait_for_the_planner()

    put_back.planner = put_back.at(5)
    put_back.plan(6)
    put_back.feed.began("job")
    put_back.feed.flush()

    assert put_back.planner.txid() == 5
    put_back.finished(6)
    assert put_back.planner.txid() == 6
    assert value(registry, "kafka_tx_records_total", id="job") == 7


def test_a_waiting_batch_that_the_next_run_commits_is_measured(put_back, registry):
    put_back.wait_for_the_planner()

    put_back.feed.began("job")
    put_back.planner.ledger.commit(put_back.planner.epoch, 6, 0)
    put_back.plan(7)
    put_back.finished(7)

    assert put_back.planner.txid() == 7
    assert value(registry, "kafka_tx_records_total", id="job") == 7 * 2


@pytest.mark.parametrize("at_load", [False, True])
def test_a_store_that_cannot_be_opened_for_a_new_run_is_tried_again(
    registry, mirrored, clock, monkeypatch, at_load
):
    planner, former = Planner(), Planner()
    is_away: list[bool] = []
    load = Ledger.load

    def loaded(ledger):
        return away() or load(ledger)

    def away():
        if is_away:
            raise StateUnavailableError("away")

    def open_parts(_):
        if not at_load:
            away()
        return planner.open(), mirror_into(mirrored)

    feed = CommitFeed(open_parts, registry, clock)
    for txid in (1, 2):
        planner.plan(txid, txid * 10 - 10, txid * 10)
        feed.finished(finished(txid, txid * 10 - 10, txid * 10))
    planner = former  # put back
    feed.began("job")
    planner.plan(1, 0, 10)
    is_away.append(True)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "load", loaded)
        feed.finished(finished(1, 0, 10))
        is_away.clear()
        feed.flush()

    assert planner.txid() == 1
    assert value(registry, "kafka_tx_records_total", id="job") == 7 * 3
    feed.close()


def test_an_offset_without_a_mark_is_not_ours(feed, planner):
    feed.finished(
        Finished(
            start=None,
            end=SourceOffset({P0: 5}),
            latest=None,
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
    first = replace(batch.end, begins={P0: 0})

    feed.finished(replace(batch, end=first, latest=first.to_json()))

    assert value(registry, "kafka_tx_records_total", id="job") == 7
    assert value(registry, "kafka_tx_lag_records", id="job") is None


SKIPPED = {(P0, "retention"): 3}


def skipped(registry):
    return value(registry, "kafka_tx_skipped_offsets_total", reason="retention")


def committed(registry):
    return value(registry, "kafka_tx_batches_total", outcome="committed")


def test_what_a_plan_skipped_is_counted_once_and_when_it_is_committed(
    feed, planner, registry
):
    planner.plan(1, 10, 20, skipped=SKIPPED)
    assert skipped(registry) is None
    feed.finished(finished(1, 10, 20))
    assert skipped(registry) == 3

    planner.plan(2, 20, 30)
    feed.finished(finished(2, 20, 30))
    feed.finished(finished(2, 20, 30))
    assert skipped(registry) == 3


def test_what_was_skipped_is_counted_after_a_restart_in_this_process(
    feed, planner, registry
):
    for epoch in (1, 2, 3):
        planner.plan(epoch, epoch * 10, epoch * 10 + 10, skipped=SKIPPED)
        feed.finished(finished(epoch, epoch * 10, epoch * 10 + 10, epoch=epoch))
        planner.epoch = planner.ledger.acquire()

    assert skipped(registry) == 9


def test_what_tasks_skipped_is_counted_also_where_some_did_not_report(
    feed, planner, registry
):
    planner.plan(1, 0, 10, skipped=SKIPPED)
    read_reports = ReadReports()
    read_reports.add(ReadReport(OffsetRange(P0, 0, 5), 1, 10, skipped=4))

    feed.finished(replace(finished(1, 0, 10), read_reports=read_reports))

    assert skipped(registry) == 7


def test_tries_before_the_one_that_was_committed_are_replays(feed, planner, registry):
    planner.plan(1, 0, 10, attempts=3)

    feed.finished(finished(1, 0, 10))

    assert value(registry, "kafka_tx_replays_total", id="job") == 2


def test_what_a_transaction_held_is_stored_with_its_commit(feed, planner, clock):
    planner.plan(1, 0, 10, skipped=SKIPPED, attempts=2)

    feed.finished(finished(1, 0, 10))

    assert planner.ledger.load().commit_stats == (
        CommitStats(
            txid=1,
            epoch=1,
            committed_ms=clock.now_ms(),
            attempts=2,
            skipped=SKIPPED,
            from_tasks=TaskSums(records=7, bytes=70, newest_ms=9_000),
        ),
    )


def test_tables_are_measured_once_and_stored_beside_what_tasks_told(
    planner, registry, clock
):
    def written(txid):
        write = TableWrite(txid=txid, table="t", sink="s", files=2, rows=7, seconds=0.5)
        return write, replace(write, table="before", seconds=None)

    feed = CommitFeed(
        lambda _: (planner.open(), None),
        registry,
        clock,
        lambda id_, _, txid: written(txid) if id_ == "job" else (),
    )
    for txid in (1, 2):
        planner.plan(txid, txid * 10, txid * 10 + 10)
        feed.finished(finished(txid, txid * 10, txid * 10 + 10))
    feed.finished(finished(2, 20, 30))
    feed.close()

    assert planner.open().load().commit_stats[-1].from_tasks.tables == written(2)
    measured = {
        name: value(registry, f"kafka_tx_table_{name}", id="job")
        for name in ("commit_seconds_count", "files_total", "rows_total")
    }
    assert measured == {"commit_seconds_count": 2, "files_total": 4, "rows_total": 14}


def test_what_tasks_told_is_stored_also_of_what_the_planner_committed(feed, planner):
    """It writes what it remembers when it commits again, and knows of no tasks."""
    for txid, start in enumerate((0, 10, 20), 1):
        planner.plan(txid, start, start + 10)
        planner.ledger.commit(planner.epoch, txid, 0)
        feed.finished(finished(txid, start, start + 10))

    read = [each.from_tasks.records for each in planner.open().load().commit_stats]
    assert read == [7, 7, 7]


def test_an_overtaken_run_tells_nothing_of_the_newer_ones_batches(
    feed, planner, registry
):
    planner.plan(1, 0, 10)
    planner.epoch = planner.ledger.acquire()
    planner.ledger.commit(planner.epoch, 1, 0)

    feed.finished(finished(1, 0, 10, epoch=1))

    (held,) = planner.open().load().commit_stats
    assert held.from_tasks == TaskSums()
    assert value(registry, "kafka_tx_records_total", id="job") == 7


def test_a_batch_that_spark_reported_to_nobody_is_counted_from_the_store(
    feed, planner, registry
):
    """An earlier process had finished it; this run's planner has committed it."""
    planner.plan(1, 0, 10, skipped=SKIPPED)
    planner.epoch = planner.ledger.acquire()
    planner.ledger.commit(planner.epoch, 1, 0)
    planner.plan(2, 10, 20)

    feed.finished(finished(2, 10, 20, epoch=2))

    assert committed(registry) == 2
    assert skipped(registry) == 3
    assert value(registry, "kafka_tx_records_total", id="job") == 7
    assert value(registry, "kafka_tx_unmeasured_batches_total", id="job") == 1
    assert value(registry, "kafka_tx_committed_txid", id="job") == 2


def test_what_an_earlier_run_has_committed_is_not_counted_again(
    feed, planner, registry
):
    planner.plan(1, 0, 10, skipped=SKIPPED)
    planner.ledger.commit(planner.epoch, 1, 0)
    planner.epoch = planner.ledger.acquire()
    planner.plan(2, 10, 20)

    feed.finished(finished(2, 10, 20, epoch=2))

    assert committed(registry) == 1
    assert skipped(registry) == 0


def test_failures_of_the_mirror_are_counted_on_after_a_restart(feed, planner, registry):
    for epoch, failures in ((1, 2), (2, 1), (3, 1)):
        start = epoch * 10
        latest = {"t": {"0": 99}, "_kafka_tx": {"mirrorFailures": failures}}
        planner.plan(epoch, start, start + 10)
        feed.finished(finished(epoch, start, start + 10, epoch=epoch, latest=latest))
        planner.epoch = planner.ledger.acquire()

    assert value(registry, "kafka_tx_mirror_failures_total", id="job") == 4


def without_records(batch_id, txid=1, *, start=True):
    """The report of a batch of Spark whose offsets did not move."""
    end = finished(txid, 0, 10).end
    first = replace(end, mark=replace(end.mark, start=True))
    return Finished(
        start=end if start else None,
        end=end if start else first,
        latest=None,
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


def test_an_id_that_was_forgotten_is_opened_anew(
    planner, registry, mirrored, clock, monkeypatch
):
    stores = [Planner(), planner]  # the query moves from one to the other
    opened = iter(stores)
    feed = CommitFeed(lambda _: (next(opened).open(), None), registry, clock)
    stores[0].plan(1, 0, 10)
    feed.finished(finished(1, 0, 10))
    planner.plan(1, 0, 10)
    closed = []
    ledger = feed._queries["job"].ledger
    monkeypatch.setattr(ledger, "close", lambda: closed.append(ledger))

    feed.forget("job")
    assert closed == [ledger]
    feed.finished(finished(1, 0, 10))

    assert [store.txid() for store in stores] == [1, 1]
    feed.close()


def test_what_ended_is_let_go_after_a_while(feed, planner, clock):
    planner.plan(1, 0, 10)
    feed.finished(finished(1, 0, 10))
    released: list[str] = []

    feed.ended("job")
    clock.sleep_ms(RELEASED_AFTER_MS - 1)
    feed.release_ended(released.append)
    assert feed.partitions() == {"job": [P0]}
    clock.sleep_ms(1)
    feed.release_ended(released.append)

    assert released == ["job"]
    assert feed.partitions() == {}


def test_the_partitions_of_a_query_that_started_are_watched_before_it_commits(
    feed, planner, clock
):
    feed.began("job")
    feed.has_positions("job", [P0])
    assert feed.partitions() == {"job": [P0]}

    feed.ended("job")
    clock.sleep_ms(RELEASED_AFTER_MS)
    feed.release_ended(lambda _: None)
    assert feed.partitions() == {}


@pytest.mark.parametrize("again", ["began", "finished"])
def test_what_runs_again_is_not_let_go(feed, planner, clock, again):
    planner.plan(1, 0, 10)
    feed.finished(finished(1, 0, 10))
    feed.ended("job")

    if again == "began":
        feed.began("job")
    else:
        feed.finished(finished(1, 0, 10))
    clock.sleep_ms(RELEASED_AFTER_MS)
    feed.release_ended(pytest.fail)

    assert feed.partitions() == {"job": [P0]}


@pytest.mark.parametrize(("end", "is_reported"), [(10, True), (9, False)])
def test_what_was_read_is_only_counted_when_every_task_has_reported(
    feed, planner, registry, end, is_reported
):
    planner.plan(1, 0, 10)

    feed.finished(replace(finished(1, 0, 10), read_reports=read(0, end)))

    assert value(registry, "kafka_tx_records_total", id="job") == (
        7 if is_reported else None
    )
    assert value(registry, "kafka_tx_bytes_total", id="job") == (
        70 if is_reported else None
    )
    newest = value(registry, "kafka_tx_newest_record_timestamp_seconds", id="job")
    assert newest == (9 if is_reported else None)
    missing = value(registry, "kafka_tx_unmeasured_batches_total", id="job")
    assert missing == (0 if is_reported else 1)


def test_a_batch_that_the_planner_left_two_steps_behind_is_counted_too(
    feed, planner, registry
):
    for txid, start in ((1, 0), (2, 10)):
        planner.plan(txid, start, start + 10)
        planner.ledger.commit(planner.epoch, txid, 0)

    feed.finished(finished(1, 0, 10))

    assert value(registry, "kafka_tx_records_total", id="job") == 7
    assert value(registry, "kafka_tx_unmeasured_batches_total", id="job") == 0
    assert value(registry, "kafka_tx_offsets_total", id="job") == 10


def test_what_an_earlier_try_of_the_batch_read_besides_is_not_counted(
    feed, planner, registry
):
    planner.plan(1, 7, 10)
    read_reports = read(0, 10)  # retention took [0, 7) before the second try
    read_reports.add(ReadReport(OffsetRange(P0, 7, 10), 3, 30))

    feed.finished(replace(finished(1, 0, 10), read_reports=read_reports))

    assert value(registry, "kafka_tx_records_total", id="job") == 3
    assert value(registry, "kafka_tx_bytes_total", id="job") == 30
