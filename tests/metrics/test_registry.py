"""Measurements move with commits, never fail, and can be forgotten."""

import logging

import pytest
from prometheus_client import generate_latest

from kafka_tx.errors import FencedError
from kafka_tx.metrics import MetricsRegistry, OffsetsCommitted, catalogue
from kafka_tx.metrics.events import OffsetsStored
from kafka_tx.metrics.exposition import exposition
from kafka_tx.model import LogBounds
from tests.metrics.facts import (
    MINUTE,
    ORDERS_0,
    ORDERS_1,
    ManualTime,
    batch,
    ends,
    label_sets,
    orders,
    value,
)
from tests.metrics.families import prometheus


def test_a_commit_moves_everything_at_once(registry: MetricsRegistry) -> None:
    registry.record_commit(batch(bytes=4_000, newest_ms=1_699_999_999_000))

    moved = {
        name: value(registry, name, id="job")
        for name in (
            "records_total",
            "bytes_total",
            "committed_txid",
            "current_txid",
            "last_commit_timestamp_seconds",
            "newest_record_timestamp_seconds",
            "batch_duration_seconds_sum",
            "commit_latency_seconds_sum",
        )
    }
    assert moved == {
        "records_total": 38,
        "bytes_total": 4_000,
        "committed_txid": 7,
        "current_txid": 8,
        "last_commit_timestamp_seconds": 1_700_000_000.5,
        "newest_record_timestamp_seconds": 1_699_999_999,
        "batch_duration_seconds_sum": 0.3,
        "commit_latency_seconds_sum": 0.004,
    }
    assert value(registry, "batches_total", id="job", outcome="committed") == 1


def test_counters_add_up_over_commits_and_ids_are_apart(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch())
    registry.record_commit(batch(txid=8, records=2))
    registry.record_commit(batch(id="other"))

    assert value(registry, "records_total", id="job") == 40
    assert value(registry, "records_total", id="other") == 38
    assert value(registry, "committed_txid", id="job") == 8


def test_time_alone_moves_nothing(registry: MetricsRegistry, clock: ManualTime) -> None:
    registry.record_commit(batch())
    before = generate_latest(prometheus(registry))

    clock.now_ms = 60 * MINUTE

    assert generate_latest(prometheus(registry)) == before


def test_skipped_offsets_are_counted_by_reason(registry: MetricsRegistry) -> None:
    skipped = {(ORDERS_0, "retention"): 30, (ORDERS_0, "topic_deleted"): 4}
    registry.record_commit(batch(skipped=skipped))
    registry.record_commit(batch(skipped={(ORDERS_0, "retention"): 1}))

    counted = registry.samples()["kafka_tx_skipped_offsets_total"]
    assert counted == {
        ("job", "orders", "0", "retention"): (31.0,),
        ("job", "orders", "0", "topic_deleted"): (4.0,),
        ("job", "orders", "1", "retention"): (0.0,),
    }


def test_the_newest_record_never_gets_older(registry: MetricsRegistry) -> None:
    registry.record_commit(batch(newest_ms=9_000))
    registry.record_commit(batch(newest_ms=2_000))

    assert value(registry, "newest_record_timestamp_seconds", id="job") == 9


def test_a_record_from_the_future_hides_no_later_one(registry: MetricsRegistry) -> None:
    now_ms = 1_700_000_000_000
    of_3000 = 32_503_680_000_000

    registry.record_commit(batch(newest_ms=of_3000, committed_at_ms=now_ms))
    registry.record_commit(
        batch(newest_ms=now_ms + 7_000, committed_at_ms=now_ms + 9_000)
    )

    newest = value(registry, "newest_record_timestamp_seconds", id="job")
    assert newest == (now_ms + 7_000) / 1000


def test_what_nobody_measured_is_absent(registry: MetricsRegistry) -> None:
    registry.record_commit(batch())

    assert value(registry, "bytes_total", id="job") is None
    assert value(registry, "newest_record_timestamp_seconds", id="job") is None
    assert not label_sets(registry, "phase_duration_seconds")


