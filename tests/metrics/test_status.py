"""``/api/status`` says what a person asks first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_tx.errors import FencedError, StateError
from kafka_tx.metrics import MetricsRegistry
from kafka_tx.metrics.activity import KEPT_BATCHES, KEPT_ERRORS, BatchEnded
from kafka_tx.metrics.events import InFlight, OffsetsStored
from kafka_tx.metrics.status import STALLED_AFTER_MS, health, status
from kafka_tx.model import LogBounds, TopicPartition, Unavailable
from kafka_tx.transactions.layout.commit_stats import TableWrite
from tests.metrics.facts import ORDERS_0, ORDERS_1, batch, ends

NOW_MS = 1_700_000_001_000


class Job:
    """A registry whose clock is moved by hand, and its one id."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.registry = MetricsRegistry(
            monotonic_ms=lambda: self.now_ms, now_ms=lambda: self.now_ms
        )

    def start(self) -> None:
        self.registry.record_start("job", "source", {"subscribe": "orders"})

    def status(self) -> Any:
        made = json.loads(json.dumps(status([self.registry], self.now_ms)))
        (found,) = made["ids"]
        return found

    def fly(self, since_ms: int) -> None:
        started = InFlight(
            number=8, phase="processing", since_ms=since_ms, phase_since_ms=since_ms
        )
        self.registry.record_in_flight("job", [started])


@pytest.fixture
def job() -> Job:
    made = Job()
    made.start()
    return made


def test_a_commit_is_told_with_its_phases_and_partitions(job: Job) -> None:
    job.registry.record_commit(
        batch(phases_ms={"planning": 20, "processing": 280}, replays=2)
    )

    status = job.status()

    assert status["state"] == "running"
    assert (status["committed_txid"], status["last_commit_ms"]) == (
        7,
        1_700_000_000_500,
    )
    assert (status["lag_records"], status["headroom_records"]) == (60, 5)
    assert status["topics"] == [
        {
            "topic": "orders",
            "partition": [0, 1],
            "committed": [140, 5],
            "end": [200, 5],
            "log_start": [50, 0],
            "lag_records": [60, 0],
            "lag_seconds": [0.0, 0.0],
            "headroom_records": [90, 5],
            "retention_edge": [None, None],
        }
    ]
    (shown,) = status["batches"]
    assert (shown["number"], shown["outcome"], shown["tries"]) == (7, "committed", 3)
    assert shown["phases_ms"] == {"planning": 20, "processing": 280}
    assert status["lag_history"] == [[NOW_MS, 60, 0.0]]
    assert status["options"] == {"subscribe": "orders"}
    assert status["records_per_second"] == 38


def test_the_last_write_of_each_table_is_told(job: Job) -> None:
    for txid in (7, 8):
        write = TableWrite(txid=txid, table="t", sink="s", version=f"{2**62 + txid}")
        job.registry.record_commit(batch(txid=txid, tables=(write,)))

    (shown,) = job.status()["tables"]

    assert (shown["txid"], shown["version"]) == (8, str(2**62 + 8))


def test_an_id_that_just_started_is_starting_and_one_without_lag_is_idle(
    job: Job,
) -> None:
    assert job.status()["state"] == "starting"

    job.registry.record_stored(
        OffsetsStored(id="job", committed=ends({ORDERS_0: 5}), txid=3)
    )
    job.registry.record_log("job", {ORDERS_0: LogBounds(0, 5)})

    assert job.status()["state"] == "idle"


def test_a_batch_that_stays_in_flight_is_stalled_like_its_alert_says(job: Job) -> None:
    job.fly(NOW_MS)
    assert job.status()["state"] == "running"

    job.now_ms += STALLED_AFTER_MS + 1

    status = job.status()
    assert status["state"] == "stalled"
    assert status["in_flight_since_ms"] == NOW_MS
    assert status["in_flight"][0]["phase"] == "processing"


def test_a_job_that_was_away_for_long_is_not_stalled_when_it_starts(job: Job) -> None:
    old_ms = NOW_MS - 10 * STALLED_AFTER_MS
    job.registry.record_stored(
        OffsetsStored(
            id="job", committed=ends({ORDERS_0: 5}), txid=3, committed_at_ms=old_ms
        )
    )
    job.registry.record_log("job", {ORDERS_0: LogBounds(0, 500)})

    assert job.status()["state"] == "running"


