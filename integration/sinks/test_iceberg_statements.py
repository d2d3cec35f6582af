"""Statements on Iceberg tables: each batch once, whatever comes between two tries."""

from __future__ import annotations

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

from integration.bounded import DeadError
from integration.sinks import iceberg_tables
from integration.sinks.iceberg_tables import EXPIRE
from integration.sinks.table_driver import merge
from integration.sinks.table_suite import dying_at, forget, nothing_to_do
from kafka_tx.errors import ConfigError, FencedError
from kafka_tx.spark.sinks import iceberg
from kafka_tx.spark.sinks.formats import Batch
from kafka_tx.testing import Crash
from tests.conformance.sink_suite import attempt

warehouse, rest, lake = (
    iceberg_tables.warehouse,
    iceberg_tables.rest,
    iceberg_tables.lake,
)
table, counts = iceberg_tables.table, iceberg_tables.counts


def test_statements_without_effect_count_and_leave_no_branch(counts):
    for txid, statement in ((1, nothing_to_do), (2, nothing_at_all)):
        assert counts.count(attempt(txid), "z", statement=statement)
        assert not counts.count(attempt(txid, 2), "z", statement=pytest.fail)

    assert counts.counted() == {}
    assert counts.branches() == []


def nothing_at_all(df, target):
    df.sparkSession.table(target).collect()


def test_several_statements_are_published_together(lake, counts):
    def twice(df, target):
        merge(df, target)
        assert counts.counted() == {}
        merge(df, target)

    assert counts.count(attempt(1), "a", statement=twice)

    assert counts.counted() == {"a": 2}


@pytest.mark.parametrize("inside", ["_open", "_publish"])
def test_merges_that_die_at_any_step_leave_the_batch_to_the_next(counts, inside):
    for step in itertools.count():
        died = False
        try:
            with dying_at(step, iceberg.IcebergStatement, inside):
                counts.count(attempt(step + 1, 2 * step + 1), "a")
        except Crash:
            died = True
        forget()
        counts.count(attempt(step + 1, 2 * step + 2), "a")
        assert counts.counted() == {"a": step + 1}
        assert counts.branches() == []
        if not died:
            break
    assert step > 3


def test_a_merge_whose_driver_was_frozen_counts_nothing(counts):
    counts.count(attempt(1), "a")

    def wakes(df, target):
        assert counts.count(attempt(2, epoch=2), "a")
        merge(df, target)

    with pytest.raises(FencedError):
        counts.count(attempt(2), "a", statement=wakes)

    assert counts.counted() == {"a": 2}


def test_a_merge_into_a_branch_that_was_dropped_meanwhile_counts_nothing(counts):
    """Iceberg lets such a branch begin anew, at the newest version of the table."""
    counts.count(attempt(1), "a")

    def wakes(df, target):
        merge(df, target)
        branch = target.rpartition("branch_")[2].rstrip("`")
        assert counts.count(attempt(2, epoch=2), "a")
        counts.spark.sql(f"REFRESH TABLE {counts.name}")
        assert counts.branches() == []
        table = iceberg.IcebergStatement(Batch(df, counts.name, "default"))._loaded()
        table.manageSnapshots().createBranch(branch).commit()
        merge(df, target)

    with pytest.raises(FencedError):
        counts.count(attempt(2), "a", statement=wakes)

    assert counts.counted() == {"a": 2}


def test_a_branch_that_is_removed_before_it_is_published_begins_again(counts):
    """Expiry may take it: it begins at a version that may be old."""
    begun = []

    def dropped(df, target):
        merge(df, target)
        begun.append(target)
        if len(begun) == 1:
            branch = target.rpartition("branch_")[2].rstrip("`")
            df.sparkSession.sql(f"ALTER TABLE {counts.name} DROP BRANCH `{branch}`")

    for txid in (1, 2):
        begun.clear()
        assert counts.count(attempt(txid), "a", statement=dropped)
        assert len(begun) == 2

    assert counts.counted() == {"a": 2}
    assert counts.branches() == []


