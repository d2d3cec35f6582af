"""How many parts a sink's batch has."""

from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.sink_memory import Entry
from kafka_tx.sinks.sink_parts import Digest, Marker, SinkPlan


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