def waits(job: Job, log: LogBounds, position: int = 5) -> None:
    job.registry.record_stored(
        OffsetsStored(
            id="job", committed=ends({ORDERS_0: position}), committed_at_ms=1_000
        )
    )
    job.registry.record_log("job", {ORDERS_0: log})


def test_a_record_that_came_a_moment_ago_does_not_make_an_idle_job_stalled(
    job: Job,
) -> None:
    waits(job, LogBounds(0, 5))
    job.now_ms += 10 * STALLED_AFTER_MS
    waits(job, LogBounds(0, 6))
    job.fly(job.now_ms)

    assert job.status()["state"] == "running"
    assert health([job.registry], job.now_ms)["healthy"]


def test_records_that_retention_deletes_next_are_the_worst_state(job: Job) -> None:
    """A minute must show that the job does not get away."""
    for _ in range(4):
        waits(job, LogBounds(0, 100, edge=50))
        assert job.status()["state"] == "running"
        job.now_ms += 15_000
    waits(job, LogBounds(2, 100, edge=51))

    reported = job.status()
    assert (reported["state"], reported["records_until_loss"]) == ("losing", 3)
    assert reported["topics"][0]["retention_edge"] == [51]


def test_a_backfill_that_gains_on_retention_is_not_losing(job: Job) -> None:
    for step in range(10):
        waits(job, LogBounds(0, 1_000, edge=900 + step), position=5 + 10 * step)
        job.now_ms += 15_000

    assert job.status()["state"] == "running"


def test_an_id_that_is_read_has_nothing_to_lose(job: Job) -> None:
    for _ in range(6):
        waits(job, LogBounds(0, 100, edge=50))
        job.now_ms += 15_000

    waits(job, LogBounds(0, 100), position=100)

    reported = job.status()
    assert (reported["state"], reported["records_until_loss"]) == ("idle", None)
    assert reported["topics"][0]["retention_edge"] == [None]


@pytest.mark.parametrize(("is_bounded", "state"), [(False, "gone"), (True, "idle")])
def test_an_id_that_waits_and_that_no_process_runs_is_gone(
    is_bounded: bool, state: str
) -> None:
    """Of a process that runs no job: ``kafka-tx lag --serve``."""
    job = Job()
    at = ends({ORDERS_0: 5})
    stored = OffsetsStored(
        id="job", committed=at, committed_at_ms=1_000, is_bounded=is_bounded
    )
    job.registry.record_stored(stored)
    job.registry.record_bounded(stored)
    job.registry.record_log("job", {ORDERS_0: LogBounds(0, 100)})
    job.now_ms += STALLED_AFTER_MS + 1_000

    job.registry.record_log("job", {ORDERS_0: LogBounds(0, 100)})

    assert job.status()["state"] == state


def told(job: Job, hang_ms: int = STALLED_AFTER_MS) -> tuple[bool, str]:
    found = health([job.registry], job.now_ms, hang_ms)
    (only,) = found["ids"]
    assert (only["id"], only["healthy"]) == ("job", found["healthy"])
    return found["healthy"], only["why"]


def test_a_hang_becomes_unhealthy_after_its_time(job: Job) -> None:
    job.fly(NOW_MS)
    job.now_ms += 60_000

    assert told(job) == (True, "")
    assert told(job, hang_ms=30_000) == (
        False,
        "nothing was committed for 30 s; a batch is in flight for 60 s, processing",
    )


def test_records_that_wait_until_there_are_enough_are_not_late(job: Job) -> None:
    """A batch in flight has no such time."""
    job.registry.record_start("job", "source", waits_ms=900_000)
    waits(job, LogBounds(0, 9))
    job.now_ms += 900_000 + STALLED_AFTER_MS
    waits(job, LogBounds(0, 9))
    assert (job.status()["state"], told(job)) == ("running", (True, ""))

    job.now_ms += 1_000
    waits(job, LogBounds(0, 9))
    assert (job.status()["state"], told(job)[0]) == ("stalled", False)

    job.registry.record_start("job", "source", waits_ms=900_000)
    job.fly(job.now_ms)
    job.now_ms += STALLED_AFTER_MS + 1
    assert (job.status()["state"], told(job)[0]) == ("stalled", False)


def test_a_wait_for_a_broker_stays_healthy(job: Job) -> None:
    job.fly(NOW_MS)
    job.registry.record_silence("job")
    job.now_ms += STALLED_AFTER_MS + 1

    is_healthy, why = told(job)
    assert is_healthy
    assert "no broker answers" in why

    job.registry.record_log("job", {ORDERS_0: LogBounds(0, 9)})
    assert not told(job)[0]


