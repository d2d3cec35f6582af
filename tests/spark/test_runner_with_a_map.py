"""What a topology tells its maps: whose txid it is, and what stands for its records."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_tx.errors import AnotherNumberingError, ConfigError, ReplayDiffersError
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.topology.declare.memory_spouts import (
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
)
from kafka_tx.transactions.ownership.memory import MemorySnapshot
from tests.spark.test_transactional_runner import (
    WITHIN_S,
    Table,
    World,
    store_of,
    wait_for,
)


class InMap(Table):
    """Commits into a map, as users do."""

    def __init__(self, state):
        super().__init__()
        self.state = state

    def commit(self, attempt, counts):
        self.calls.append(attempt)
        table = pa.table({"key": list(counts), "value": list(counts.values())})
        self.state.update(attempt, table)

    def total(self):
        return sum(self.state.to_arrow()["value"].to_pylist())


@pytest.fixture
def jobs_with(tmp_path):
    made = []

    def make(spout, state):
        jobs = World(spout, rows=10)
        total = state(f"sqlite:///{tmp_path}/map.db", "total")
        jobs.table = InMap(total)
        made.append((jobs, total))
        return jobs

    yield make
    for jobs, total in made:
        jobs.end()
        total.close()


def run_to_the_end(jobs):
    handle = jobs.start()
    assert handle.process_all_available(WITHIN_S)
    handle.stop(timeout_s=WITHIN_S)


def refusal_of(jobs):
    handle = jobs.start()
    wait_for(lambda: not handle.isActive)
    return handle.exception()


def test_a_store_that_is_one_txid_older_is_refused_before_records_are_skipped(
    jobs_with,
):
    """The txid is planned anew, with other records than the map has counted for it."""
    jobs = jobs_with(MemoryTransactionalSpout, TransactionalMap)
    run_to_the_end(jobs)
    older = store_of(jobs).snapshot()
    jobs.spout.append(0, [("a",)] * 2)
    run_to_the_end(jobs)
    assert jobs.table.total() == 12

    store_of(jobs).restore(older)
    jobs.spout.append(0, [("b",)] * 2)
    refusal = refusal_of(jobs)

    assert isinstance(refusal.cause, ReplayDiffersError), refusal
    assert jobs.table.total() == 12
    assert len({attempt.plan for attempt in jobs.table.calls}) == 3
    assert all(attempt.plan for attempt in jobs.table.calls)


def test_a_store_that_begins_anew_is_refused_by_name(jobs_with):
    jobs = jobs_with(MemoryTransactionalSpout, TransactionalMap)
    run_to_the_end(jobs)

    store_of(jobs).restore(MemorySnapshot(0, {}))
    refusal = refusal_of(jobs)

    assert isinstance(refusal.cause, AnotherNumberingError), refusal
    assert "('jobs')" in str(refusal.cause)
    assert jobs.table.total() == 10


def test_an_opaque_topology_is_refused_by_a_map_that_takes_nothing_back(jobs_with):
    jobs = jobs_with(OpaqueMemoryTransactionalSpout, TransactionalMap)

    refusal = refusal_of(jobs)

    assert isinstance(refusal.cause, ConfigError), refusal
    assert "attempt 1:1000000000001 of 'jobs' is opaque" in str(refusal.cause)
    assert jobs.table.total() == 0


@pytest.mark.parametrize(
    "spout", [MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout]
)
def test_an_opaque_map_takes_both(jobs_with, spout):
    jobs = jobs_with(spout, OpaqueMap)

    run_to_the_end(jobs)

    assert jobs.table.total() == 10
    (mode,) = {attempt.mode for attempt in jobs.table.calls}
    assert mode == jobs.spout.mode
    assert {bool(attempt.plan) for attempt in jobs.table.calls} == {
        mode == "transactional"
    }
