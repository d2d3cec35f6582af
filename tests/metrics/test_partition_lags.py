"""What is shown of each partition, and for how long it has been behind."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kafka_tx.metrics import MetricsRegistry
from kafka_tx.model import LogBounds, Unavailable
from tests.metrics.facts import MINUTE, ORDERS_0, ManualTime, batch, orders


def test_a_commit_shows_where_each_partition_stands(registry: MetricsRegistry) -> None:
    registry.record_commit(batch())

    stands = {
        name: (orders(registry, name, 0), orders(registry, name, 1))
        for name in (
            "start_offset",
            "committed_offset",
            "end_offset",
            "log_start_offset",
            "lag_records",
            "retention_headroom_records",
            "offsets_total",
        )
    }
    assert stands == {
        "start_offset": (100, 5),
        "committed_offset": (140, 5),
        "end_offset": (200, 5),
        "log_start_offset": (50, 0),
        "lag_records": (60, 0),
        "retention_headroom_records": (90, 5),
        "offsets_total": (40, 0),
    }


def test_lag_in_seconds_counts_from_the_first_sight_of_the_waiting_records(
    registry: MetricsRegistry, clock: ManualTime
) -> None:
    registry.record_commit(batch(bounds={ORDERS_0: LogBounds(50, 200)}))
    clock.now_ms = 2 * MINUTE
    registry.record_commit(
        batch(committed={ORDERS_0: 180}, bounds={ORDERS_0: LogBounds(50, 400)})
    )
    while_below_the_first_end = orders(registry, "lag_seconds")
    clock.now_ms = 3 * MINUTE

    registry.record_commit(
        batch(committed={ORDERS_0: 200}, bounds={ORDERS_0: LogBounds(50, 400)})
    )

    assert while_below_the_first_end == 120
    assert orders(registry, "lag_seconds") == 60


def test_a_poll_of_the_log_moves_the_lag_and_not_the_progress(
    registry: MetricsRegistry, clock: ManualTime
) -> None:
    registry.record_commit(batch())
    progress = {
        name: label_value
        for name, label_value in registry.samples().items()
        if not name.endswith(
            ("end_offset", "lag_records", "lag_seconds", "behind_latest_offsets")
        )
    }
    clock.now_ms = MINUTE

    registry.record_log("job", {ORDERS_0: LogBounds(50, 1_000)})

    assert orders(registry, "end_offset") == 1_000
    assert orders(registry, "lag_records") == 860
    assert orders(registry, "lag_seconds") == 60
    assert progress.items() <= registry.samples().items()


@pytest.mark.parametrize("answer", [None, Unavailable("no leader")])
def test_bounds_that_cannot_be_had_now_stay_as_they_were(
    registry: MetricsRegistry, clock: ManualTime, answer: Unavailable | None
) -> None:
    registry.record_commit(batch())
    clock.now_ms = MINUTE
    bounds = {} if answer is None else {ORDERS_0: answer}

    registry.record_commit(batch(committed={ORDERS_0: 150}, bounds=bounds))

    assert orders(registry, "end_offset") == 200
    assert orders(registry, "lag_records") == 50
    assert orders(registry, "lag_seconds") == 60
    assert orders(registry, "retention_headroom_records") == 100


def test_without_any_bounds_a_partition_shows_no_lag_rather_than_zero(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch(bounds={}))

    assert orders(registry, "committed_offset") == 140
    assert orders(registry, "lag_records") is None


def test_a_committed_offset_beyond_a_stale_end_is_no_negative_lag(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch(committed={ORDERS_0: 230}))

    assert orders(registry, "lag_records") == 0
    assert orders(registry, "lag_seconds") == 0


def test_headroom_is_negative_when_retention_passed_the_committed_offset(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch(bounds={ORDERS_0: LogBounds(170, 200)}))

    assert orders(registry, "retention_headroom_records") == -30


@pytest.mark.parametrize("end", [60, 200, 900])
def test_of_a_topic_made_anew_all_is_lag_since_it_was_first_seen(
    registry: MetricsRegistry, clock: ManualTime, end: int
) -> None:
    former = {ORDERS_0: LogBounds(50, 200, "former")}
    registry.record_commit(batch(bounds=former, topic_ids={"orders": "former"}))
    clock.now_ms = MINUTE

    registry.record_log("job", {ORDERS_0: LogBounds(2, end, "latter")})
    clock.now_ms += MINUTE / 2
    registry.record_log("job", {ORDERS_0: LogBounds(2, end, "latter")})

    assert orders(registry, "committed_offset") == 140
    assert orders(registry, "lag_records") == end - 2
    assert orders(registry, "lag_seconds") == 30
    assert orders(registry, "retention_headroom_records") == 0


def test_records_in_place_of_those_that_were_read_are_lag(
    registry: MetricsRegistry,
) -> None:
    """Until the new leader is asked, offsets alone count."""
    log = {"topic_ids": {"orders": "a"}, "leader_epochs": {ORDERS_0: 4}}
    registry.record_commit(batch(bounds={ORDERS_0: LogBounds(50, 140, "a", 4)}, **log))
    assert orders(registry, "lag_records") == 0

    registry.record_log("job", {ORDERS_0: LogBounds(50, 150, "a", 5)})
    assert orders(registry, "lag_records") == 10
    registry.record_log("job", {ORDERS_0: LogBounds(50, 150, "a", 5, {4: 120})})

    assert orders(registry, "lag_records") == 30
    assert orders(registry, "retention_headroom_records") == 70


def test_a_log_of_which_nobody_tells_whose_it_is_moves_no_lag(
    registry: MetricsRegistry,
) -> None:
    former = {ORDERS_0: LogBounds(50, 200, "former")}
    registry.record_commit(batch(bounds=former, topic_ids={"orders": "former"}))

    registry.record_log("job", {ORDERS_0: LogBounds(0, 900)})

    assert orders(registry, "lag_records") == 60


def test_offsets_behind_latest_as_in_the_metrics_of_sparks_source(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch())

    behind = registry.samples()["kafka_tx_behind_latest_offsets"]
    registry.forget("job")

    assert behind == {
        ("job", "min"): (0,),
        ("job", "max"): (60,),
        ("job", "avg"): (30,),
    }
    assert not registry.samples()["kafka_tx_behind_latest_offsets"]


def test_the_lag_of_an_id_is_unknown_while_one_of_its_partitions_does_not_answer(
    registry: MetricsRegistry,
) -> None:
    assert registry.lag_of("job") is None
    registry.record_commit(batch())
    assert registry.lag_of("job") == 60

    registry.record_log("job", {ORDERS_0: Unavailable("no leader")})
    assert registry.lag_of("job") is None
    assert orders(registry, "lag_records") == 60  # a dashboard shows the last one

    registry.record_log("job", {ORDERS_0: LogBounds(50, 210)})
    assert registry.lag_of("job") == 70


def test_the_lag_of_an_id_is_unknown_before_all_of_its_logs_were_polled(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch(bounds={ORDERS_0: LogBounds(50, 200)}))

    assert registry.lag_of("job") is None


def test_the_lag_of_an_id_costs_the_same_beside_many_others(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch())
    alone = steps_of(lambda: registry.lag_of("job"))

    for number in range(100):
        registry.record_commit(batch(id=f"other-{number}"))

    assert steps_of(lambda: registry.lag_of("job")) == alone


def steps_of(call: Callable[[], object]) -> int:
    """How many lines of Python it runs, each time that a loop does; no finalizers."""
    steps = 0

    def count(*_: object) -> Any:
        nonlocal steps
        steps += 1
        return count

    former = sys.gettrace()
    gc.disable()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(former)
        gc.enable()
    return steps
