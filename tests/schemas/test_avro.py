"""What is a schema, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_tx.errors import SchemaError
from kafka_tx.schemas.avro import (
    DEEPEST,
    LARGEST_TEXT,
    MOST_TYPES,
    Fixed,
    Primitive,
    Record,
    parse,
)


def record(*fields: Any, **more: Any) -> str:
    return json.dumps({"type": "record", "name": "a.R", "fields": [*fields], **more})


@pytest.mark.parametrize("space", ["com.my-company.events", "com.acme.Outer$", "1.2"])
def test_a_namespace_is_any_text_as_in_java(space: str) -> None:
    given = {"type": "fixed", "name": "Order", "namespace": space, "size": 1}

    assert parse(json.dumps(given)) == Fixed(f"{space}.Order", 1)


def test_names_are_found_in_their_namespace() -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}
    found = parse(
        record(
            {"name": "one", "type": inner},
            {"name": "two", "type": "In"},
            {"name": "three", "type": ["null", "a.In"]},
        )
    )

    assert isinstance(found, Record)
    one, two, three = (each.type for each in found.fields)
    assert two is one
    assert three.branches[1] is one  # type: ignore[union-attr]


def test_references_give_the_names_that_a_schema_uses() -> None:
    deep = json.dumps({"type": "enum", "name": "b.E", "symbols": ["A"]})
    inner = record({"name": "e", "type": "b.E"}, name="b.In")

    found = parse(record({"name": "in", "type": "b.In"}), [deep, inner])

    assert isinstance(found, Record)
    assert found.fields[0].type.name == "b.In"  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["string", '"string"', '{"type":"string"}'])
def test_a_type_may_stand_alone(text: str) -> None:
    assert parse(text) == Primitive("string")


@pytest.mark.parametrize(
    "given",
    [
        {"type": "bytes", "logicalType": "decimal"},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
        {"type": "string", "logicalType": "decimal", "precision": 2},
        {"type": "bytes", "logicalType": "mine"},
        {"type": "bytes", "logicalType": ["x"]},
    ],
)
def test_an_invalid_logical_type_is_none(given: Any) -> None:
    assert parse(json.dumps(given)) == Primitive(given["type"])


_SELF = {"name": "next", "type": ["null", "R"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("7", "7 is no type"),
        ("null null", "is no JSON"),
        ('{"typ": "int"}', "has no member 'type'"),
        ('"order"', "type 'order' is neither"),
        ('{"type": "array"}', "has no member 'items'"),
        ("[]", "a union has no types"),
        ('["int", ["null", "int"]]', "a union contains another union"),
        ('["int", "int"]', "has the type 'int' twice"),
        (
            record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}),
            "one name",
        ),
        (record({"name": "a b", "type": "int"}), "a field named 'a b'; legal"),
        (record({"type": "int"}), "a field named None; legal"),
        (record(name="1R"), "'1R' is no name of a type"),
        ('{"type": "record", "name": "R"}', "has no list of fields"),
        ('{"type": "fixed", "name": "F", "size": -1}', "the size of 'F' is -1"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "or one twice"),
        (
            '{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}',
            "the default of enum 'E'",
        ),
        (record(_SELF), "type 'a.R' contains itself"),
        (
            record({"name": "x", "type": {"type": "array", "items": "a.R"}}),
            "type 'a.R' contains itself",
        ),
        (" " * (LARGEST_TEXT + 1), f"at most {LARGEST_TEXT}"),
        ("[" * 100_000, f"more than {DEEPEST} types in each other"),
        (
            '{"type":"array","items":' * DEEPEST + '"int"' + "}" * DEEPEST,
            f"more than {DEEPEST} types in each other",
        ),
    ],
)
def test_what_is_no_schema_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said.replace("(", r"\(")):
        parse(text)


def test_types_that_are_used_again_count_again() -> None:
    """A short text may stand for millions of columns."""
    kinds: Any = "int"
    for n in range(30):
        fields = [{"name": "a", "type": kinds}, {"name": "b", "type": f"R{n - 1}"}]
        kinds = {"type": "record", "name": f"R{n}", "fields": fields[: 1 + bool(n)]}

    with pytest.raises(SchemaError, match=f"more than {MOST_TYPES} types"):
        parse(json.dumps(kinds))


def test_depth_counts_through_names() -> None:
    text: Any = "int"
    for _ in range(40):
        text = {"type": "array", "items": text}
    inner = json.dumps(
        {"type": "record", "name": "In", "fields": [{"name": "x", "type": text}]}
    )
    outer: Any = "In"
    for _ in range(40):
        outer = {"type": "array", "items": outer}

    with pytest.raises(SchemaError, match=f"more than {DEEPEST} types in each other"):
        parse(json.dumps(outer), [inner])


def test_half_a_surrogate_pair_is_refused() -> None:
    """JSON has it; neither UTF-8 nor Arrow does."""
    with pytest.raises(SchemaError, match="no Unicode"):
        parse('{"type": "enum", "name": "E", "symbols": ["A", "\\ud800"]}')
