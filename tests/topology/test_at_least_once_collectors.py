import numpy as np
import pyarrow as pa
import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.topology.at_least_once.lineage import Lineage
from kafka_tx.topology.at_least_once.running_bolts import BasicOutlet, RichOutlet
from kafka_tx.topology.declare.graph import Component, ComponentKind
from kafka_tx.topology.rows.blocks import to_rows
from kafka_tx.topology.rows.fields import Fields
from kafka_tx.topology.rows.row import row_class

COMPONENT = Component(
    "split",
    ComponentKind.BASIC,
    outputs={"default": Fields.parse("n int"), "odd": Fields(("n",))},
)
GIVEN = Lineage(np.array([50, 60, 70]))
NOBODY = np.empty(0, np.int64)
ROW = row_class("spout", "default", ("n",))


def batch(*numbers):
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int32())})


def pieces(found):
    return [
        (
            piece.stream,
            [
                (row[0], piece.lineage.roots[piece.lineage.of(number)].tolist())
                for number, row in enumerate(to_rows(piece.block))
            ],
        )
        for piece in found
    ]


@pytest.fixture
def outlet():
    outlet = BasicOutlet(COMPONENT, {"default", "odd"})
    outlet.begin(3)
    return outlet


def test_rows_come_from_the_row_the_bolt_is_at_work_on(outlet):
    outlet.row = 2
    outlet.emit((1,))
    outlet.emit((9,), stream="odd")
    outlet.row = 0
    outlet.emit((2,))
    outlet.emit_arrow(batch(3, 4))

    assert pieces(outlet.collect(GIVEN, NOBODY)) == [
        ("default", [(1, [70]), (2, [50])]),
        ("default", [(3, [50]), (4, [50])]),
        ("odd", [(9, [70])]),
    ]
    assert outlet.collect(GIVEN, NOBODY) == []
    assert outlet.emitted == 5


def test_what_a_failed_row_emitted_is_dropped(outlet):
    for row in range(3):
        outlet.row = row
        outlet.emit((row,))
        outlet.emit_arrow(batch(row * 10))

    failed = np.array([0, 2])

    assert pieces(outlet.collect(GIVEN, failed)) == [
        ("default", [(1, [60])]),
        ("default", [(10, [60])]),
    ]


def test_a_batch_of_the_same_length_has_a_row_for_each_row(outlet):
    outlet.emit_arrow(batch(1, 2, 3))

    assert pieces(outlet.collect(GIVEN, NOBODY)) == [
        ("default", [(1, [50]), (2, [60]), (3, [70])])
    ]


@pytest.mark.parametrize("rows", [[2, 2, 0, 1], np.array([2, 2, 0, 1])])
def test_a_bolt_may_say_where_its_rows_come_from(outlet, rows):
    outlet.emit_arrow(batch(1, 2, 3, 4), rows=rows)

    assert pieces(outlet.collect(GIVEN, NOBODY)) == [
        ("default", [(1, [70]), (2, [70]), (3, [50]), (4, [60])])
    ]


def test_a_batch_of_another_length_needs_to_say_so(outlet):
    with pytest.raises(ConfigError, match="emitted 2 rows of a batch of 3; say which"):
        outlet.emit_arrow(batch(1, 2))


@pytest.mark.parametrize("rows", [[0], [0, 3], [-1, 0]])
def test_origins_that_cannot_be_are_refused(outlet, rows):
    with pytest.raises(ConfigError, match="an index from 0 to 2"):
        outlet.emit_arrow(batch(1, 2), rows=rows)


def test_a_single_row_of_a_whole_batch_comes_from_all_its_rows(outlet):
    outlet.emit((7,))
    outlet.emit_arrow(batch(8), rows=[1])

    assert pieces(outlet.collect(GIVEN, NOBODY)) == [
        ("default", [(7, [50, 60, 70])]),
        ("default", [(8, [60])]),
    ]


def test_what_is_discarded_is_gone(outlet):
    outlet.emit((7,))
    outlet.discard()
    outlet.row = 1
    outlet.emit((8,))

    assert pieces(outlet.collect(GIVEN, NOBODY)) == [("default", [(8, [60])])]


def test_streams_that_nobody_reads_do_not_shift_the_others():
    outlet = BasicOutlet(COMPONENT, {"default"})
    outlet.begin(3)
    outlet.row = 0
    outlet.emit((9,), stream="odd")
    outlet.row = 1
    outlet.emit((1,))

    assert pieces(outlet.collect(GIVEN, NOBODY)) == [("default", [(1, [60])])]


# --- rich bolts ---


@pytest.fixture
def rich():
    """A rich outlet: one row was left open, the other is at hand; what was ended."""
    rows = [ROW((1,)), ROW((2,))]
    ended: list = []
    outlet = RichOutlet(
        COMPONENT, {"default"}, lambda *reported: ended.append(reported)
    )
    outlet.begin(Lineage.of_each([(50,), (60, 70)]))
    outlet.give(rows[0], 0)
    outlet.leave()
    outlet.give(rows[1], 1)
    return outlet, rows, ended


def test_a_rich_bolt_anchors_on_none_one_or_several_rows(rich):
    outlet, rows, _ = rich
    outlet.emit((1,))
    outlet.emit((2,), [rows[0]])
    outlet.emit((3,), rows[1])
    outlet.emit((4,), [rows[0], rows[1], rows[0]])

    assert pieces(outlet.collect()) == [
        ("default", [(1, []), (2, [50]), (3, [60, 70]), (4, [50, 60, 70, 50])])
    ]
    assert outlet.collect() == []


def test_rows_that_come_from_the_rows_at_hand_have_their_roots():
    outlet = RichOutlet(COMPONENT, {"default"}, lambda *_: None)
    outlet.begin(Lineage.of_each([(50,), (60, 70), (), (80,)]))
    for place in (0, 1, 2, 3):
        row = ROW((place,))
        outlet.give(row, place)
        outlet.emit((place,), [row])
        outlet.ack(row)
        outlet.leave()

    assert pieces(outlet.collect()) == [
        ("default", [(0, [50]), (1, [60, 70]), (2, []), (3, [80])])
    ]
    assert outlet.take_open().tolist() == []


def test_a_row_that_is_left_open_is_an_anchor_in_later_blocks():
    outlet = RichOutlet(COMPONENT, {"default"}, lambda *_: None)
    first, second = ROW((1,)), ROW((2,))
    outlet.begin(Lineage(np.array([50])))
    outlet.give(first, 0)
    outlet.leave()
    outlet.begin(Lineage(np.array([60])))
    outlet.give(second, 0)
    outlet.emit((1,), [second])
    outlet.emit((2,), [first])
    outlet.ack(second)
    outlet.leave()

    assert pieces(outlet.collect()) == [("default", [(1, [60]), (2, [50])])]
    assert outlet.take_open().tolist() == [50]
    assert outlet.take_open().tolist() == []


def test_a_row_that_is_not_open_is_no_anchor(rich):
    outlet, _, _ = rich

    with pytest.raises(ConfigError, match="anchored a row on Row"):
        outlet.emit((1,), [ROW((1,))])
    assert outlet.collect() == []


def test_a_row_ends_once(rich):
    outlet, rows, ended = rich

    outlet.ack(rows[0])
    outlet.fail(rows[0])
    outlet.fail(rows[1], "too large")
    outlet.fail(rows[1])

    assert ended == [(rows[1], (60, 70), "too large")]
    with pytest.raises(ConfigError, match="anchored a row on Row"):
        outlet.emit((1,), rows)
