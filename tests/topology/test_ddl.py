import pyarrow as pa
import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.topology.rows.fields import parse_ddl, parse_type


def test_names_and_types_are_read_in_order():
    assert parse_ddl("word string, count bigint") == [
        ("word", pa.string()),
        ("count", pa.int64()),
    ]


def test_a_field_may_lack_its_type():
    assert parse_ddl("word, count") == [("word", None), ("count", None)]


def test_colons_and_quoted_names_are_read():
    assert parse_ddl("`a b`: int, c:double") == [
        ("a b", pa.int32()),
        ("c", pa.float64()),
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("TINYINT", pa.int8()),
        ("smallint", pa.int16()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("real", pa.float32()),
        ("boolean", pa.bool_()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(20, 4)", pa.decimal128(20, 4)),
        ("decimal(7)", pa.decimal128(7, 0)),
        ("array<string>", pa.list_(pa.string())),
        ("map<string, int>", pa.map_(pa.string(), pa.int32())),
        (
            "struct<a: int, b array<double>>",
            pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))]),
        ),
    ],
)
def test_types_have_sparks_names(text, kind):
    assert parse_type(text) == kind


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("word strin", "unknown type 'strin'"),
        ("word string count bigint", "'count' is not expected here"),
        ("a array<int", "'>' is missing before ''"),
        ("a decimal(39,2)", "decimal(39,2) is out of range"),
        ("a decimal(x)", "'x' is not a number"),
        ("1a int", "'1' is not a field name"),
        ("a int,", "it ends too early"),
    ],
)
def test_an_unreadable_declaration_is_refused_with_the_place(text, reason):
    with pytest.raises(ConfigError) as refused:
        parse_ddl(text)

    assert reason in str(refused.value)


def test_a_type_followed_by_something_is_refused():
    with pytest.raises(ConfigError, match="'b' is not expected here"):
        parse_type("int b")
