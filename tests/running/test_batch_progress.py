"""What is told of committed batches: on a terminal, and of their Kafka ranges."""

from __future__ import annotations

import io
from dataclasses import replace
from unittest.mock import MagicMock

import pytest

from kafka_tx.errors import BrokerUnavailableError
from kafka_tx.metrics.events import OffsetsStored
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    BatchMetadata,
    LogBounds,
    OffsetRange,
    TopicPartition,
    TransactionAttempt,
    Unavailable,
    located,
)
from kafka_tx.running.lag_watch import POLL_EVERY_MS, SpoutLagWatch
from kafka_tx.running.transactional.batch_progress import (
    BatchProgress,
    Journal,
    TerminalProgress,
    kafka_batch,
)
from kafka_tx.topology.run.attempt_run import Processed
from kafka_tx.transactions.coordinator.actions import Cancel
from kafka_tx.transactions.coordinator.in_flight_batches import BatchPhase
from kafka_tx.transactions.layout.commit_stats import CommitStats, TaskSums, stats_in
from tests.running.polling import since_s

A = TopicPartition("t", 0)


def planned(start, end, **more):
    """What a Kafka spout planned for a batch."""
    return BatchMetadata(1, (OffsetRange(A, start, end),), **more)


def batch(txid, records, duration_ms):
    return BatchProgress(
        attempt=TransactionAttempt(txid, 1),
        metadata=None,
        records=records,
        bytes=None,
        emitted={},
        phases_ms={},
        duration_ms=duration_ms,
        committed_at_ms=0,
    )


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_the_last_batch_and_all_records_on_one_line():
    stream = Terminal()
    progress = TerminalProgress("count", stream)

    progress(batch(9, records=1000, duration_ms=120.4))
    progress(batch(10, records=5, duration_ms=3))
    progress.close()

    _, first, second = stream.getvalue().split("\r")
    assert (
        first == "count: txid 9 committed, 1000 records in 120 ms, 1000 records in all"
    )
    assert second.rstrip() == (
        "count: txid 10 committed, 5 records in 3 ms, 1005 records in all"
    )
    assert len(second.rstrip("\n")) >= len(first), "a rest of the longer line is left"
    assert second.endswith("\n")


def test_a_file_has_a_line_for_each_batch():
    stream = io.StringIO()
    progress = TerminalProgress("count", stream)

    progress(batch(9, records=1000, duration_ms=120.4))
    progress(batch(10, records=5, duration_ms=3))
    progress.close()

    assert "\r" not in stream.getvalue()
    assert [line[:14] for line in stream.getvalue().splitlines()] == [
        "count: txid 9 ",
        "count: txid 10",
    ]


def test_a_terminal_without_batches_stays_clean():
    stream = Terminal()

    TerminalProgress("count", stream).close()

    assert stream.getvalue() == ""


@pytest.mark.parametrize("metadata", [None, 7, [1, 2], {"from": 1}, {"p": {"at": 1}}])
def test_metadata_of_other_spouts_has_no_kafka_ranges(metadata):
    assert not kafka_batch(metadata).ranges


def test_metadata_of_kafka_spouts_tells_its_ranges():
    batch = planned(2, 5)

    assert kafka_batch(batch) is batch


def test_offsets_that_a_batch_skipped_are_in_the_metric(clock):
    registry = MetricsRegistry()
    journal = Journal("count", registry, clock)

    commit(journal, 1, planned(6, 9, skipped={(A, "retention"): 6}))

    counted = registry.samples()["kafka_tx_skipped_offsets_total"]
    assert counted["count", "t", "0", "retention"] == (6,)


def commit(journal, txid, metadata):
    attempt = TransactionAttempt(txid, 1)
    journal.started(attempt)
    journal.processed(Processed(MagicMock(), attempt))
    journal.committing(attempt)
    journal.committed(attempt, metadata)


def test_a_partition_that_batches_leave_out_is_shown_no_more(clock):
    registry = MetricsRegistry()
    journal = Journal("count", registry, clock)
    gone = OffsetRange(TopicPartition("gone", 0), 0, 9)

    commit(journal, 1, replace(planned(0, 9), ranges=(gone, OffsetRange(A, 0, 9))))
    commit(journal, 2, planned(0, 9))

    shown = registry.samples()["kafka_tx_committed_offset"]
    assert list(shown) == [("count", "t", "0")]


def test_what_a_batch_held_is_for_the_store(clock):
    journal = Journal("count", MetricsRegistry(), clock)
    first, second = (
        TransactionAttempt(7, 1),
        TransactionAttempt.of(7, epoch=3, number=2),
    )
    metadata = planned(6, 9, skipped={(A, "retention"): 6})
    journal.started(first)
    journal.dropped(Cancel((first,), "a bolt failed"))
    journal.started(second)
    facts = {"t-0": {"records": 3, "bytes": 30}}
    clock.sleep_ms(40)
    journal.processed(Processed(MagicMock(), second, facts=facts))
    clock.sleep_ms(20)
    journal.committing(second)
    clock.sleep_ms(5)

    assert stats_in(journal.stats_record(second, metadata, {})) == (
        CommitStats(
            txid=7,
            epoch=3,
            committed_ms=clock.now_ms(),
            attempts=2,
            skipped={(A, "retention"): 6},
            from_tasks=TaskSums(
                records=3,
                bytes=30,
                phases_ms={
                    "planning": 0,
                    "processing": 40,
                    "waiting": 20,
                    "committing": 5,
                },
            ),
        ),
    )


