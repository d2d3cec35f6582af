"""How many parts a sink's batch has."""

from dataclasses import replace

import pytest

from kafka_tx.errors import AnotherNumberingError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.sink_memory import Entry
from kafka_tx.sinks.sink_parts import Digest, Marker, SinkPlan, Wish, plan_of, planned


def test_batches_from_a_txid_on_have_the_new_parts_and_earlier_ones_the_former():
    plan = SinkPlan(parts=2, since=5, before=4)

    assert [plan.parts_of(txid) for txid in (4, 5, 6)] == [4, 2, 2]


def test_a_plan_is_read_as_it_was_written_also_with_fields_of_later_versions():
    plan = SinkPlan(2, 5, 4, "orders", 3)

    assert SinkPlan.of_fields({**plan.as_fields(), "later": 1}) == plan


def test_an_announcement_is_told_from_the_marker_it_announces():
    attempt = TransactionAttempt.of(7, epoch=2, number=0)
    marker = Entry("orders", Marker(0, attempt, 10, Digest(), "run"))

    announced = marker.announced()

    assert (marker.is_announcement, announced.is_announcement) == (False, True)
    assert (announced.txid, announced.name) == (0, marker.name)


def test_a_plan_that_was_lost_is_that_of_the_newest_marker():
    """Its batch may be there in part, in so many parts."""
    written = [
        Marker(n, TransactionAttempt(txid, 9, "orders", numbering="one"), parts=2)
        for n, txid in enumerate((6, 7))
    ]
    again = TransactionAttempt.of(7, epoch=2, number=1)
    again = replace(again, source="orders", numbering="one")

    plan = planned(plan_of(written), Wish("sink", again, parts=4), 7)

    assert [plan.parts_of(txid) for txid in (7, 8)] == [2, 4]
    assert plan_of([]) is None
    assert plan_of([Marker(0, again)]) is None
    other = replace(again, numbering="two")
    with pytest.raises(AnotherNumberingError):
        planned(plan_of(written), Wish("sink", other, parts=4), 7)
