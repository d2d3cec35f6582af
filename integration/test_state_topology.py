"""A topology into maps in SQLite and PostgreSQL: state equals a recount."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from integration.cluster.records import Record
from integration.pausing import Life, kill_when_paused, run_to_end
from integration.sizes import size
from integration.state_job import urls_of
from integration.state_topology_job import POINTS, keep, maps_of
from kafka_tx.errors import FencedError, OutOfOrderError
from kafka_tx.model import TransactionAttempt

RECORDS, PARTITIONS, KEYS = size(300, 720), 3, 17


JOB = "integration.state_topology_job"


def dump(url, mode):
    """All maps of a database."""
    found = {}
    for name, state in maps_of(url, mode).items():
        table = state.to_arrow()
        keys, values = table["key"].to_pylist(), table["value"].to_pylist()
        found[name] = dict(zip(keys, values, strict=True))
        state.close()
    return found


def recount():
    records: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    newest = {}
    for n in range(RECORDS):
        key = f"k{n % KEYS}"
        records[key] += 1
        sums[key] += n
        newest[key] = n
    return {"records": dict(records), "sums": dict(sums), "newest": newest}


DIFFERENT = ("between-databases",)
"""One database has the batch, the other one has not: elsewhere both are as one of them.
The simulator, ``tests/properties/test_maps.py``, dies in the middle of batches."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "points", [DIFFERENT, pytest.param(POINTS, marks=pytest.mark.all)]
)
def test_killed_drivers_and_workers_leave_state_that_equals_a_recount(
    spark, kafka, topic, produce, postgresql_server, tmp_path, points
):
    jobs = {}
    for mode in ("transactional", "opaque"):
        name = topic(PARTITIONS)
        produce(name, [Record(str(n), key=f"k{n % KEYS}") for n in range(RECORDS)])
        urls = urls_of(tmp_path / f"{mode}.db", postgresql_server)
        jobs[mode] = (
            urls,
            [
                *(
                    "--servers",
                    kafka.bootstrap_servers,
                    "--topic",
                    name,
                    "--mode",
                    mode,
                ),
                *(word for url in urls for word in ("--url", url)),
            ],
        )

    for txid, point in enumerate(points, start=2):
        place = ["--point", point, "--txid", str(txid)]
        kill_when_paused(
            [
                Life(JOB, tmp_path / mode, [*given, *place])
                for mode, (_, given) in jobs.items()
            ]
        )

    for mode, (urls, given) in jobs.items():
        work = tmp_path / mode
        run_to_end(JOB, spark, work, *given)
        assert (work / "worker-died").exists()
        assert [dump(url, mode) for url in urls] == [recount(), recount()]
        replay_by_hand(work, urls, mode)
        assert [dump(url, mode) for url in urls] == [recount(), recount()]


def replay_by_hand(work, urls, mode):
    """Commit every batch again: as it was, and as a new attempt of the last owner."""
    batches = [pickle.loads(file.read_bytes()) for file in work.glob("batch-*")]
    last = max(attempt for attempt, _ in batches)
    assert last.txid >= RECORDS // 60
    for attempt, rows in batches:
        for attempt_id in (attempt.attempt_id, last.attempt_id + attempt.txid):
            replay = TransactionAttempt(attempt.txid, attempt_id)
            if replay.epoch < last.epoch:
                with pytest.raises(FencedError):
                    keep(urls, mode, replay, rows)
            elif replay.txid < last.txid:
                with pytest.raises(OutOfOrderError):
                    keep(urls, mode, replay, rows)
            else:
                keep(urls, mode, replay, rows)
