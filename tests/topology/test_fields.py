import pickle

import pyarrow as pa
import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.topology.rows.fields import Fields

WORD_COUNT = Fields(("word", "count"), (pa.string(), pa.int64()))


@pytest.mark.parametrize(
    "declared",
    [
        "word string, count bigint",
        [("word", "string"), ("count", "bigint")],
        (("word", pa.string()), ("count", pa.int64())),
        pa.schema([("word", pa.string()), ("count", pa.int64())]),
        WORD_COUNT,
    ],
)
def test_typed_fields_are_declared_in_any_form(declared):
    assert Fields.parse(declared) == WORD_COUNT


@pytest.mark.parametrize("declared", [("word", "count"), "word, count"])
def test_names_alone_leave_the_fields_untyped(declared):
    fields = Fields.parse(declared)

    assert fields.names == ("word", "count")
    assert fields.types is None
    assert fields.schema is None


def test_a_forgotten_comma_after_a_single_name_is_still_one_field():
    assert Fields.parse("word").names == ("word",)


def test_no_fields_are_legal():
    assert len(Fields.parse(())) == 0


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (("tx", "word"), "Every row gets 'tx' as its first column by itself"),
        (("word", "word"), "'word' is there twice"),
        (("word", ""), "not empty"),
        ([("word", "string"), "count"], "Without a type: count"),
        ((1, 2), "a name, or a pair"),
    ],
)
def test_fields_that_cannot_be_are_refused(declared, reason):
    with pytest.raises(ConfigError) as refused:
        Fields.parse(declared)

    assert reason in str(refused.value)


def test_typed_fields_give_an_arrow_schema():
    assert WORD_COUNT.schema == pa.schema(
        [("word", pa.string()), ("count", pa.int64())]
    )


def test_names_are_found_at_their_positions():
    assert WORD_COUNT.indexes(["count", "word"]) == (1, 0)


def test_fields_read_as_their_declaration():
    assert str(WORD_COUNT) == "word string, count int64"
    assert str(Fields(("a", "b"))) == "a, b"


def test_fields_survive_pickling():
    assert pickle.loads(pickle.dumps(WORD_COUNT)) == WORD_COUNT
