"""Metadata chains: what is stored when, and what a failure forgets."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_tx.config import Mode
from kafka_tx.errors import OutOfOrderError, StateCorruptedError
from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.chain import (
    MetadataChain,
    Opened,
    Planned,
    currtx_codec,
    open_chain,
)
from kafka_tx.transactions.rotating import Change, RecordCodec

META = RecordCodec[Any]("meta", "memory:", "jobs")


def opened(currtx: int | None, *txids: int) -> Opened:
    values = {f"meta/{txid}": META.encode(txid) for txid in txids}
    codec = currtx_codec(Opened(1, {}, "memory:", "jobs"))
    if currtx is not None:
        values["currtx"] = codec.encode(currtx)
    return Opened(1, values, "memory:", "jobs")


def chain(mode: Mode, currtx: int, *txids: int) -> MetadataChain[Any]:
    return open_chain(mode, META, opened(currtx, *txids))[2]


def planned(txid: int) -> Planned[Any]:
    return Planned(TransactionAttempt(txid, 7), f"plan {txid}")


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
    assert open_chain(mode, META, opened(currtx, *txids))[:2] == expected


def test_a_transactional_plan_is_there_when_it_is_stored():
    transactional = chain("transactional", 4, 3)

    change = transactional.keep(planned(4))

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
        chain("transactional", 4, 3).keep(planned(5))


def test_an_opaque_plan_is_there_at_once_for_its_attempt_and_stored_with_its_commit():
    opaque = chain("opaque", 4, 3)

    assert opaque.keep(planned(4)) == Change()
    assert (opaque.metadata(3), opaque.metadata(4)) == (3, "plan 4")
    assert opaque.attempt(4) == TransactionAttempt(4, 7)

    record = opaque.record(4)
    assert list(record.put) == ["meta/4"]
    assert record.delete == ("meta/3",)
    opaque.apply(record)
    assert not opaque.has(4)
    assert opaque.metadata(4) == "plan 4"


def test_an_opaque_commit_takes_with_it_what_was_planned_from_another_batch():
    """By a transactional owner before, and for one that may come again."""
    opaque = chain("opaque", 4, 3, 4, 5)
    opaque.keep(planned(4))

    opaque.apply(record := opaque.record(4))

    assert record.delete == ("meta/3", "meta/5")
    assert open_chain("transactional", META, opened(5, 4))[:2] == (5, 4)
    opaque.keep(planned(5))
    assert opaque.record(5).delete == ("meta/4",)


def test_a_failure_forgets_an_opaque_plan_and_later_ones():
    opaque = chain("opaque", 4, 3)
    for txid in (4, 5, 6):
        opaque.keep(planned(txid))

    opaque.drop_from(5)

    assert [opaque.has(txid) for txid in (4, 5, 6)] == [True, False, False]


def test_an_unreadable_record_stops_the_opening():
    damaged = Opened(1, {"meta/1": "{"}, "memory:", "jobs")

    with pytest.raises(StateCorruptedError, match="'meta/1' of id 'jobs'"):
        open_chain("opaque", META, damaged)