def test_phases_are_measured_where_they_are_known(registry: MetricsRegistry) -> None:
    registry.record_commit(batch(phases_ms={"planning": 20.0, "processing": 250.0}))

    def spent(phase: str) -> float | None:
        return value(registry, "phase_duration_seconds_sum", id="job", phase=phase)

    assert (spent("planning"), spent("processing")) == (0.02, 0.25)
    assert spent("waiting") is None


def test_offsets_without_a_batch_move_positions_and_no_txid(
    registry: MetricsRegistry,
) -> None:
    registry.record_offsets(
        OffsetsCommitted(
            id="job",
            committed=ends({ORDERS_0: 140}),
            bounds={ORDERS_0: LogBounds(50, 200)},
            committed_at_ms=9_000,
            commit_ms=2.0,
        )
    )

    assert orders(registry, "lag_records") == 60
    assert value(registry, "last_commit_timestamp_seconds", id="job") == 9
    assert not label_sets(registry, "committed_txid")
    assert not label_sets(registry, "batches_total")


def test_counters_show_zero_from_the_first_commit(registry: MetricsRegistry) -> None:
    registry.record_commit(batch())

    assert value(registry, "replays_total", id="job") == 0
    assert value(registry, "mirror_failures_total", id="job") == 0
    for outcome in ("failed", "timed_out", "cancelled"):
        assert value(registry, "batches_total", id="job", outcome=outcome) == 0
    stops = registry.samples()["kafka_tx_stops_total"]
    assert set(stops) == {("job", reason) for reason in catalogue.STOP_REASON.values}
    assert set(stops.values()) == {(0.0,)}


def test_a_job_without_the_spout_shows_nothing_of_it(registry: MetricsRegistry) -> None:
    registry.record_commit(batch())

    assert not label_sets(registry, "failed_records_total")
    assert not label_sets(registry, "dead_letter_records_total")


def test_the_spouts_counters_begin_together(registry: MetricsRegistry) -> None:
    registry.add(
        "kafka_tx_emitted_records_total", 3, id="job", topic="orders", partition="0"
    )

    assert orders(registry, "emitted_records_total") == 3
    assert orders(registry, "completed_records_total") == 0
    assert orders(registry, "dead_letter_records_total") == 0
    assert label_sets(registry, "lost_records_total") == {
        ("job", "orders", "0", "retention")
    }


def test_the_three_calls_of_a_meter_reach_their_metric(
    registry: MetricsRegistry,
) -> None:
    registry.add("kafka_tx_replays_total", id="job")
    registry.add("kafka_tx_replays_total", 2, id="job")
    registry.set("kafka_tx_in_flight_batches", 4, id="job", phase="waiting")
    registry.observe(
        "kafka_tx_fetch_duration_seconds", 0.2, id="job", topic="orders", partition="0"
    )

    assert value(registry, "replays_total", id="job") == 3
    assert value(registry, "in_flight_batches", id="job", phase="waiting") == 4
    assert orders(registry, "fetch_duration_seconds_count") == 1


WRONG_CALLS = {
    "no such metric": ("add", "kafka_tx_unheard_of_total", {"id": "job"}),
    "a label too many": ("add", "kafka_tx_replays_total", {"id": "job", "txid": "1"}),
    "a label too few": ("set", "kafka_tx_lag_records", {"id": "job"}),
    "a value outside the set": (
        "set",
        "kafka_tx_in_flight_batches",
        {"id": "job", "phase": "sleeping"},
    ),
    "the wrong kind": ("set", "kafka_tx_replays_total", {"id": "job"}),
}