def test_one_silent_partition_among_others_excuses_no_hang(job: Job) -> None:
    job.fly(NOW_MS)
    second = TopicPartition("orders", 1)
    job.registry.record_log("job", {ORDERS_0: Unavailable("no leader")})
    job.registry.record_log("job", {second: LogBounds(0, 9)})
    job.now_ms += STALLED_AFTER_MS + 1
    assert not told(job)[0]

    job.registry.record_log("job", {second: Unavailable("no leader")})
    assert told(job)[0]


def test_an_error_is_unhealthy_without_its_text_until_the_next_start(job: Job) -> None:
    job.registry.record_stop("job", StateError("secret place"), NOW_MS)
    assert told(job) == (False, "an error ended it: state, KAFKA_TX_STATE")

    job.registry.record_silence("job")
    assert not told(job)[0]

    job.now_ms += 1
    job.start()
    assert told(job) == (True, "")


def test_one_that_was_fenced_or_stopped_is_healthy(job: Job) -> None:
    """A restart of the older process would take over from the newer one."""
    job.registry.record_stop("job", FencedError("a newer owner"), NOW_MS)
    assert told(job)[0]

    job.now_ms += 1
    job.start()
    job.registry.record_end("job")
    job.now_ms += 10 * STALLED_AFTER_MS
    assert told(job)[0]


def test_the_error_that_ended_it_is_told_until_it_starts_again(job: Job) -> None:
    job.registry.record_stop("job", StateError("the store\n  refuses"), NOW_MS)
    assert job.status()["state"] == "failed"

    job.now_ms += 1_000
    job.start()

    status = job.status()
    assert status["state"] == "starting"
    assert [e["reason"] for e in status["errors"]] == ["state"]
    assert status["errors"][0]["text"].endswith("the store refuses")


def test_one_that_was_fenced_says_so_and_keeps_what_it_did(job: Job) -> None:
    job.registry.record_commit(batch())
    job.registry.record_stop("job", FencedError("a newer owner"), NOW_MS)

    status = job.status()

    assert (status["state"], status["topics"], len(status["batches"])) == (
        "fenced",
        [],
        1,
    )


def test_an_error_of_another_query_with_its_id_ends_nothing_of_it(job: Job) -> None:
    job.registry.record_commit(batch())
    job.registry.record_stop("job", FencedError("x"), job.now_ms + 1, goes_on=True)

    running = job.status()
    job.registry.record_end("job")

    assert (running["ended_ms"], running["state"]) == (None, "running")
    assert running["topics"]
    assert [e["reason"] for e in running["errors"]] == ["fenced"]
    assert job.status()["state"] == "ended"


def test_one_that_ended_well_is_ended_and_nothing_is_in_flight(job: Job) -> None:
    job.fly(NOW_MS)

    job.registry.record_end("job")

    status = job.status()
    assert (status["state"], status["in_flight"]) == ("ended", [])


def test_the_same_error_read_of_the_store_again_is_told_once(job: Job) -> None:
    for at_ms in range(KEPT_ERRORS + 2):
        for _ in range(2):
            job.registry.record_last_stop("job", "state", at_ms, "refused")

    at = [e["at_ms"] for e in job.status()["errors"]]
    assert at == list(range(2, KEPT_ERRORS + 2))


def test_what_is_kept_is_bounded(job: Job) -> None:
    for number in range(2 * KEPT_BATCHES):
        ended = BatchEnded(
            number=number, ended_ms=NOW_MS, duration_ms=5, outcome="failed"
        )
        job.registry.record_attempt("job", ended)
        job.registry.record_log("job", {ORDERS_1: LogBounds(0, number)})

    assert len(job.status()["batches"]) == KEPT_BATCHES
    assert len(job.status()["lag_history"]) <= 1


def test_of_two_runs_of_an_id_the_last_one_is_told() -> None:
    older, newer = Job(), Job()
    older.start()
    older.registry.record_end("job")
    newer.now_ms += 1_000
    newer.start()

    for order in ([older, newer], [newer, older]):
        made = status([each.registry for each in order], newer.now_ms)
        assert [each["state"] for each in made["ids"]] == ["starting"]


def test_an_id_that_left_is_told_no_more(job: Job) -> None:
    job.registry.forget("job")

    assert status([job.registry], NOW_MS)["ids"] == []
