"""Columns that readers' schemas give, and schemas without one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kafka_tx.errors import SchemaError
from kafka_tx.schemas.avro import parse
from kafka_tx.schemas.columns import column_of, layout
from kafka_tx.schemas.resolution import resolve

_ALL = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "date": "date",
    "time-millis": "integer",
    "time-micros": "long",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "local-timestamp-nanos": "long",
    "uuid": "string",
}
_STORED = {"date": "int", "time-millis": "int", "uuid": "string"}


def test_each_type_has_its_spark_type() -> None:
    fields = []
    for index, name in enumerate(_ALL):
        is_logical = "-" in name or name in _STORED
        kind = {"type": _STORED.get(name, "long"), "logicalType": name}
        fields.append({"name": f"f{index}", "type": kind if is_logical else name})

    column = column_of(
        parse(json.dumps({"type": "record", "name": "R", "fields": fields}))
    )

    assert [each["type"] for each in column.spark["fields"]] == list(_ALL.values())


def test_spark_takes_the_arrow_type_for_its_own() -> None:
    """Spark 4.2 refuses batches whose types differ in the least."""
    nested = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": {"type": "array", "items": ["null", "int"]}},
            {
                "name": "m",
                "type": {"type": "map", "values": {"type": "array", "items": "string"}},
            },
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {
                "name": "n",
                "type": {"type": "long", "logicalType": "local-timestamp-micros"},
            },
            {
                "name": "d",
                "type": {
                    "type": "fixed",
                    "name": "D",
                    "size": 4,
                    "logicalType": "decimal",
                    "precision": 9,
                    "scale": 3,
                },
            },
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
            {"name": "x", "type": "null"},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
    column = column_of(parse(json.dumps(nested)))
    field = {"name": "value", "type": column.spark, "nullable": True, "metadata": {}}

    spark = StructType.fromJson({"type": "struct", "fields": [field]})

    assert to_arrow_schema(spark, timezone="UTC") == pa.schema(
        [pa.field("value", column.arrow)]
    )


def test_slots_are_numbered_in_the_order_of_the_schema() -> None:
    column = column_of(
        parse(
            json.dumps(
                {
                    "type": "record",
                    "name": "R",
                    "fields": [
                        {"name": "a", "type": {"type": "array", "items": "int"}},
                        {"name": "m", "type": {"type": "map", "values": "long"}},
                    ],
                }
            )
        )
    )

    assert [slot.number for slot in column.all()] == list(range(6))
    assert layout(column) == [9, 2, 10, 1, 2, 0, 11, 2, 7, 0, 3, 0]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (["int", "string"], "field 'a' is a union of int, string; legal: null and one"),
        (["null", "int", "long"], "field 'a' is a union of null, int, long"),
        (
            {"type": "array", "items": ["int", "string"]},
            r"field 'a\[\]' is a union of int, string",
        ),
        (
            {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
            "field 'a' is a duration",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 39},
            "field 'a' is a decimal of 39 digits; Spark's have at most 38",
        ),
        (
            {
                "type": "record",
                "name": "In",
                "fields": [{"name": "x", "type": "int"}, {"name": "X", "type": "int"}],
            },
            "record 'In' has the fields 'x' and 'X', which are one name to Spark",
        ),
    ],
)
def test_what_has_no_column_is_refused_by_name(kind: Any, said: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}

    with pytest.raises(SchemaError, match=said):
        column_of(parse(json.dumps(schema)))


def _record(*fields: Any, name: str = "R") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


_A = {"name": "a", "type": "int"}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9}


@pytest.mark.parametrize(
    ("writer", "reader", "said"),
    [
        (
            _record(_A),
            _record({"name": "b", "type": "int"}),
            "field 'b' is not in the writer's",
        ),
        (
            _record(_A),
            _record({"name": "a", "type": "string"}),
            "field 'a' is int where it was",
        ),
        (
            _record({"name": "a", "type": "long"}),
            _record(_A),
            "field 'a' is long where it was",
        ),
        (
            _record(_A),
            _record(_A, name="S"),
            "record 'R' where it was written, and record 'S'",
        ),
        (_record(_A), '"int"', "the value is record 'R' where it was written, and int"),
        (
            _record({"name": "a", "type": _DECIMAL}),
            _record({"name": "a", "type": {**_DECIMAL, "scale": 2}}),
            "field 'a' is a decimal of scale 0 where it was written, and of scale 2",
        ),
        (
            '{"type": "int", "logicalType": "date"}',
            '{"type": "long", "logicalType": "timestamp-millis"}',
            r"the value is int \(date\) where it was written, and long \(timestamp-",
        ),
        (
            '{"type": "long", "logicalType": "timestamp-millis"}',
            '{"type": "long", "logicalType": "local-timestamp-millis"}',
            "the value is long",
        ),
        (
            '{"type": "fixed", "name": "F", "size": 2}',
            '{"type": "fixed", "name": "F", "size": 3}',
            "'F' has 2 bytes where it was written, and 3",
        ),
        (
            _record(_A),
            _record(_A, {"name": "b", "type": "int", "default": "x"}),
            "the default of field 'b', 'x', is no value of its type",
        ),
    ],
)
def test_schemas_that_cannot_be_resolved_say_why(
    writer: str, reader: str, said: str
) -> None:
    with pytest.raises(SchemaError, match=said):
        resolve(parse(writer), column_of(parse(reader)))


def test_records_match_by_name_without_namespace_or_by_alias() -> None:
    renamed = json.loads(_record(_A, name="other.New")) | {"aliases": ["R"]}

    resolve(parse(_record(_A, name="x.R")), column_of(parse(_record(_A, name="y.R"))))
    resolve(parse(_record(_A)), column_of(parse(json.dumps(renamed))))
