import pyarrow as pa
import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.topology.declare.graph import Input
from kafka_tx.topology.declare.groupings import Grouping, GroupingKind
from kafka_tx.topology.plan.physical import Edge
from kafka_tx.topology.rows.fields import Fields
from kafka_tx.topology.run.messages import Outgoing

FIELDS = Fields.parse("word string, n int")


def outgoing(kind=GroupingKind.SHUFFLE, tasks=1, as_arrow=False):
    grouping = Grouping(kind, ("word",) if kind is GroupingKind.FIELDS else ())
    edge = Edge("count", Input("split", grouping), False, tasks, as_arrow)
    return Outgoing(edge, FIELDS, 0)


def test_plain_rows_wait_until_a_packet_is_worth_it():
    out = outgoing()

    assert list(out.put([("a", 1)])) == []
    full = list(out.put([("b", 2)] * 8192))
    assert [len(packet.block) for packet in full] == [8193]
    assert list(out.flush()) == []


def test_the_last_rows_are_flushed_in_the_order_of_tasks():
    out = outgoing(GroupingKind.ALL, 3)
    list(out.put([("a", 1)]))

    packets = list(out.flush())

    assert [(p.target, p.task, p.source, p.stream) for p in packets] == [
        ("count", task, "split", "default") for task in range(3)
    ]
    assert [p.block for p in packets] == [[("a", 1)]] * 3


def test_a_record_batch_goes_at_once_behind_the_rows_before_it():
    out = outgoing()
    list(out.put([("a", 1)]))

    first, second = out.put(pa.RecordBatch.from_pydict({"word": ["b"], "n": [2]}))

    assert first.block == [("a", 1)]
    assert second.block.to_pydict() == {"word": ["b"], "n": [2]}


def test_rows_for_a_dataframe_travel_as_arrow_with_the_declared_types():
    (packet,) = outgoing(GroupingKind.SHUFFLE, 1, as_arrow=True).put([("a", 1)])

    assert packet.block.schema == FIELDS.schema


def test_rows_that_do_not_have_the_declared_types_are_refused():
    out = outgoing(as_arrow=True)

    with pytest.raises(ConfigError, match="component 'split' emitted values of field"):
        list(out.put([("a", "one")]))