def test_a_driver_that_was_frozen_before_it_publishes_publishes_nothing(counts):
    counts.count(attempt(1), "a")
    publish = iceberg.IcebergStatement._publish

    def overtaken(self, given, branch):
        with mock.patch.object(iceberg.IcebergStatement, "_publish", publish):
            assert counts.count(attempt(2, epoch=2), "a")
        publish(self, given, branch)

    frozen = mock.patch.object(iceberg.IcebergStatement, "_publish", overtaken)
    with frozen, pytest.raises(FencedError):
        counts.count(attempt(2), "a")

    assert counts.counted() == {"a": 2}


def test_merges_of_one_txid_at_the_same_time_are_one(counts):
    def one(number):
        def each(df, target):
            view = f"batch_{number}"
            df.createOrReplaceTempView(view)
            df.sparkSession.sql(f"INSERT INTO {target} SELECT * FROM {view}")

        try:
            return counts.count(attempt(1, number=number), "a", statement=each)
        except FencedError:
            return False

    with ThreadPoolExecutor(2) as pool:
        wrote = list(pool.map(one, (1, 2)))

    assert sorted(wrote) == [False, True]
    assert counts.counted() == {"a": 1}


def test_a_merge_is_made_again_where_another_writer_was_faster(lake, counts):
    others = ["x", "y"]

    def late(df, target):
        if others:
            lake.sql(f"INSERT INTO {counts.name} VALUES ('{others.pop()}', 1)")
        merge(df, target)

    assert counts.count(attempt(1), "a", "x", statement=late)

    assert counts.counted() == {"a": 1, "x": 2, "y": 1}


def test_a_merge_is_known_after_expiry_and_counted_again_after_a_rollback(lake, counts):
    counts.count(attempt(1), "a")
    counts.count(attempt(2), "a")
    before, _ = counts.snapshots()[-2:]
    lake.sql(f"INSERT INTO {counts.name} VALUES ('x', 1)")
    counts.call(EXPIRE)
    forget()
    assert not counts.count(attempt(2, epoch=2), "a", statement=pytest.fail)

    counts.count(attempt(3, epoch=2), "a")
    before, _ = counts.snapshots()[-2:]
    counts.call(f"rollback_to_snapshot('{{}}', {before})")
    forget()
    assert counts.count(attempt(3, epoch=3), "a")
    assert counts.counted() == {"a": 3, "x": 1}


def test_a_rollback_past_merged_batches_is_told_and_later_ones_are_counted(
    counts, caplog
):
    for txid in (1, 2, 3):
        counts.count(attempt(txid), "a")
    counts.call(f"rollback_to_snapshot('{{}}', {counts.snapshots()[-3]})")
    forget()

    assert counts.count(attempt(4, epoch=2), "a")
    assert "was rolled back: rows of its last batches before txid 4" in caplog.text
    assert counts.counted() == {"a": 2}


def test_an_error_of_the_statement_leaves_nothing(counts):
    def fails(df, target):
        merge(df, target)
        raise DeadError

    with pytest.raises(DeadError):
        counts.count(attempt(1), "a", statement=fails)
    assert counts.counted() == {}

    assert counts.count(attempt(1, epoch=2), "a")
    assert counts.counted() == {"a": 1}


def test_a_statement_on_the_table_itself_is_refused_and_the_advice_is_safe(counts):
    def past_the_target(df, _):
        merge(df, counts.name)

    with pytest.raises(ConfigError, match="has left its target as it was"):
        counts.count(attempt(1), "z", statement=past_the_target)
    counts.spark.sql(f"DELETE FROM {counts.name}")
    counts.count(attempt(1), "a")

    with pytest.raises(ConfigError, match="has left its target as it was") as error:
        counts.count(attempt(2), "a", statement=past_the_target)
    (advice,) = re.findall(r"CALL `lake`.system.(\w+)", str(error.value))
    before, _ = counts.snapshots()[-2:]
    counts.call(f"{advice}('{{}}', {before})")
    forget()

    assert counts.count(attempt(2, epoch=2), "a")
    assert counts.counted() == {"a": 2}
