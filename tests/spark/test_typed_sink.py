"""Records that the sink writes with a schema, as Confluent's own client reads them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.types import StructType

from kafka_tx.errors import ConfigError, RegistryError
from kafka_tx.model import TransactionAttempt
from kafka_tx.options.sink import parse_sink
from kafka_tx.schemas import registry
from kafka_tx.spark.sinks.writer import KafkaTxStreamWriter, KafkaTxWriter
from kafka_tx.spark.source.data_source import KafkaTxDataSource
from tests.schemas.told import Told
from tests.told_registry import told as told

ORDER: Any = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["NEW"]}},
    ],
}
COLUMNS = StructType().add(
    "value", StructType().add("id", "long").add("state", "string")
)


@pytest.fixture
def options(cluster, topic, told: Told) -> dict[str, str]:
    name = topic()
    told.schema(7, json.dumps(ORDER))
    told.version(f"{name}-value", "latest", 7, json.dumps(ORDER))
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "topic": name,
        "value.format": "avro",
        "schema.registry.url": told.url,
    }


def written(options: dict[str, str], *batches: list[Any]) -> None:
    writer = KafkaTxDataSource(options).writer(COLUMNS, overwrite=False)
    kind = pa.struct([("id", pa.int64()), ("state", pa.string())])
    made = [pa.record_batch({"value": pa.array(rows, kind)}) for rows in batches]
    writer.commit([writer.write(iter(made))])


def values(options: dict[str, str], count: int) -> list[bytes | None]:
    return [message.value() for message in messages(options, count)]


def messages(options: dict[str, str], count: int) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": options["kafka.bootstrap.servers"],
            "group.id": options["topic"],
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([options["topic"]])
    try:
        return consumer.consume(count, timeout=30)
    finally:
        consumer.close()


def test_confluents_deserializer_reads_what_was_written(options, told: Told) -> None:
    written(options, [{"id": 1, "state": "NEW"}, None, {"id": 3, "state": "NEW"}])

    client = SchemaRegistryClient({"url": told.url})
    read = AvroDeserializer(client)
    context = SerializationContext(options["topic"], MessageField.VALUE)
    found = [value and read(value, context) for value in values(options, 3)]
    assert found == [
        {"id": 1, "user": None, "state": "NEW"},
        None,
        {"id": 3, "user": None, "state": "NEW"},
    ]


def test_columns_that_do_not_fit_are_refused_before_anything_is_written(
    options,
) -> None:
    wrong = StructType().add("value", StructType().add("id", "string"))

    with pytest.raises(ConfigError, match=r"column 'value\.id' is string"):
        KafkaTxDataSource(options).writer(wrong, overwrite=False)


def test_a_value_that_does_not_fit_is_refused_before_the_task_sends(options) -> None:
    """Also behind rows that fit, in another batch of the task."""
    good = [{"id": 1, "state": "NEW"}]
    written(options, good, good)

    with pytest.raises(ConfigError, match=r"column 'value\.state' .* takes NEW"):
        written(options, good, good * 20_000, [{"id": 2, "state": "OLD"}])

    assert records_in(options) == 2


def records_in(options: dict[str, str]) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": options["kafka.bootstrap.servers"],
            "group.id": options["topic"],
        }
    )
    try:
        found = consumer.list_topics(options["topic"], timeout=30).topics
        parts = [
            TopicPartition(options["topic"], n)
            for n in found[options["topic"]].partitions
        ]
        return sum(
            consumer.get_watermark_offsets(each, timeout=30)[1] for each in parts
        )
    finally:
        consumer.close()


def test_a_text_is_registered_where_that_is_asked_for(options, told: Told) -> None:
    subject = f"/subjects/{options['topic']}-value/versions"
    told.answers[subject] = [(200, {"id": 9})]
    told.schema(9, json.dumps(ORDER))
    given = {"value.schema": json.dumps(ORDER), "auto.register.schemas": "true"}

    written(options | given, [{"id": 1, "state": "NEW"}])

    assert values(options, 1)[0][:5] == b"\0\0\0\0\x09"  # type: ignore[index]
    assert subject in told.paths()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schema.registry.url": None}, "there is no 'schema.registry.url'"),
        (
            {"value.schema": json.dumps(ORDER), "schema.registry.url": None},
            "A record begins with the id",
        ),
        ({"value.schema": "4"}, "has no subject"),
        ({"value.schema": json.dumps(ORDER)}, "Set auto.register.schemas=true"),
        ({"topic": None}, "there is no single topic"),
    ],
)
def test_a_schema_that_cannot_be_had_is_refused(
    options, given: dict[str, str | None], said: str
) -> None:
    left = {name: value for name, value in {**options, **given}.items() if value}
    columns = (
        StructType().add("topic", "string").add("value", COLUMNS["value"].dataType)
    )

    with pytest.raises(ConfigError, match=said):
        KafkaTxDataSource(left).writer(columns, overwrite=False)


class ConnectError(Exception):
    """What a client raises where nobody listens, by the same name."""


def test_a_running_query_waits_for_a_registry_that_restarts(
    options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody listens. ``df.write`` soon ends: the address may be wrong."""

    class Restarting:
        left = 2

        def get_schema(self, number: int) -> Schema:
            self.left -= 1
            if self.left >= 0:
                raise ConnectError("refused")
            return Schema(json.dumps(ORDER), "AVRO")

        def close(self) -> None:
            pass

    made = Restarting()
    monkeypatch.setattr(registry, "_client", lambda settings: made)
    monkeypatch.setattr(registry, "NOBODY_PATIENCE_S", 0.001)
    monkeypatch.setattr(registry, "START_PATIENCE_S", 0.001)
    config = parse_sink(options | {"value.schema": "id:7"})
    attempt = replace(config, id="s", attempt=TransactionAttempt(1, 1))

    assert KafkaTxWriter(attempt, COLUMNS)._config.formats[0].reader is not None
    made.left = 2  # Spark makes it anew for each batch
    assert KafkaTxStreamWriter(config, COLUMNS)._config.formats[0].reader is not None
    made.left = 2
    with pytest.raises(RegistryError, match=r"within 0\.001 s"):
        KafkaTxWriter(config, COLUMNS)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (["int", "string"], "a union of int, string; legal: null and one other type"),
        (
            {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
            "is a duration, which Spark has no type for. Nothing was written",
        ),
    ],
)
def test_a_schema_without_a_column_is_refused(
    options, told: Told, kind: Any, said: str
) -> None:
    told.schema(8, json.dumps(kind))

    with pytest.raises(ConfigError, match=said):
        KafkaTxDataSource(options | {"value.schema": "id:8"}).writer(
            COLUMNS, overwrite=False
        )


def test_tasks_get_no_settings_of_the_registry(options) -> None:
    options |= {"schema.registry.basic.auth.user.info": "me:hunter2"}

    writer = KafkaTxDataSource(options).writer(COLUMNS, overwrite=False)

    assert all(not each.registry for each in writer._config.formats)


def test_a_record_has_one_schema_id(options) -> None:
    """Headers copied from the source would name another one, and win."""
    kind = pa.struct([("id", pa.int64()), ("state", pa.string())])
    headers = [[{"key": "__value_schema_id", "value": b"\0\0\0\0\1"}]]
    headers[0].append({"key": "h", "value": b"x"})
    of_headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "value": pa.array([{"id": 1, "state": "NEW"}], kind),
            "headers": pa.array(headers, of_headers),
        }
    )
    writer = KafkaTxDataSource(options).writer(COLUMNS, overwrite=False)

    writer.commit([writer.write(iter([batch]))])

    (message,) = messages(options, 1)
    assert message.headers() == [("h", b"x")]
