import pyarrow as pa
import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.rows.blocks import (
    conform,
    pieces,
    size,
    to_batch,
    to_rows,
    with_tx,
)
from kafka_tx.topology.rows.fields import TX_TYPE, Fields

ROWS = [("a", 1), ("b", None), ("c", 3)]
TYPED = Fields.parse("word string, count int")
UNTYPED = Fields(("word", "count"))
BATCH = pa.RecordBatch.from_arrays(
    [pa.array(["a", "b", "c"]), pa.array([1, None, 3], pa.int32())],
    names=["word", "count"],
)


def test_rows_and_record_batches_hold_the_same():
    assert to_rows(BATCH) == ROWS
    assert to_batch(ROWS, TYPED, "x").equals(BATCH)


def test_untyped_rows_get_the_types_of_their_values():
    batch = to_batch(ROWS, UNTYPED, "x")

    assert batch.schema.types == [pa.string(), pa.int64()]


def test_no_rows_make_an_empty_batch_with_all_columns():
    assert to_batch([], TYPED, "x").schema == TYPED.schema
    assert to_batch([], UNTYPED, "x").schema.names == ["word", "count"]


@pytest.mark.parametrize("block", [ROWS, BATCH])
def test_pieces_are_the_block_in_order(block):
    parts = list(pieces(block, 2))

    assert [size(part) for part in parts] == [2, 1]
    assert [row for part in parts for row in to_rows(part)] == ROWS


def test_a_small_block_is_one_piece():
    assert list(pieces(ROWS, 3)) == [ROWS]


@pytest.mark.parametrize(
    ("fields", "rows", "reason"),
    [
        (TYPED, [("a", "many")], "field 'count' that do not make"),
        (TYPED, [("a", 2**40)], "legal: values of type int32"),
        (UNTYPED, [("a", 1), (2, 2)], "values of one common type"),
        (UNTYPED, [("a", object())], "field 'count'"),
    ],
)
def test_values_that_make_no_column_are_refused_by_name(fields, rows, reason):
    with pytest.raises(ConfigError) as refused:
        to_batch(rows, fields, "split")

    assert "component 'split'" in str(refused.value)
    assert reason in str(refused.value)


def test_an_emitted_batch_is_brought_to_its_declared_form():
    emitted = with_tx(BATCH, TransactionAttempt(1, 1)).select(["count", "tx", "word"])

    declared = Fields.parse("word string, count bigint")
    batch = conform(emitted, declared, "x")

    assert batch.schema == declared.schema
    assert to_rows(batch) == ROWS


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"word": ["a"]}, "the columns word; legal: its declared fields word, count"),
        ({"word": ["a"], "count": ["x"]}, "legal: its declared types"),
        ({"word": ["a"], "count": [1], "more": [1]}, "word, count, more"),
    ],
)
def test_an_emitted_batch_of_another_form_is_refused(columns, reason):
    with pytest.raises(ConfigError) as refused:
        conform(pa.RecordBatch.from_pydict(columns), TYPED, "split")

    assert "component 'split'" in str(refused.value)
    assert reason in str(refused.value)


def test_the_attempt_is_the_first_column():
    batch = with_tx(BATCH, TransactionAttempt(7, 2**62))

    assert batch.schema.names == ["tx", "word", "count"]
    assert batch.schema.field("tx").type == TX_TYPE
    assert batch.column("tx").to_pylist() == [{"txid": 7, "attempt_id": 2**62}] * 3