@pytest.mark.parametrize("what", WRONG_CALLS)
def test_a_wrong_measurement_is_counted_said_once_and_never_raised(
    registry: MetricsRegistry, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    method, name, labels = WRONG_CALLS[what]

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            getattr(registry, method)(name, 1.0, **labels)

    assert value(registry, "metric_failures_total") == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert name in caplog.text


def test_a_value_that_is_no_number_fails_no_batch(registry: MetricsRegistry) -> None:
    registry.record_commit(batch(records="many"))

    assert value(registry, "metric_failures_total") == 1


def test_one_bad_part_of_a_commit_leaves_the_others_measured(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(
        batch(skipped={(ORDERS_0, "mice"): 3}, phases_ms={"sleeping": 1.0})
    )

    assert value(registry, "metric_failures_total") == 2
    assert value(registry, "records_total", id="job") == 38
    assert orders(registry, "offsets_total") == 40


def test_a_stop_is_counted_by_its_kind(registry: MetricsRegistry) -> None:
    registry.record_commit(batch())

    registry.record_stop("job", ValueError("a bolt of the user's"), at_ms=5_000)

    assert value(registry, "stops_total", id="job", reason="user") == 1
    assert value(registry, "stops_total", id="job", reason="fenced") == 0
    assert value(registry, "committed_txid", id="job") == 7


def test_a_fenced_owner_leaves_the_gauges_to_the_newer_one(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch())

    registry.record_stop("job", FencedError("a newer owner"), at_ms=5_000)

    assert value(registry, "stops_total", id="job", reason="fenced") == 1
    assert value(registry, "records_total", id="job") == 38
    assert not label_sets(registry, "committed_txid")
    assert not label_sets(registry, "lag_records")


def test_partitions_no_longer_owned_disappear_and_the_others_stay(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch(skipped={(ORDERS_1, "retention"): 3}))
    registry.record_commit(batch(id="other"))

    registry.forget("job", [ORDERS_1])

    left = {
        key[:3]
        for name, samples in registry.samples().items()
        if catalogue.BY_NAME[name].is_per_partition
        for key in samples
    }
    assert left == {
        ("job", "orders", "0"),
        ("other", "orders", "0"),
        ("other", "orders", "1"),
    }
    assert value(registry, "records_total", id="job") == 38


def test_a_partition_that_comes_back_begins_anew(
    registry: MetricsRegistry, clock: ManualTime
) -> None:
    registry.record_commit(batch())
    registry.forget("job", [ORDERS_0])
    clock.now_ms = MINUTE

    registry.record_commit(batch())

    assert orders(registry, "offsets_total") == 40
    assert orders(registry, "lag_seconds") == 0


def test_an_id_that_left_keeps_its_counters_and_loses_its_gauges(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch())
    registry.record_commit(batch(id="other"))
    registry.set("kafka_tx_in_flight_batches", 1, id="job", phase="processing")

    registry.forget("job")

    assert value(registry, "records_total", id="job") == 38
    assert value(registry, "batch_duration_seconds_count", id="job") == 1
    for gauge in ("committed_txid", "last_commit_timestamp_seconds"):
        assert label_sets(registry, gauge) == {("other",)}
    assert not label_sets(registry, "in_flight_batches")
    assert {key[0] for key in label_sets(registry, "lag_records")} == {"other"}


def test_an_id_shows_that_it_never_failed_before_its_first_commit(
    registry: MetricsRegistry,
) -> None:
    registry.record_start("job")

    assert value(registry, "stops_total", id="job", reason="user") == 0
    assert value(registry, "last_stop_timestamp_seconds", id="job", reason="user") == 0


def test_a_stop_is_counted_and_dated(registry: MetricsRegistry) -> None:
    registry.record_start("job")

    registry.record_stop("job", ValueError("x"), at_ms=5_000)
    registry.record_start("job")

    stopped = {"id": "job", "reason": "user"}
    assert value(registry, "stops_total", **stopped) == 1
    assert value(registry, "last_stop_timestamp_seconds", **stopped) == 5


def test_one_that_was_fenced_still_says_so(registry: MetricsRegistry) -> None:
    registry.record_stop("job", FencedError("x"), at_ms=5_000)

    fenced = {"id": "job", "reason": "fenced"}
    assert value(registry, "last_stop_timestamp_seconds", **fenced) == 5


@pytest.fixture
def runs() -> tuple[MetricsRegistry, ManualTime]:
    clock = ManualTime()
    clock.now_ms = 1_000_000
    return MetricsRegistry(monotonic_ms=clock, now_ms=lambda: int(clock())), clock


def runs_of(registry: MetricsRegistry) -> dict[str, float]:
    found = registry.samples()["kafka_tx_run_since_timestamp_seconds"]
    return {kind: since for (_, kind, *_), (since,) in found.items()}


@pytest.mark.parametrize("is_bounded", [True, False])
def test_a_start_says_whether_the_run_ends_by_itself(
    runs: tuple[MetricsRegistry, ManualTime], is_bounded: bool
) -> None:
    registry, _ = runs

    registry.record_start("job", is_bounded=is_bounded)

    assert runs_of(registry) == {"bounded" if is_bounded else "unbounded": 1_000}


def test_jobs_that_share_the_partitions_of_an_id_are_told_apart(
    runs: tuple[MetricsRegistry, ManualTime],
) -> None:
    registry, clock = runs
    name = "kafka_tx_run_since_timestamp_seconds"

    registry.record_start("job", task="1 of 2")
    shared = registry.samples()[name]
    registry.record_end("job")
    clock.now_ms += MINUTE
    ended = registry.samples()[name]
    registry.record_start("job")

    assert shared == {("job", "unbounded", "1", "2"): (1_000,)}
    assert ended == {("job", "ended", "1", "2"): (1_000,)}
    assert registry.samples()[name] == {("job", "unbounded", "", ""): (1_060,)}


def test_a_process_that_outlives_a_run_by_a_minute_meant_to_stop_it(
    runs: tuple[MetricsRegistry, ManualTime],
) -> None:
    registry, clock = runs
    registry.record_start("job")
    registry.record_end("job")
    clock.now_ms += MINUTE - 1
    assert runs_of(registry) == {"unbounded": 1_000}

    clock.now_ms += 1
    assert runs_of(registry) == {"ended": 1_000}
    registry.forget("job")
    assert runs_of(registry) == {"ended": 1_000}

    registry.record_start("job")
    assert runs_of(registry) == {"unbounded": 1_060}


@pytest.mark.parametrize("error", [ValueError("x"), FencedError("x")])
def test_after_an_error_the_process_does_not_run_the_id(
    runs: tuple[MetricsRegistry, ManualTime], error: Exception
) -> None:
    registry, clock = runs
    registry.record_start("job")
    registry.record_end("job")  # as listeners do first
    registry.record_stop("job", error, int(clock.now_ms))
    clock.now_ms += 2 * MINUTE

    assert runs_of(registry) == {}
    registry.record_end("job")
    assert runs_of(registry) == {}


def stored(txid=7):
    return OffsetsStored(
        id="job", committed=ends({ORDERS_0: 140}), committed_at_ms=9_000, txid=txid
    )


def test_a_job_that_has_not_committed_yet_shows_where_its_store_is(registry):
    registry.record_stored(stored())
    registry.record_log("job", {ORDERS_0: LogBounds(50, 200)})

    assert orders(registry, "committed_offset") == 140
    assert orders(registry, "lag_records") == 60
    assert orders(registry, "retention_headroom_records") == 90
    assert value(registry, "last_commit_timestamp_seconds", id="job") == 9
    assert value(registry, "committed_txid", id="job") == 7
    assert value(registry, "commit_latency_seconds_count", id="job") in {None, 0}
    assert value(registry, "batches_total", id="job", outcome="committed") == 0


def test_a_start_position_is_no_commit(registry):
    registry.record_stored(stored(txid=0))

    assert orders(registry, "committed_offset") == 140
    assert value(registry, "committed_txid", id="job") is None
    assert value(registry, "current_txid", id="job") == 1


def test_what_was_read_of_a_store_too_late_is_not_shown(registry):
    registry.record_commit(batch(txid=8))
    shown = registry.samples()

    registry.record_stored(stored())

    assert registry.samples() == shown


def test_a_run_that_never_failed_does_not_hide_that_the_one_before_it_did() -> None:
    older, newer = MetricsRegistry(), MetricsRegistry()
    older.record_stop("job", FencedError("a newer owner"), 5_000)
    newer.record_start("job")

    for order in ([older, newer], [newer, older]):
        lines = exposition(order, "")[0].decode().splitlines()
        name = "kafka_tx_last_stop_timestamp_seconds"
        assert f'{name}{{id="job",reason="fenced"}} 5.0' in lines
        assert f'{name}{{id="job",reason="state"}} 0.0' in lines