def test_what_was_dropped_is_a_replay_once_the_batch_is_committed(clock):
    registry = MetricsRegistry()
    journal = Journal("count", registry, clock)
    first = TransactionAttempt(7, 1)
    journal.started(first)
    journal.dropped(Cancel((first,), "a bolt failed"))
    assert registry.samples()["kafka_tx_batches_total"]["count", "failed"] == (1,)
    replays_before = registry.samples()["kafka_tx_replays_total"]["count",]

    second = TransactionAttempt(7, 2)
    journal.started(second)
    journal.processed(Processed(MagicMock(), second))
    journal.committing(second)
    journal.committed(second, None)

    replays = registry.samples()["kafka_tx_replays_total"]["count",]
    assert (replays_before, replays) == ((0,), (1,))


class Logs:
    def __init__(self):
        self.polls = 0
        self.error = None
        self.takes_ms = 0
        self.clock = None

    def __call__(self):
        self.polls += 1
        if self.clock:
            self.clock.sleep_ms(self.takes_ms)
        if self.error:
            raise self.error
        return {A: LogBounds(0, 10)}


def test_a_failed_poll_of_the_logs_changes_nothing_but_is_known(clock):
    logs, registry = Logs(), MetricsRegistry()
    watch = SpoutLagWatch(logs, registry, "count", clock)
    watch.poll()
    shown = registry.samples()["kafka_tx_end_offset"]
    assert not registry.waits_for_brokers("count")

    logs.error = BrokerUnavailableError("away")
    watch.poll()

    assert registry.samples()["kafka_tx_end_offset"] == shown
    assert registry.waits_for_brokers("count")

    logs.error = None
    watch.poll()
    assert not registry.waits_for_brokers("count")


def test_polls_that_take_long_leave_half_of_the_time_to_the_spout(clock):
    logs = Logs()
    logs.clock, logs.takes_ms = clock, 30_000
    watch = SpoutLagWatch(logs, MetricsRegistry(), "count", clock)

    ends_ms = clock.monotonic_ms() + 600_000
    while clock.monotonic_ms() < ends_ms:
        watch.poll()
        clock.sleep_ms(POLL_EVERY_MS)

    assert logs.polls == 10


def test_logs_that_did_not_change_are_told_now_and_then(clock, monkeypatch):
    registry, recorded = MetricsRegistry(), []
    monkeypatch.setattr(registry, "record_log", lambda *given: recorded.append(given))
    watch = SpoutLagWatch(Logs(), registry, "count", clock)

    for _ in range(12):
        watch.poll()
        clock.sleep_ms(POLL_EVERY_MS)

    assert len(recorded) == 2  # in a minute


def test_a_spout_without_logs_has_no_lag(clock):
    SpoutLagWatch(None, MetricsRegistry(), "count", clock).poll()


def test_a_partition_that_is_deleted_before_it_was_read_does_not_hide_the_lag(clock):
    registry = MetricsRegistry()
    found: dict[TopicPartition, LogBounds | Unavailable] = {A: LogBounds(0, 10)}
    journal = Journal("count", registry, clock)
    attempt = TransactionAttempt(1, 1)
    journal.started(attempt)
    journal.processed(Processed(MagicMock(), attempt))
    journal.committing(attempt)
    journal.committed(attempt, planned(0, 4))
    watch = SpoutLagWatch(lambda: dict(found), registry, "count", clock)
    new = TopicPartition("new", 0)

    found[new] = Unavailable("no batch has read it yet")
    watch.poll()
    assert registry.lag_of("count") is None

    del found[new]
    clock.sleep_ms(POLL_EVERY_MS)
    watch.poll()
    assert registry.lag_of("count") == 6


def test_what_the_store_had_and_no_batch_has_any_more_is_not_shown(clock):
    registry, gone = MetricsRegistry(), TopicPartition("gone", 0)
    registry.record_stored(
        OffsetsStored(id="count", committed=located({A: 1, gone: 7}, {}, {}), txid=0)
    )
    journal = Journal("count", registry, clock, frozenset({A, gone}))
    attempt = TransactionAttempt(1, 1)
    journal.started(attempt)
    journal.processed(Processed(MagicMock(), attempt))
    journal.committing(attempt)
    journal.committed(attempt, planned(1, 4))

    shown = registry.samples()["kafka_tx_committed_offset"]
    assert shown == {("count", "t", "0"): (4,)}


def in_flight(registry, phase):
    name = "kafka_tx_in_flight_batches"
    return registry.samples()[name]["count", phase][0]


