import pickle

import pyarrow as pa
import pytest

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.rows.fields import Fields
from kafka_tx.topology.rows.row import row_class, rows_for

ATTEMPT = TransactionAttempt(3, 1)
WORDS = row_class("split", "default", ("tx", "word", "count"))


def test_a_field_is_reached_by_position_name_and_lookup():
    row = WORDS((ATTEMPT, "the", 2))

    assert (row[1], row.word, row._get("word")) == ("the", "the", "the")
    assert row.tx is ATTEMPT


def test_a_field_may_have_the_name_of_a_tuple_method():
    assert WORDS((ATTEMPT, "the", 2)).count == 2


def test_a_row_knows_where_it_comes_from():
    row = WORDS((ATTEMPT, "the", 2))

    assert (row._source, row._stream) == ("split", "default")


def test_a_name_that_is_no_identifier_is_looked_up():
    row = row_class("a", "default", ("total amount", "_private"))((7, 8))

    assert row._get("total amount") == 7
    assert row._get("_private") == 8


def test_an_unknown_field_is_refused_with_those_there_are():
    with pytest.raises(KeyError, match="no field 'wrod'; there are tx, word, count"):
        WORDS((ATTEMPT, "the", 2))._get("wrod")


def test_a_row_is_a_tuple_in_comparisons():
    assert WORDS((ATTEMPT, "the", 2)) == (ATTEMPT, "the", 2)


def test_a_row_prints_its_fields():
    assert repr(row_class("a", "default", ("x", "y"))((1, "b"))) == "Row(x=1, y='b')"


def test_a_row_survives_pickling():
    again = pickle.loads(pickle.dumps(WORDS((ATTEMPT, "the", 2))))

    assert again == (ATTEMPT, "the", 2)
    assert (again.word, again._source) == ("the", "split")


def test_rows_of_tuples_and_of_columns_are_the_same():
    fields = Fields(("word", "count"))
    columns = pa.record_batch({"word": ["a", "b"], "count": [1, 2]})
    blocks = ([("a", 1), ("b", 2)], columns)

    one, other = (
        list(rows_for("split", "default", fields, block, ATTEMPT)) for block in blocks
    )

    assert one == other == [(ATTEMPT, "a", 1), (ATTEMPT, "b", 2)]
    assert {type(row) for row in one + other} == {WORDS}
