"""Avro schemas as small trees of types.

A tree is made from the JSON of a schema and of those that it refers to. Attributes
without a meaning here are ignored, and so are logical types that the specification
calls invalid. A writer's schema may hold any union; see ``columns`` for a reader's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kafka_tx.errors import SchemaError

LARGEST_TEXT = 1 << 20
"""Characters of a schema; the registry's own topic holds no larger record."""

DEEPEST = 64
"""Types inside each other, the outermost included."""

MOST_TYPES = 10_000
"""Types of a schema, each counted as often as it is used."""

_TOO_DEEP = f"the schema has more than {DEEPEST} types in each other"

NO_DEFAULT: Any = object()

PRIMITIVES = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOGICAL = {
    "int": ("date", "time-millis"),
    "long": (
        *("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"),
        *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
    ),
    "bytes": ("decimal",),
    "string": ("uuid",),
    "fixed": ("decimal", "duration", "uuid"),
}
_SIZES = {"duration": 12, "uuid": 16}


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical type; empty: none. ``precision`` and ``scale``: of a decimal."""

    name: str = ""
    precision: int = 0
    scale: int = 0


_PLAIN = Logical()


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts."""

    kind: str
    logical: Logical = _PLAIN


NULL = Primitive("null")


@dataclass(frozen=True, slots=True)
class Fixed:
    """So many bytes."""

    name: str
    size: int
    logical: Logical = _PLAIN
    aliases: tuple[str, ...] = ()
    kind: str = "fixed"


@dataclass(frozen=True, slots=True)
class Enum:
    """One of some words; ``default`` stands for words that a reader does not know."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = ()
    kind: str = "enum"


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of items."""

    items: Type
    kind: str = "array"


@dataclass(frozen=True, slots=True)
class Map:
    """Values by text."""

    values: Type
    kind: str = "map"


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types."""

    branches: tuple[Type, ...]
    kind: str = "union"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record; ``default`` is its JSON, or ``NO_DEFAULT``."""

    name: str
    type: Type
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """Named fields, in the order in which they are written."""

    name: str
    fields: tuple[Field, ...]
    aliases: tuple[str, ...] = ()
    kind: str = "record"


Type: TypeAlias = Primitive | Fixed | Enum | Array | Map | Union | Record


def parse(text: str, references: Iterable[str] = ()) -> Type:
    """The tree of a schema.

    ``references`` are the texts of schemas whose names it uses, each after those that
    it uses itself.

    Raises:
        SchemaError: It is no Avro schema, or it is refused: a type that contains
            itself, or more text, depth or types than the bounds above.
    """
    parser = _Parser({})
    try:
        *_, found = [parser.parse(each) for each in (*references, text)]
        _check_size(found)
    except RecursionError:
        raise SchemaError(_TOO_DEEP) from None
    return found