def test_a_batch_is_in_flight_from_its_planning_and_its_replays_make_it_no_younger(
    clock,
):
    registry = MetricsRegistry()
    journal = Journal("count", registry, clock)
    first, second = TransactionAttempt(7, 1), TransactionAttempt(7, 2)
    began_s = clock.now_ms() / 1000

    journal.planning(first)
    journal.in_flight({}, is_planning=True)
    assert (in_flight(registry, "planning"), since_s(registry)) == (1, began_s)
    clock.sleep_ms(1_000)
    journal.planned(first)
    journal.in_flight({}, is_planning=False)  # it is being stored
    assert (in_flight(registry, "planning"), since_s(registry)) == (1, began_s)
    journal.started(first)
    journal.in_flight({first: BatchPhase.PROCESSING}, is_planning=False)
    assert in_flight(registry, "processing") == 1
    clock.sleep_ms(1_000)
    journal.dropped(Cancel((first,), "a bolt failed"))
    journal.in_flight({}, is_planning=False)
    journal.started(second)
    journal.in_flight({second: BatchPhase.PROCESSING}, is_planning=False)
    assert (in_flight(registry, "processing"), since_s(registry)) == (1, began_s)

    journal.processed(Processed(MagicMock(), second))
    journal.committing(second)
    journal.committed(second, None)
    journal.in_flight({}, is_planning=False)

    assert (in_flight(registry, "processing"), since_s(registry)) == (0, 0)


def test_batches_that_wait_for_others_do_not_look_as_if_they_hung(clock):
    """Each is in flight for long; but one after the other is committed."""
    registry = MetricsRegistry()
    journal = Journal("count", registry, clock)
    attempts = [TransactionAttempt(txid, 1) for txid in (1, 2, 3)]
    phases = dict.fromkeys(attempts, BatchPhase.PROCESSING)
    began_s = clock.now_ms() / 1000
    for attempt in attempts:
        journal.planning(attempt)
        journal.planned(attempt)
        journal.started(attempt)
    journal.in_flight(phases, is_planning=False)

    since = [since_s(registry)]
    for attempt in attempts:
        clock.sleep_ms(200_000)
        journal.processed(Processed(MagicMock(), attempt))
        journal.committing(attempt)
        journal.committed(attempt, None)
        del phases[attempt]
        journal.in_flight(phases, is_planning=False)
        since.append(since_s(registry))

    assert since == [began_s, began_s + 200, began_s + 400, 0]


def test_a_batch_that_cannot_be_planned_yet_is_in_flight_since_its_first_try(clock):
    registry = MetricsRegistry()
    journal = Journal("count", registry, clock)
    began_s = clock.now_ms() / 1000

    for number in range(1, 4):
        journal.planning(TransactionAttempt(1, number))
        journal.in_flight({}, is_planning=True)
        journal.plan_failed()
        clock.sleep_ms(1_000)
        journal.in_flight({}, is_planning=False)
        assert (in_flight(registry, "planning"), since_s(registry)) == (1, began_s)
    last = TransactionAttempt(1, 4)
    journal.planning(last)
    journal.planned(last)
    journal.started(last)
    journal.in_flight({last: BatchPhase.PROCESSING}, is_planning=False)

    assert (in_flight(registry, "planning"), since_s(registry)) == (0, began_s)


def test_a_plan_that_does_not_count_any_more_leaves_nothing_in_flight(clock):
    registry = MetricsRegistry()
    journal = Journal("count", registry, clock)

    journal.planning(TransactionAttempt(1, 1))
    journal.in_flight({}, is_planning=True)
    journal.in_flight({}, is_planning=False)

    assert since_s(registry) == 0


def test_what_cannot_be_planned_as_a_topology_ends_is_shown_no_more(clock):
    registry = MetricsRegistry()
    journal = Journal("count", registry, clock)
    journal.planning(TransactionAttempt(1, 1))
    journal.plan_failed()
    journal.in_flight({}, is_planning=False)

    journal.ended()

    assert since_s(registry) == 0


def test_what_a_topology_leaves_in_flight_as_it_ends_is_shown_no_more(clock):
    registry = MetricsRegistry()
    journal = Journal("count", registry, clock)
    attempt = TransactionAttempt(1, 1)
    journal.started(attempt)
    journal.in_flight({attempt: BatchPhase.PROCESSING}, is_planning=False)
    journal.dropped(Cancel((attempt,), "lost"))

    journal.ended()

    assert since_s(registry) == 0


def test_the_very_first_batch_shows_where_it_begins_as_committed(clock):
    registry = MetricsRegistry()
    registry.record_log("count", {A: LogBounds(2, 10)})
    journal = Journal("count", registry, clock)

    journal.started(TransactionAttempt(1, 1), planned(4, 9))

    assert registry.lag_of("count") == 6
    assert registry.current_txid("count") == 1
    assert not registry.samples()["kafka_tx_last_commit_timestamp_seconds"]
