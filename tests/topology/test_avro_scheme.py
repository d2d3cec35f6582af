"""Rows of records with an Avro schema, in both kinds of topologies."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

import kafka_tx
from kafka_tx.errors import ConfigError, RecordFormatError, RegistryError
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.record_schema import arrow_schema
from kafka_tx.running.at_least_once.reading import KafkaRecords, NumberedRange
from kafka_tx.schemas import registry as registry_module
from kafka_tx.schemas.defaults import number
from kafka_tx.testing import MemoryLog
from kafka_tx.topology.rows.avro_scheme import AvroScheme
from kafka_tx.topology.rows.blocks import to_rows
from kafka_tx.topology.rows.schemes import reads_headers
from tests.schemas.told import Told
from tests.told_registry import told as told

A = TopicPartition("t", 0)
OLD: Any = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
NEW: Any = {
    **OLD,
    "fields": [*OLD["fields"], {"name": "b", "type": "string", "default": "none"}],
}


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


@pytest.fixture
def registry(told: Told) -> dict[str, str]:
    told.schema(1, json.dumps(OLD))
    told.schema(2, json.dumps(NEW))
    told.version("t-value", "latest", 2, json.dumps(NEW))
    return {"schema.registry.url": told.url}


def log(*values: bytes | None) -> MemoryLog:
    made = MemoryLog({"t": 1})
    made.append(A, *values)
    return made


def batch(*values: bytes | None) -> pa.RecordBatch:
    (found,) = log(*values).read(OffsetRange(A, 0, len(values)))
    return found


def test_fields_of_the_record_are_fields_of_the_row(registry) -> None:
    scheme = AvroScheme(subject="t-value", registry=registry)

    made = scheme.decode(
        batch(framed(1, number(7)), None, framed(2, number(8) + b"\2x"))
    )

    assert scheme.fields.names == ("a", "b")
    assert scheme.fields.types == (pa.int32(), pa.string())
    assert to_rows(made.rows) == [(7, "none"), (8, "x")]
    assert made.records is not None
    assert made.records.to_pylist() == [0, 2]


def test_spouts_read_headers_where_they_may_name_schemas(registry) -> None:
    """And ids are found in them."""
    scheme = AvroScheme(subject="t-value", registry=registry)
    outer = kafka_tx.MetadataScheme(scheme)
    assert reads_headers(outer)
    assert not reads_headers(kafka_tx.MetadataScheme(AvroScheme('"long"')))
    options = {"kafka.bootstrap.servers": "localhost:9", "subscribe": "t"}
    assert kafka_tx.TransactionalKafkaSpout(
        options, scheme=outer
    ).config.include_headers
    assert not kafka_tx.TransactionalKafkaSpout(options).config.include_headers
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts("localhost:9"), topic="t", scheme=outer
    )
    assert kafka_tx.KafkaSpout(config)._source("localhost:9").include_headers

    head = framed(1, b"")
    row = {"value": number(7), "headers": [{"key": "__value_schema_id", "value": head}]}
    given = pa.RecordBatch.from_pylist([row], schema=arrow_schema(True))

    assert to_rows(scheme.decode(given).rows) == [(7, "none")]


def test_tombstones_take_no_place_in_wide_rows(monkeypatch) -> None:
    """They are left out before anything is decoded."""
    asked: list[int] = []
    scheme = kafka_tx.AvroScheme('"long"')
    scheme.decode(batch(number(1)))
    call = scheme._types
    assert call is not None

    def counted(given: pa.RecordBatch) -> pa.RecordBatch:
        asked.append(given.num_rows)
        return call(given)

    monkeypatch.setattr(scheme, "_types", counted)

    made = scheme.decode(batch(None, number(3), None))

    assert asked == [1]
    assert to_rows(made.rows) == [(3,)]
    assert made.records is not None
    assert made.records.to_pylist() == [1]


def test_a_type_that_is_no_record_is_one_field() -> None:
    scheme = kafka_tx.AvroScheme('"long"')

    assert scheme.fields.names == ("value",)
    assert to_rows(scheme.decode(batch(number(3), number(4))).rows) == [(3,), (4,)]


def test_metadata_stand_behind_its_fields() -> None:
    scheme = kafka_tx.MetadataScheme(AvroScheme('"long"'))

    made = scheme.decode(batch(number(3), None, number(4)))

    assert [row[:1] + row[2:4] for row in to_rows(made.rows)] == [(3, 0, 0), (4, 0, 2)]


def test_the_schema_is_that_of_the_start_in_every_process(registry, told: Told) -> None:
    scheme = AvroScheme(subject="t-value", registry=registry)
    told.version("t-value", "latest", 1, json.dumps(OLD))

    there = pickle.loads(pickle.dumps(scheme))

    assert there.fields == scheme.fields
    assert to_rows(there.decode(batch(framed(1, number(7)))).rows) == [(7, "none")]
    assert "hunter2" not in repr(
        AvroScheme(
            "id:1",
            registry=registry | {"schema.registry.basic.auth.user.info": "a:hunter2"},
        )
    )


def test_a_broken_record_fails_alone(registry) -> None:
    """At least once, as the tasks read."""
    good = framed(1, number(7))
    read = KafkaRecords(
        (NumberedRange(OffsetRange(A, 0, 9), 100),),
        log(*[good] * 4, b"broken", *[good] * 4),
        AvroScheme(subject="t-value", registry=registry),
    )

    found = list(read.read(0, 1, {}))

    failed = [part for part in found if part.error]
    assert [part.read.tolist() for part in failed] == [[104]]
    assert "its first byte names no schema: it is 62" in failed[0].error
    roots = [root for part in found for root in part.roots.tolist()]
    assert roots == [100, 101, 102, 103, 105, 106, 107, 108]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((503, {"message": "away"}), "away"),
        ((200, b"<html>"), "does not answer as a schema registry does"),
        ((400, b"HTTP to an HTTPS port"), "400"),
    ],
)
def test_what_a_registry_does_is_no_fault_of_a_record(
    registry, told: Told, monkeypatch, answer, said
) -> None:
    scheme = AvroScheme(subject="t-value", registry=registry)
    told.answers["/schemas/ids/1"] = [answer]
    own = registry_module.Registry({"url": told.url}, patience_s=0.05)
    monkeypatch.setattr(
        "kafka_tx.schemas.typed_batches.registry_of", lambda settings: own
    )
    read = KafkaRecords(
        (NumberedRange(OffsetRange(A, 0, 4), 0),),
        log(*[framed(1, number(7))] * 4),
        scheme,
    )

    with pytest.raises(RegistryError, match=said):
        list(read.read(0, 1, {}))


def test_permissive_gives_reason_and_bytes(registry) -> None:
    scheme = AvroScheme(subject="t-value", registry=registry, mode="PERMISSIVE")

    made = scheme.decode(batch(framed(1, number(7)), b"\0\0"))

    assert scheme.fields.names == ("a", "b", "value_error", "value_bytes")
    assert to_rows(made.rows) == [
        (7, "none", None, None),
        (None, None, "it has 2 bytes, too few for a schema id", b"\0\0"),
    ]


def test_fail_fast_names_the_record(registry) -> None:
    scheme = AvroScheme(subject="t-value", registry=registry)

    with pytest.raises(RecordFormatError, match="the value of offset 1 of t-0"):
        scheme.decode(batch(framed(1, number(7)), b"\0\0"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "there is no 'schema.registry.url'"),
        ({"registry": {"schema.registry.url": "http://r"}}, "'subject' is ''; legal"),
        ({"schema": "lates"}, "legal: latest, a version"),
        ({"schema": '"int"', "mode": "DROP"}, "legal: FAILFAST, PERMISSIVE"),
        ({"schema": '["int", "string"]'}, "a union of int, string"),
        ({"schema": '"int"', "registry": "http://r"}, "options schema.registry"),
        ({"registry": {"schema.registry.timeout": "3"}}, "needs option 'schema.reg"),
    ],
)
def test_what_gives_no_scheme_is_refused(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AvroScheme(**given)
