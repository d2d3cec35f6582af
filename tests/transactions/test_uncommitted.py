"""Metadata chains: what is stored when, and what a failure forgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_tx.config import Mode
from kafka_tx.errors import ConfigError, OutOfOrderError, StateCorruptedError
from kafka_tx.model import (
    BatchMetadata,
    LogPosition,
    OffsetRange,
    TopicPartition,
    TransactionAttempt,
)
from kafka_tx.transactions.coordinator.uncommitted import Change, MetadataChain
from tests.transactions import drive
from tests.transactions.drive import meta, opened


def chain(mode: Mode, currtx: int | None, *txids: int) -> MetadataChain[Any]:
    values = {f"meta/{txid}": meta(txid, txid) for txid in txids}
    if currtx is not None:
        values["currtx"] = drive.currtx(currtx)
    return MetadataChain(mode, *opened(values))


def planned(txid: int) -> tuple[TransactionAttempt, str]:
    return TransactionAttempt(txid, 7), f"plan {txid}"


@pytest.mark.parametrize(
    ("mode", "currtx", "txids", "expected"),
    [
        ("transactional", None, (), (1, 0)),
        ("transactional", None, (1, 2), (1, 2)),
        ("transactional", 4, (3,), (4, 3)),
        ("transactional", 4, (3, 4, 5), (4, 5)),
        ("opaque", None, (), (1, 0)),
        ("opaque", 4, (3, 4, 5), (4, 3)),
    ],
)
def test_opening_tells_the_lowest_uncommitted_and_the_greatest_known_txid(
    mode, currtx, txids, expected
):
    found = chain(mode, currtx, *txids)

    assert (found.state.txid + 1, found.newest) == expected


def test_a_transactional_plan_is_there_when_it_is_stored():
    transactional = chain("transactional", 4, 3)

    change = transactional.keep(*planned(4))

    assert list(change.put) == ["meta/4"]
    assert not transactional.has(4)
    transactional.apply(change)
    assert transactional.has(4)
    assert transactional.metadata(4) == "plan 4"
    assert transactional.attempt(4) is None


def test_a_transactional_plan_survives_a_failure():
    transactional = chain("transactional", 4, 3, 4, 5)

    transactional.drop_from(4)

    assert transactional.has(5)


def test_a_transactional_plan_out_of_turn_is_refused():
    with pytest.raises(OutOfOrderError):
        chain("transactional", 4, 3).keep(*planned(5))


def test_an_opaque_plan_is_there_at_once_for_its_attempt_and_stored_with_its_commit():
    opaque = chain("opaque", 4, 3)

    assert opaque.keep(*planned(4)) == Change()
    assert (opaque.metadata(3), opaque.metadata(4)) == (3, "plan 4")
    assert opaque.attempt(4) == TransactionAttempt(4, 7)

    record = opaque.record(4)
    assert list(record.put) == ["currtx", "meta/4"]
    assert record.delete == ("meta/3",)
    opaque.apply(record)
    assert not opaque.has(4)
    assert opaque.metadata(4) == "plan 4"


def test_the_first_opaque_plan_tells_later_ones_and_owners_where_it_begins():
    a, b = (TopicPartition("t", number) for number in range(2))
    given = BatchMetadata(
        1,
        (OffsetRange(a, 7, 9, "new", 3),),
        {"t": "new"},
        mode="opaque",
        skipped={(a, "retention"): 6},
        awaited=(b,),
    )
    begins = replace(given, txid=0, ranges=(OffsetRange(a, 7, 7, "new", 3),))
    attempt, opaque = TransactionAttempt(1, 7), chain("opaque", None)

    change = opaque.keep(attempt, given)
    assert list(change.put) == ["meta/1"]
    assert not opaque.has(1)  # not before it is stored
    opaque.apply(change)
    assert opaque.has(1)
    assert opaque.metadata(1) == given

    opaque.drop_from(1)
    assert not opaque.has(1)
    assert opaque.start == begins
    assert MetadataChain[Any]("opaque", *opened(change.put)).start == begins
    assert opaque.keep(attempt, replace(given, skipped={})) == Change()
    assert opaque.has(1)
    opaque.apply(opaque.record(1))
    assert not opaque.metadata(1).skipped


def test_an_opaque_commit_takes_with_it_what_was_planned_from_another_batch():
    """By a transactional owner before, and for one that may come again."""
    opaque = chain("opaque", 4, 3, 4, 5)
    opaque.keep(*planned(4))

    opaque.apply(record := opaque.record(4))

    assert record.delete == ("meta/3", "meta/5")
    assert chain("transactional", 5, 4).newest == 4
    opaque.keep(*planned(5))
    assert opaque.record(5).delete == ("meta/4",)


def test_a_failure_forgets_an_opaque_plan_and_later_ones():
    opaque = chain("opaque", 4, 3)
    for txid in (4, 5, 6):
        opaque.keep(*planned(txid))

    opaque.drop_from(5)

    assert [opaque.has(txid) for txid in (4, 5, 6)] == [True, False, False]


def test_an_unreadable_record_stops_the_opening():
    with pytest.raises(StateCorruptedError, match="'meta/1' of id 'jobs'"):
        opened({"meta/1": "{"})


# --- what is in memory and what is in the store ---


@pytest.mark.parametrize("metadata", [None, 0, "x", [1, {"a": None}], {"ranges": {}}])
def test_what_a_spout_plans_comes_back_from_the_store_as_it_was(metadata):
    found = chain("transactional", None)

    found.apply(change := found.keep(TransactionAttempt(1, 7), metadata))

    assert found.has(1)
    assert found.metadata(1) == metadata
    again = MetadataChain[Any]("transactional", *opened(change.put))
    assert again.metadata(1) == metadata


def test_what_a_kafka_spout_plans_comes_back_with_the_log_of_each_range():
    """Also where one partition is still of the topic that had the name before."""
    a, b, c = (TopicPartition("t", number) for number in range(3))
    planned = BatchMetadata(
        1,
        (
            OffsetRange(a, 0, 4, "new", 3),
            OffsetRange(b, 7, 7, "old"),
            OffsetRange(c, 1, 2, "new", 5),
        ),
        {"t": "new"},
        skipped={(a, "retention"): 6},
    )
    found = chain("transactional", None)

    found.apply(found.keep(TransactionAttempt(1, 7), planned))

    assert found.metadata(1) == planned
    assert found.metadata(1).positions() == planned.positions()
    assert planned.positions()[b] == LogPosition(7, "old")


def test_what_is_there_is_not_written_again():
    assert chain("transactional", 4, 3, 4).keep(*planned(4)) == Change()


@pytest.mark.parametrize("name", ["x", "0", "-1", "01", "1/2", "", "9" * 5000])
def test_a_path_that_is_no_txid_is_named(name):
    stored = {"meta/1": meta(1, 1), f"meta/{name}": meta(1, 1)}
    with pytest.raises(StateCorruptedError, match="its name is no txid"):
        opened(stored)
    del stored[f"meta/{name}"]

    found = MetadataChain[Any]("transactional", *opened(stored))
    assert found.has(1)


def test_a_damaged_record_is_named_with_the_repair():
    damaged = {"meta/1": meta(1, 5).replace('"metadata":5', '"metadata":6')}

    with pytest.raises(StateCorruptedError, match=r"'meta/1' of id 'jobs'.*repair"):
        opened(damaged)


def test_metadata_that_json_would_change_is_refused():
    with pytest.raises(ConfigError, match="read back as something else"):
        chain("transactional", None).keep(TransactionAttempt(1, 7), (1, 2))


def test_what_applies_twice_applies_once():
    found = chain("transactional", 4, 3, 4)
    change = found.keep(*planned(5))

    found.apply(change)
    found.apply(change)

    assert [found.has(txid) for txid in (3, 4, 5, 6)] == [True, True, True, False]
    found.apply(done := found.record(4))
    found.apply(done)
    assert done == Change({"currtx": drive.currtx(5)}, ("meta/3",))
    assert not found.has(3)
