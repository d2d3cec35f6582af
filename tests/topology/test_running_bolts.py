import pickle

import pyarrow as pa
import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.topology.declare.graph import Component, ComponentKind
from kafka_tx.topology.rows.blocks import to_rows
from kafka_tx.topology.rows.fields import Fields
from kafka_tx.topology.run.running_bolts import Outlet

COMPONENT = Component(
    "split",
    ComponentKind.BASIC,
    outputs={
        "default": Fields.parse("word string, n int"),
        "errors": Fields(("error",)),
    },
)
BATCH = pa.RecordBatch.from_pydict({"n": pa.array([7], pa.int32()), "word": ["arrow"]})


@pytest.fixture
def outlet():
    return Outlet(COMPONENT, {"default", "errors"})


def taken(outlet):
    return [(stream, to_rows(block)) for stream, block in outlet.take()]


def test_what_was_emitted_is_taken_once_by_stream_and_in_order(outlet):
    outlet.emit(("a", 1))
    outlet.emit(["b", 2])
    outlet.emit(("bad",), stream="errors")

    assert taken(outlet) == [
        ("default", [("a", 1), ("b", 2)]),
        ("errors", [("bad",)]),
    ]
    assert taken(outlet) == []
    assert outlet.rows == 3


def test_rows_and_record_batches_keep_their_order(outlet):
    outlet.emit(("first", 1))
    outlet.emit_arrow(BATCH)
    outlet.emit(("last", 9))

    rows = [row for _, block in taken(outlet) for row in block]

    assert rows == [("first", 1), ("arrow", 7), ("last", 9)]


def test_a_table_is_emitted_as_its_batches(outlet):
    outlet.emit_arrow(pa.Table.from_batches([BATCH, BATCH]))

    assert len(taken(outlet)) == 2


def test_empty_batches_are_not_sent(outlet):
    outlet.emit_arrow(BATCH.slice(0, 0))

    assert taken(outlet) == []


def test_streams_that_nobody_reads_are_checked_and_dropped():
    outlet = Outlet(COMPONENT, {"default"})
    outlet.emit(("bad",), stream="errors")

    assert taken(outlet) == []
    with pytest.raises(ConfigError):
        outlet.emit(("bad", 2), stream="errors")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (("a",), "emitted 1 values on stream 'default'; legal: one for each of its 2"),
        (("a", 1, 2), "'tx' is put before them by itself"),
        ("ab", "emitted 'ab'; legal: a tuple or list"),
        (7, "emitted 7; legal: a tuple or list"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_the_component(outlet, values, reason):
    with pytest.raises(ConfigError) as refused:
        outlet.emit(values)

    assert "component 'split'" in str(refused.value)
    assert reason in str(refused.value)


def test_an_undeclared_stream_is_refused_with_those_there_are(outlet):
    for emit in (outlet.emit, outlet.emit_arrow):
        with pytest.raises(ConfigError, match=r"stream 'oops'; legal: its\s+declared"):
            emit(BATCH, stream="oops")


def test_a_component_without_fields_cannot_emit():
    outlet = Outlet(Component("sink", ComponentKind.BATCH), ())

    with pytest.raises(ConfigError, match="Set 'fields' or 'streams' on the bolt"):
        outlet.emit(())


def test_what_is_not_taken_yet_survives_travelling(outlet):
    outlet.emit(("a", 1))
    outlet.emit_arrow(BATCH)

    again = pickle.loads(pickle.dumps(outlet))
    again.emit(("z", 3))

    rows = [row for _, block in taken(again) for row in block]
    assert rows == [("a", 1), ("arrow", 7), ("z", 3)]