def unqualified(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition(".")[2]


def _check_size(schema: Type) -> None:
    """Refuse too many types, and too many in each other.

    One that is used again counts again, and is looked at once: a short text may stand
    for millions of types.
    """
    known: dict[int, tuple[int, int]] = {}

    def size(given: Type) -> tuple[int, int]:
        if id(given) not in known:
            inner = [size(part) for part in _parts(given)]
            types = 1 + sum(types for types, _ in inner)
            known[id(given)] = types, 1 + max((depth for _, depth in inner), default=0)
        return known[id(given)]

    types, depth = size(schema)
    if depth > DEEPEST:
        raise SchemaError(_TOO_DEEP)
    if types > MOST_TYPES:
        raise SchemaError(f"the schema has more than {MOST_TYPES} types")


def _parts(schema: Type) -> Iterable[Type]:
    match schema:
        case Record(fields=fields):
            return [each.type for each in fields]
        case Union(branches=branches):
            return branches
        case Array(items=part) | Map(values=part):
            return (part,)
        case _:
            return ()


@dataclass(slots=True)
class _Parser:
    names: dict[str, Type | None]
    """What is defined so far; None: its definition has not ended."""

    def parse(self, text: str) -> Type:
        if len(text) > LARGEST_TEXT:
            raise SchemaError(
                f"the schema has {len(text)} characters; legal: at most {LARGEST_TEXT}"
            )
        return self.type(_json(text), "")

    def type(self, given: Any, space: str) -> Type:  # noqa: ANN401, C901, PLR0911 - JSON; a table
        match given:
            case str():
                return self._named(given, space, {})
            case list():
                return self._union(given, space)
            case {"type": (dict() | list()) as inner}:
                return self.type(inner, space)
            case {"type": "array"}:
                return Array(self._part(given, "items", space))
            case {"type": "map"}:
                return Map(self._part(given, "values", space))
            case {"type": "fixed" | "enum" | "record" | "error"}:
                return self._definition(given, space)
            case {"type": str(kind)}:
                return self._named(kind, space, given)
            case dict():
                raise SchemaError(f"{_short(given)} has no member 'type'")
            case _:
                raise SchemaError(f"{_short(given)} is no type of an Avro schema")

    def _part(self, given: Mapping[str, Any], member: str, space: str) -> Type:
        if member not in given:
            raise SchemaError(f"{_short(given)} has no member '{member}'")
        return self.type(given[member], space)

    def _named(self, kind: str, space: str, given: Mapping[str, Any]) -> Type:
        if kind in PRIMITIVES:
            return Primitive(kind, _logical(kind, given))
        for name in (_full(kind, space), kind):
            if name in self.names:
                found = self.names[name]
                if found is not None:
                    return found
                raise SchemaError(
                    f"type '{name}' contains itself, and recursive types have no column"
                    " of Spark"
                )
        raise SchemaError(
            f"type '{kind}' is neither one of Avro's nor defined before it is used"
        )

    def _union(self, given: list[Any], space: str) -> Union:
        branches = tuple(self.type(each, space) for each in given)
        seen: set[str] = set()
        for branch in branches:
            if isinstance(branch, Union):
                raise SchemaError("a union contains another union")
            word = getattr(branch, "name", branch.kind)
            if word in seen:
                raise SchemaError(f"a union has the type '{word}' twice")
            seen.add(word)
        if not branches:
            raise SchemaError("a union has no types")
        return Union(branches)

    def _definition(self, given: Mapping[str, Any], space: str) -> Type:
        name = _name_of(given, space)
        space = name.rpartition(".")[0]
        aliases = tuple(_full(each, space) for each in _texts(given, "aliases", name))
        if name in self.names or name in PRIMITIVES:
            raise SchemaError(f"type '{name}' is defined twice")
        self.names[name] = None
        made: Type
        if given["type"] == "fixed":
            made = Fixed(name, _size(given, name), _logical("fixed", given), aliases)
        elif given["type"] == "enum":
            made = _enum(given, name, aliases)
        else:
            made = Record(name, self._fields(given, name, space), aliases)
        self.names[name] = made
        return made

    def _fields(
        self, given: Mapping[str, Any], name: str, space: str
    ) -> tuple[Field, ...]:
        fields = given.get("fields")
        if not isinstance(fields, list):
            raise SchemaError(f"record '{name}' has no list of fields")
        made = tuple(self._field(each, name, space) for each in fields)
        if len({each.name for each in made}) < len(made):
            raise SchemaError(f"record '{name}' has two fields of one name")
        return made

    def _field(self, given: Any, record: str, space: str) -> Field:  # noqa: ANN401 - JSON
        name = given.get("name") if isinstance(given, dict) else None
        if not isinstance(name, str) or not _LEGAL_NAME.fullmatch(name):
            raise SchemaError(
                f"record '{record}' has a field named {_short(name)}; legal: letters,"
                " digits and _, the first no digit"
            )
        return Field(
            name,
            self._part(given, "type", space),
            given.get("default", NO_DEFAULT),
            tuple(_texts(given, "aliases", name)),
        )


def _json(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()  # no half of a surrogate pair
    except UnicodeEncodeError:
        raise SchemaError("the schema has text that is no Unicode") from None
    except ValueError as error:
        word = text.strip()
        if word in PRIMITIVES:  # as some clients register them
            return word
        raise SchemaError(f"the schema is no JSON ({error}): {_short(text)}") from None
    return found


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _name_of(given: Mapping[str, Any], space: str) -> str:
    name, own = given.get("name"), given.get("namespace", space)
    if not isinstance(name, str) or not isinstance(own, str | None):
        raise SchemaError(f"{_short(given)} has no name")
    full = _full(name, own or "").removeprefix(".")
    if not _LEGAL_NAME.fullmatch(full.rpartition(".")[2]):  # of a namespace, as in Java
        raise SchemaError(f"{_short(full)} is no name of a type")
    return full


def _texts(given: Mapping[str, Any], member: str, of: str) -> Sequence[str]:
    found = given.get(member, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise SchemaError(f"'{member}' of '{of}' is no list of names")
    return found


def _size(given: Mapping[str, Any], name: str) -> int:
    size = given.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 31:
        raise SchemaError(f"the size of '{name}' is {_short(size)}; legal: from 0")
    return size


def _enum(given: Mapping[str, Any], name: str, aliases: tuple[str, ...]) -> Enum:
    symbols = tuple(_texts(given, "symbols", name))
    if not symbols or len(set(symbols)) < len(symbols):
        raise SchemaError(f"enum '{name}' has no symbols, or one twice")
    default = given.get("default")
    if default is not None and default not in symbols:
        raise SchemaError(f"the default of enum '{name}' is none of its symbols")
    return Enum(name, symbols, default, aliases)


def _logical(kind: str, given: Mapping[str, Any]) -> Logical:
    name = given.get("logicalType")
    if name not in _LOGICAL.get(kind, ()):
        return _PLAIN
    size = given.get("size", 0)
    if name != "decimal":
        is_sized = kind != "fixed" or size == _SIZES[name]
        return Logical(name) if is_sized else _PLAIN
    precision, scale = given.get("precision"), given.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return _PLAIN
    most = _digits(size) if kind == "fixed" else precision
    is_valid = 0 <= scale <= precision and 1 <= precision <= most
    return Logical(name, precision, scale) if is_valid else _PLAIN


def _digits(size: int) -> int:
    """The most decimal digits that so many bytes always hold."""
    return len(str((1 << (8 * min(size, 64) - 1)) - 1)) - 1 if size else 0


def _short(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:77]}…"
