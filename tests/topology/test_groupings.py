import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from kafka_tx.topology.declare.groupings import Grouping, GroupingKind, router_for
from kafka_tx.topology.rows.blocks import size, to_rows
from kafka_tx.topology.rows.fields import Fields

FIELDS = Fields(("word", "n"))
ROWS = [(f"w{n % 7}", n) for n in range(100)]
BATCH = pa.RecordBatch.from_pydict(
    {"word": [word for word, _ in ROWS], "n": [n for _, n in ROWS]}
)
BLOCKS = pytest.mark.parametrize("block", [ROWS, BATCH], ids=["rows", "arrow"])


def routed(kind, block, tasks, fields=(), source_task=0):
    router = router_for(Grouping(kind, fields), FIELDS, tasks, source_task)
    return [(task, to_rows(part)) for task, part in router.route(block)]


@BLOCKS
def test_shuffle_gives_equal_shares_and_loses_nothing(block):
    parts = routed(GroupingKind.SHUFFLE, block, 8)

    assert sorted(len(rows) for _, rows in parts) == [12] * 4 + [13] * 4
    assert sorted(row for _, rows in parts for row in rows) == sorted(ROWS)


@BLOCKS
def test_shuffle_goes_on_where_the_last_block_ended(block):
    router = router_for(Grouping(GroupingKind.SHUFFLE), FIELDS, 3, 0)
    got = dict.fromkeys(range(3), 0)

    for _ in range(6):
        for task, part in router.route(
            block[:1] if block is ROWS else block.slice(0, 1)
        ):
            got[task] += size(part)

    assert got == {0: 2, 1: 2, 2: 2}


def test_shuffles_of_different_tasks_begin_at_different_targets():
    first = [
        routed(GroupingKind.SHUFFLE, ROWS[:1], 3, (), task)[0][0] for task in range(3)
    ]

    assert first == [0, 1, 2]


@BLOCKS
def test_fields_grouping_keeps_equal_values_together(block):
    parts = routed(GroupingKind.FIELDS, block, 4, ("word",))

    homes: dict[str, int] = {}
    for task, rows in parts:
        for word, _ in rows:
            assert homes.setdefault(word, task) == task
    assert sorted(row for _, rows in parts for row in rows) == sorted(ROWS)


def test_rows_and_record_batches_go_to_the_same_tasks():
    for fields in (("word",), ("n",), ("word", "n")):
        rows = routed(GroupingKind.FIELDS, ROWS, 5, fields)
        batch = routed(GroupingKind.FIELDS, BATCH, 5, fields)
        assert rows == batch


@pytest.mark.parametrize("kind", list(GroupingKind))
@BLOCKS
def test_routing_is_the_same_every_time_and_keeps_order(kind, block):
    fields = ("word",) if kind is GroupingKind.FIELDS else ()

    parts = routed(kind, block, 3, fields)

    assert parts == routed(kind, block, 3, fields)
    for task in range(3):
        numbers = [n for to, rows in parts if to == task for _, n in rows]
        assert numbers == sorted(numbers)


@BLOCKS
def test_global_grouping_goes_to_the_first_task(block):
    assert routed(GroupingKind.GLOBAL, block, 3) == [(0, ROWS)]


@BLOCKS
def test_all_grouping_goes_to_every_task(block):
    assert routed(GroupingKind.ALL, block, 3) == [(0, ROWS), (1, ROWS), (2, ROWS)]


@pytest.mark.parametrize("kind", list(GroupingKind))
def test_one_task_gets_everything_in_one_piece(kind):
    assert routed(kind, ROWS, 1, ("word",)) == [(0, ROWS)]


@pytest.mark.parametrize("kind", list(GroupingKind))
def test_no_rows_are_routed_as_no_rows(kind):
    parts = routed(kind, [], 3, ("word",) if kind is GroupingKind.FIELDS else ())

    assert not any(rows for _, rows in parts)


def test_values_that_python_cannot_hash_are_grouped_too():
    rows = [(["a", "b"], 1), (["c"], 2), (["a", "b"], 3)]

    parts = routed(GroupingKind.FIELDS, rows, 4, ("word",))

    home = {n: task for task, part in parts for _, n in part}
    assert sorted(home) == [1, 2, 3]
    assert home[1] == home[3]


def test_more_keys_than_are_remembered_still_find_their_task(monkeypatch):
    monkeypatch.setattr("kafka_tx.topology.declare.groupings._REMEMBERED_KEYS", 2)

    assert routed(GroupingKind.FIELDS, ROWS, 4, ("n",)) == routed(
        GroupingKind.FIELDS, BATCH, 4, ("n",)
    )


def test_a_grouping_reads_as_it_was_declared():
    assert str(Grouping(GroupingKind.FIELDS, ("a", "b"))) == "fields(a, b)"
    assert str(Grouping(GroupingKind.LOCAL_OR_SHUFFLE)) == "local-or-shuffle"


TIME = datetime.datetime(2026, 1, 1, 5, 1, 1, 567)  # noqa: DTZ001 - as it stands


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.float32(), 0.1),
        (pa.list_(pa.float32()), [0.1]),
        (pa.date32(), TIME),
        (pa.date32(), TIME.date()),
        (pa.timestamp("s"), TIME),
        (pa.time32("ms"), TIME.time()),
        (pa.duration("ms"), datetime.timedelta(microseconds=1_567)),
        (pa.struct([("a", pa.int64()), ("b", pa.int64())]), {"a": 1}),
        (pa.map_(pa.string(), pa.int64()), {"a": 1}),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        (pa.decimal128(10, 2), Decimal("1.1")),
        (pa.int64(), 3.0),
        (pa.string(), b"abc"),
    ],
)
def test_a_key_goes_to_one_task_as_row_as_column_and_as_read_back(kind, value):
    fields = Fields(("k",), (kind,))
    grouping = Grouping(GroupingKind.FIELDS, ("k",))
    column = pa.array([value], kind)
    blocks = [
        [(value,)],
        pa.RecordBatch.from_arrays([column], names=["k"]),
        [(column[0].as_py(),)],
    ]

    tasks = {
        task
        for block in blocks
        for task, _ in router_for(grouping, fields, 1_009, 0).route(block)
    }

    assert len(tasks) == 1
