"""Which schema a source reads with: found once, at ``load()``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path

from kafka_tx.config import RecordFormat
from kafka_tx.errors import ConfigError, SchemaError
from kafka_tx.model import SchemaText
from kafka_tx.schemas.avro import LARGEST_TEXT, parse
from kafka_tx.schemas.columns import Slot, column_of
from kafka_tx.schemas.registry import (
    Registry,
    UnknownSchemaError,
    check_settings,
    has_rule,
)


def reader_schema(record_format: RecordFormat) -> SchemaText:
    """The reader's schema as it is now (driver), after a check that it has a column.

    Raises:
        ConfigError: The schema cannot be read, or is refused; the registry has none, or
            its settings are illegal.
        RegistryError: The registry does not answer, or refuses the client.
    """
    with (
        _refusals(record_format, lambda error: _advice(error, record_format)),
        closing(Registry.at_start(record_format.registry)) as registry,
    ):
        return _found(record_format, registry)


def writer_schema(
    record_format: RecordFormat, *, registers: bool, is_running: bool
) -> SchemaText:
    """The schema to write with, as it is now, with its id (driver).

    Args:
        record_format: Of the column.
        registers: A schema that was given as a text is registered unless it is already.
        is_running: It is written by a query that runs already: a registry that is away
            is waited for as in a task.

    Raises:
        ConfigError: The schema cannot be had, is refused, or is not registered.
        RegistryError: The registry does not answer, or refuses the client.
    """

    def advice(error: SchemaError) -> str:
        said = "Nothing was written."
        is_absent = isinstance(error, UnknownSchemaError)
        if is_absent and record_format.is_text and not registers:
            said += " Set auto.register.schemas=true to register it"
        return said

    settings = record_format.registry
    registry = Registry(settings) if is_running else Registry.at_start(settings)
    registry.writes = True
    with _refusals(record_format, advice), closing(registry):
        found = _found(record_format, registry)
        if found.id is not None:
            return found
        return registry.registered(
            record_format.subject, found.text, registers=registers
        )


@contextmanager
def _refusals(
    record_format: RecordFormat, advice: Callable[[SchemaError], str]
) -> Iterator[None]:
    """Let an error of a schema name its option and the next step."""
    try:
        yield
    except SchemaError as error:
        option = f"{record_format.side}.schema"
        where = f", subject '{record_format.subject}'" if record_format.subject else ""
        raise ConfigError(
            f"option '{option}' is {record_format.schema[:200]!r}{where}:"
            f" {error.message}. {advice(error)}",
            option=option,
        ) from None


@lru_cache(maxsize=64)
def column(schema: SchemaText) -> Slot:
    """The column of a reader's schema; raises SchemaError."""
    return column_of(parse(schema.text, schema.references))


def _found(record_format: RecordFormat, registry: Registry) -> SchemaText:
    if record_format.registry:
        check_settings(record_format.registry)
    word = record_format.schema
    if record_format.is_text:
        found = SchemaText(_text(f"{record_format.side}.schema", word))
    elif word.startswith("id:"):
        found = registry.by_id(int(word.removeprefix("id:")))
    else:
        version = None if word == "latest" else int(word)
        found = registry.of_subject(record_format.subject, version)
    column(found)
    return found


def _text(option: str, word: str) -> str:
    path = word.removeprefix("@")
    if path == word:
        return word
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(LARGEST_TEXT + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the file of option '{option}' cannot be read: {error}. It is read once,"
            " by load(), on the machine of the driver",
            option=option,
            value=path,
        ) from None


def _advice(error: SchemaError, record_format: RecordFormat) -> str:
    side, word = record_format.side, record_format.schema
    if has_rule(error):
        return (
            f"Nothing was read. Set {side}.schema=id:N, where N is the id of a version"
            f" without such a rule, and {side}.mode=PERMISSIVE: records with a rule are"
            f" then null and have their bytes in '{side}_bytes', and with_dead_letters"
            f" writes them to a topic. Or set {side}.format=bytes and decode them with"
            " Confluent's deserializer"
        )
    if not isinstance(error, UnknownSchemaError):
        return (
            f"Nothing was read. Set {side}.schema to a schema that the records can be"
            f" read with, or {side}.format=bytes and decode in Spark"
        )
    if word != "latest":
        return (
            f"Nothing was read. Set {side}.schema to latest, or to a version or an id"
            " that the registry has"
        )
    return (
        "Nothing was read. If the schema is registered under another name, set"
        f" '{side}.subject.name.strategy' or {side}.schema=id:N; if no record was"
        " written so far, register the schema first"
    )
