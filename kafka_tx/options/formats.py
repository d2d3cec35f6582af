"""Options that say how keys and values become typed columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from kafka_tx.config import (
    REGISTRY,
    RecordFormat,
    Side,
    legal_schema,
    registry_settings,
)
from kafka_tx.errors import ConfigError
from kafka_tx.model import Assigned, SchemaText, Subscription, Topics
from kafka_tx.option_rows import Option, choice

FIXED = ("key.schema.fixed", "value.schema.fixed")
"""The schemas that ``load()`` has found; passed on by the source, not by users."""

_STRATEGIES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_SIDES: tuple[Side, ...] = ("value", "key")
_ENDINGS = ("schema", "subject.name.strategy", "record.name", "mode")

FORMATS = (
    Option(
        "value.format",
        "`bytes`, or `avro`: the column `value` has the type of a schema. See"
        " [Schemas](schemas.md).",
        default="bytes",
    ),
    Option(
        "value.schema",
        "The reader's schema: `latest`, a version, `id:N`, `@` and a file, or the text"
        " itself. Without `schema.registry.url`: a file or a text.",
        default="latest",
    ),
    Option(
        "value.subject.name.strategy",
        "Which subject has `latest` and versions: `TopicNameStrategy`,"
        " `RecordNameStrategy` or `TopicRecordNameStrategy`.",
        default="TopicNameStrategy",
    ),
    Option("value.record.name", "Full name of the record, for the other two."),
    Option(
        "value.mode",
        "`FAILFAST` stops at a record that cannot be decoded. `PERMISSIVE` gives null,"
        " the reason in `value_error` and the bytes in `value_bytes`.",
        default="FAILFAST",
    ),
    *(
        Option(f"key.{ending}", f"As `value.{ending}`, for the column `key`.")
        for ending in ("format", *_ENDINGS)
    ),
    Option(
        "schema.registry.url",
        "Addresses of the schema registry, separated by commas. Further"
        " `schema.registry.*` options are those of confluent-kafka's client.",
    ),
)


_IN_SINKS = ("format", "schema", "subject.name.strategy", "record.name")
SINK_FORMATS = (
    Option(
        "value.format",
        "`bytes`, or `avro`: the column `value` is written with a schema of the"
        " registry. See [Schemas](schemas.md#writing).",
        default="bytes",
    ),
    Option(
        "value.schema",
        "The schema: `latest`, a version, `id:N`, `@` and a file, or the text itself,"
        " which must be registered.",
        default="latest",
    ),
    *(each for each in FORMATS if each.name[6:] in _IN_SINKS[2:]),
    *(
        Option(f"key.{ending}", f"As `value.{ending}`, for the column `key`.")
        for ending in _IN_SINKS
    ),
    *(each for each in FORMATS if each.name.startswith(REGISTRY)),
    Option(
        "auto.register.schemas",
        "`true` registers a schema that is given as file or text.",
        default="false",
    ),
)


def written_formats(
    given: Mapping[str, str], topic: str | None
) -> tuple[RecordFormat, ...]:
    """The formats of columns that are written with a schema; raises ConfigError."""
    topics = Topics((topic,) if topic else ())
    found = record_formats(given, topics)
    if found and not registry_settings(given):
        raise ConfigError(
            f"{found[0].side}.format is avro, and there is no 'schema.registry.url'. A"
            " record begins with the id that the registry gave its schema",
            option="schema.registry.url",
        )
    return tuple(
        replace(each, subject=_subject(each.side, given, topics))
        if each.is_text
        else each
        for each in found
    )


def record_formats(
    given: Mapping[str, str], subscription: Subscription
) -> tuple[RecordFormat, ...]:
    """The formats of typed columns; raises ConfigError.

    ``given`` has the options under lower-case names.
    """
    found = tuple(
        _record_format(side, given, subscription)
        for side in _SIDES
        if _format(side, given) == "avro"
    )
    if not found and f"{REGISTRY}url" in given:
        raise ConfigError(
            "option 'schema.registry.url' has no effect without value.format=avro or"
            " key.format=avro. Set one of them",
            option="value.format",
        )
    return found


def _format(side: Side, given: Mapping[str, str]) -> str:
    word = choice("bytes", "avro")(
        f"{side}.format", given.get(f"{side}.format", "bytes")
    )
    alone = [e for e in _ENDINGS if f"{side}.{e}" in given]
    if word == "bytes" and alone:
        raise ConfigError(
            f"option '{side}.{alone[0]}' has no effect without {side}.format=avro",
            option=f"{side}.format",
        )
    return word


def _record_format(
    side: Side, given: Mapping[str, str], subscription: Subscription
) -> RecordFormat:
    registry = registry_settings(given)
    schema = legal_schema(
        f"{side}.schema",
        given.get(f"{side}.schema", "latest"),
        has_registry=bool(registry),
    )
    is_named = schema == "latest" or schema.isdecimal()
    mode = choice("failfast", "permissive")(
        f"{side}.mode", given.get(f"{side}.mode", "failfast")
    )
    fixed = given.get(f"{side}.schema.fixed")
    return RecordFormat(
        side=side,
        schema=schema,
        subject=_subject(side, given, subscription) if is_named else "",
        is_permissive=mode == "permissive",
        registry=registry,
        reader=None if fixed is None else read_fixed(fixed),
    )


def _subject(side: Side, given: Mapping[str, str], subscription: Subscription) -> str:
    name = f"{side}.subject.name.strategy"
    word = given.get(name, _STRATEGIES[0]).strip().rpartition(".")[2]
    if word not in _STRATEGIES:
        raise ConfigError.illegal(name, given.get(name), ", ".join(_STRATEGIES))
    record = given.get(f"{side}.record.name", "").strip()
    if word != _STRATEGIES[0] and not record:
        raise ConfigError(
            f"{name}={word} needs option '{side}.record.name', the full name of the"
            f" record; or give the schema as {side}.schema=id:N",
            option=f"{side}.record.name",
        )
    subjects: dict[str, Callable[[], str]] = {
        _STRATEGIES[0]: lambda: f"{_topic(side, subscription)}-{side}",
        _STRATEGIES[1]: lambda: record,
        _STRATEGIES[2]: lambda: f"{_topic(side, subscription)}-{record}",
    }
    return subjects[word]()


def _topic(side: Side, subscription: Subscription) -> str:
    names: set[str] = set()
    if isinstance(subscription, Topics):
        names = set(subscription.names)
    elif isinstance(subscription, Assigned):
        names = {partition.topic for partition in subscription.partitions}
    if len(names) != 1:
        raise ConfigError(
            "there is no single topic whose name gives the subject of the schema. Give"
            f" {side}.schema=id:N, or"
            f" {side}.subject.name.strategy=RecordNameStrategy with"
            f" {side}.record.name",
            option=f"{side}.schema",
        )
    return names.pop()


def fixed_option(side: Side, schema: SchemaText) -> dict[str, str]:
    """The schema that ``load()`` has found, as an option of the source."""
    return {f"{side}.schema.fixed": json.dumps(schema)}


def read_fixed(text: str) -> SchemaText:
    """The result of ``fixed_option``."""
    found, number, references = json.loads(text)
    return SchemaText(found, number, tuple(references))
