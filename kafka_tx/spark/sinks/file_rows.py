"""Rows that come out of files as they went in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_tx.errors import ConfigError
from kafka_tx.sinks.publications import Form, Publication

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WRITTEN_AS: Mapping[str, Mapping[str, str]] = {
    "json": {},
    "csv": {
        "multiLine": "true",
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
    "text": {"lineSep": "\n"},
}
"""Formats whose files do not say how they were written, so that a reader needs all
options; and those without which values would change."""
_ZONE = {"timeZone": "UTC"}
"""Names of folders and texts have times without a zone."""
_NULL = "__HIVE_DEFAULT_PARTITION__"
_NOT_HELD: Mapping[str, tuple[Callable[[DataType], bool], str, str]] = {
    "csv": (
        lambda kind: isinstance(kind, BinaryType),
        "has no bytes: Spark writes a text such as '[61 62]', and reads this text",
        "base64({0}), hex({0}), string({0})",
    ),
    "json": (
        lambda kind: (
            isinstance(kind, MapType) and not isinstance(kind.keyType, StringType)
        ),
        "has no map whose keys are no texts: Spark writes it, and cannot read it",
        "transform_keys({0}, (k, v) -> string(k))",
    ),
    "orc": (
        lambda kind: isinstance(kind, TimestampType),
        "has times of the JVM's default zone: a reader whose JVM has another zone reads"
        " other times, and every reader changes those of the last second before 1970",
        "unix_micros({0})",
    ),
}
"""Types that a format does not hold, which Spark writes; why, and what to write."""
_OF_UTF8 = {"csv", "json"}
"""Formats that write U+FFFD for what is not UTF-8, as names of folders do."""
_WIDER: tuple[tuple[type[DataType], ...], ...] = (
    (ByteType, ShortType, IntegerType, LongType),
    (FloatType, DoubleType),
)


def form_of(
    df: DataFrame,
    format: str,  # noqa: A002 - as Spark calls it
    partition_by: Sequence[str],
    options: Mapping[str, str],
) -> Form:
    """The form of a batch; raises ConfigError for columns that cannot name folders."""
    for name in partition_by:
        kinds = [f.dataType for f in df.schema if f.name.lower() == name.lower()]
        is_bytes = any(isinstance(kind, BinaryType) for kind in kinds)
        if is_bytes or name.startswith("."):
            legal = (
                "columns with a name that does not begin with '.', as Spark reads no"
                " such folders, and without bytes: cast them, for example with hex()"
            )
            raise ConfigError.illegal("partition_by", name, legal)
    kept = {
        name: value
        for name, value in options.items()
        if format in _WRITTEN_AS or name.lower() == "timezone"
    }
    # in this order: Spark takes the last one, whatever its case
    kept = {**_ZONE, **_WRITTEN_AS.get(format, {}), **kept}
    return Form(format=format, partition_by=tuple(partition_by), options=kept)


def check_types(schema: StructType, form: Form, former: str | None) -> None:
    """Refuse a column whose values the format would change: ConfigError.

    A folder that has begun with such times in ORC (``former``, the schema of its last
    batch) goes on: they are read right where all JVMs have one zone.
    """
    if form.format not in _NOT_HELD:
        return
    is_not_held, why, other = _NOT_HELD[form.format]
    folders = {name.lower() for name in form.partition_by}

    def odd(columns: StructType) -> Iterator[StructField]:
        for field in columns:
            in_files = field.name.lower() not in folders
            if in_files and any(map(is_not_held, _kinds(field.dataType))):
                yield field

    is_begun = (
        form.format == "orc"
        and former is not None
        and any(odd(StructType.fromJson(json.loads(former))))
    )
    if is_begun:
        return
    for field in odd(schema):
        is_flat = is_not_held(field.dataType)
        instead = f"{other.format(field.name)} or " if is_flat else ""
        raise ConfigError(
            f"column '{field.name}' is {field.dataType.simpleString()}, and"
            f" {form.format} {why}. Nothing was written. Write {instead}another"
            " format such as parquet",
            option="df",
            value=field.name,
        )


def _kinds(kind: DataType) -> Iterator[DataType]:
    """The type, and those in it at any depth."""
    yield kind
    inner: list[DataType] = []
    if isinstance(kind, StructType):
        inner = [field.dataType for field in kind]
    elif isinstance(kind, ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    for each in inner:
        yield from _kinds(each)


def exact(df: DataFrame, form: Form) -> DataFrame:
    """The same rows; a value that would be read as another one stops the write."""
    checks: list[tuple[str, Column, str]] = []
    texts = {
        f.name.lower(): f.name for f in df.schema if isinstance(f.dataType, StringType)
    }
    given = {name.lower(): value for name, value in form.options.items()}
    if form.format == "text":
        for name in texts.values():
            value = F.col(_quoted(name))
            changes = value.isNull() | value.contains(given["linesep"])
            checks.append(
                (name, changes, "null or a line break: write json or parquet")
            )
    folders = {name.lower() for name in form.partition_by}
    inside = [name for name in df.columns if name.lower() not in folders]
    if form.format == "csv" and len(inside) == 1:  # a line without a text is none
        value = F.col(_quoted(inside[0]))
        is_lost = value.isNull() if not given.get("nullvalue") else F.lit(False)
        if inside[0] in texts.values() and given.get("emptyvalue") == "":
            is_lost |= value == ""
        why = "a value alone in its row that CSV writes as an empty line: write json"
        checks.append((inside[0], is_lost, why))
    for name in folders & texts.keys():
        changes = F.col(_quoted(texts[name])).isin("", _NULL)
        why = f"'' or '{_NULL}', which name the folder of null: use nullif, or filter"
        checks.append((texts[name], changes, why))
    why = "text that is not UTF-8: use make_valid_utf8, or base64"
    checks += [
        (field.name, changes, why)
        for field in df.schema
        if form.format in _OF_UTF8 or field.name.lower() in folders
        for changes in _not_utf8(F.col(_quoted(field.name)), field.dataType)
    ]
    values: dict[str, Column] = {}
    for name, changes, why in checks:
        value = values.get(name, F.col(_quoted(name)))
        refused = F.raise_error(F.lit(_refusal(name, why)))
        values[name] = F.when(changes, refused).otherwise(value)
    return df.withColumns(values) if values else df


def _not_utf8(value: Column, kind: DataType) -> list[Column]:
    """Whether a text in a value is not UTF-8, at any depth; none: it has no texts."""
    if isinstance(kind, StringType):
        return [~F.is_valid_utf8(value)]
    if isinstance(kind, ArrayType):
        return _any_not_utf8(value, kind.elementType)
    if isinstance(kind, MapType):
        keys = _any_not_utf8(F.map_keys(value), kind.keyType)
        return keys + _any_not_utf8(F.map_values(value), kind.valueType)
    fields = kind if isinstance(kind, StructType) else ()
    return [
        found
        for field in fields
        for found in _not_utf8(value.getField(field.name), field.dataType)
    ]


def _any_not_utf8(values: Column, kind: DataType) -> list[Column]:
    if not any(isinstance(each, StringType) for each in _kinds(kind)):
        return []
    return [F.exists(values, lambda one: reduce(or_, _not_utf8(one, kind)))]


def _refusal(name: str, why: str) -> str:
    return (
        f"append_files: column '{name}' has {why}. Readers would get another value, so"
        " nothing was published"
    )


def nullable(schema: str) -> StructType:
    """A schema of which each part may be null, as in all files."""
    return StructType.fromJson(json.loads(schema, object_hook=_may_be_null))


def as_stored(schema: str, form: Form) -> StructType:
    """The schema with which files of a form are read; Avro has no smaller integers."""
    if form.format == "avro":
        schema = json.dumps(json.loads(schema, object_hook=_as_avro))
    return nullable(schema)


def _as_avro(found: dict[str, Any]) -> dict[str, Any]:
    small = [
        name
        for name in ("type", "elementType", "valueType")
        if found.get(name) in ("byte", "short")
    ]
    return {**found, **dict.fromkeys(small, "integer")}


def _may_be_null(found: dict[str, Any]) -> dict[str, Any]:
    ways = {"nullable", "containsNull", "valueContainsNull"} & found.keys()
    return {**found, **dict.fromkeys(ways, True)}


def shape_of(wanted: Sequence[Publication], given: StructType | None) -> StructType:
    """The schema of what is read; raises ConfigError if a column changed its type."""
    if given is not None:
        return nullable(given.json())
    shape = nullable(wanted[-1].schema)
    for stored in dict.fromkeys(p.schema for p in wanted):
        for former, now in _changed(shape, nullable(stored)):
            raise ConfigError(
                f"column '{former.name}' was {former.dataType.simpleString()} in an"
                f" earlier batch, and is {now.simpleString()} in the last one. Nothing"
                " is lost: pass a schema to read_files, whose type of this column takes"
                " the values of both, such as string",
                option="schema",
                value=former.name,
            )
    return shape


def _changed(
    wide: StructType, narrow: StructType
) -> list[tuple[StructField, DataType]]:
    """Columns of both schemas, whose type in ``wide`` does not hold all values."""
    there = {field.name.lower(): field.dataType for field in wide}
    common = [(f, there[f.name.lower()]) for f in narrow if f.name.lower() in there]
    return [(f, now) for f, now in common if not _holds(now, f.dataType)]


def _holds(wide: DataType, narrow: DataType) -> bool:
    """Whether each value of a type is the same one in the other type."""
    if isinstance(wide, StructType) and isinstance(narrow, StructType):
        return not _changed(wide, narrow)
    if isinstance(wide, ArrayType) and isinstance(narrow, ArrayType):
        return _holds(wide.elementType, narrow.elementType)
    if isinstance(wide, MapType) and isinstance(narrow, MapType):
        is_same_key = _holds(wide.keyType, narrow.keyType)
        return is_same_key and _holds(wide.valueType, narrow.valueType)
    for line in _WIDER:
        if type(wide) in line and type(narrow) in line:
            return line.index(type(wide)) >= line.index(type(narrow))
    return bool(wide == narrow)


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))
