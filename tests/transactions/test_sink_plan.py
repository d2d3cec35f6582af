"""How many parts a sink's batch has."""

from kafka_tx.transactions.sink_parts import SinkPlan


def test_batches_from_a_txid_on_have_the_new_parts_and_earlier_ones_the_former():
    plan = SinkPlan(parts=2, since=5, before=4)

    assert [plan.parts_of(txid) for txid in (4, 5, 6)] == [4, 2, 2]


def test_a_plan_is_read_as_it_was_written_also_with_fields_of_later_versions():
    plan = SinkPlan(2, 5, 4, "orders", 3)

    assert SinkPlan.of_fields({**plan.as_fields(), "later": 1}) == plan
