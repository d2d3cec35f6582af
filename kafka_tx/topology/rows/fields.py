"""Fields that a component emits: their names and, if declared, their types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from kafka_tx.errors import ConfigError

_SIMPLE: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
}
_TOKENS = re.compile(r"\s*([A-Za-z_][\w.\-]*|`[^`]+`|\d+|[<>(),:]|\S)")
_NAME = re.compile(r"[A-Za-z_][\w.\-]*|`[^`]+`")


def parse_ddl(text: str) -> list[tuple[str, pa.DataType | None]]:
    """Read a list of fields; a field without a type gives None for it.

    Raises:
        ConfigError: The text is no list of fields.
    """
    return _Parser(text).columns()


def parse_type(text: str) -> pa.DataType:
    """Read one type, such as ``bigint`` or ``array<struct<a: int>>``.

    Raises:
        ConfigError: The text is no type.
    """
    parser = _Parser(text)
    found = parser.type()
    parser.expect_end()
    return found


class _Parser:
    """Recursive descent over the tokens of one declaration."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = [*_TOKENS.findall(text), ""]
        self._at = 0

    def columns(self) -> list[tuple[str, pa.DataType | None]]:
        columns: list[tuple[str, pa.DataType | None]] = []
        while True:
            name = self._name()
            self._skip(":")
            typed = self._peek() not in ("", ",")
            columns.append((name, self.type() if typed else None))
            if not self._skip(","):
                self.expect_end()
                return columns

    def type(self) -> pa.DataType:
        word = self._next().lower()
        if word == "decimal" and self._skip("("):
            precision, scale = self._decimal()
            return pa.decimal128(precision, scale)
        if word in ("array", "map", "struct"):
            return self._nested(word)
        if word not in _SIMPLE:
            raise self._error(f"unknown type {word!r}")
        return _SIMPLE[word]

    def _decimal(self) -> tuple[int, int]:
        precision, scale = self._number(), 0
        if self._skip(","):
            scale = self._number()
        self._expect(")")
        if not (1 <= precision <= 38 and scale <= precision):
            raise self._error(f"decimal({precision},{scale}) is out of range")
        return precision, scale

    def _nested(self, word: str) -> pa.DataType:
        self._expect("<")
        if word == "array":
            found = pa.list_(self.type())
        elif word == "map":
            key = self.type()
            self._expect(",")
            found = pa.map_(key, self.type())
        else:
            found = pa.struct(self._members())
        self._expect(">")
        return found

    def _members(self) -> list[tuple[str, pa.DataType]]:
        members = []
        while True:
            name = self._name()
            self._skip(":")
            members.append((name, self.type()))
            if not self._skip(","):
                return members

    def expect_end(self) -> None:
        if self._peek():
            raise self._error(f"{self._peek()!r} is not expected here")

    def _name(self) -> str:
        token = self._next()
        if not _NAME.fullmatch(token):
            raise self._error(f"{token!r} is not a field name")
        return token.strip("`")

    def _number(self) -> int:
        token = self._next()
        if not token.isdigit():
            raise self._error(f"{token!r} is not a number")
        return int(token)

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            raise self._error(f"{token!r} is missing before {self._peek()!r}")

    def _skip(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._at += 1
        return True

    def _peek(self) -> str:
        return self._tokens[self._at]

    def _next(self) -> str:
        token = self._tokens[self._at]
        if not token:
            raise self._error("it ends too early")
        self._at += 1
        return token

    def _error(self, reason: str) -> ConfigError:
        return ConfigError.illegal(
            "fields",
            self._text,
            "names and Spark types, such as 'word string, count bigint'",
            f"The text cannot be read: {reason}.",
        )


TX = "tx"
"""Name of the first column of every row: the attempt. It is never declared."""

DEFAULT_STREAM = "default"
"""The stream that ``fields`` declares, and that ``emit`` uses if none is named."""

TX_TYPE = pa.struct([("txid", pa.int64()), ("attempt_id", pa.int64())])
"""The Arrow type of the attempt's column."""

FieldsLike: TypeAlias = "Fields | str | Iterable[str] | Iterable[tuple[str, Any]]"
"""How fields may be declared: names, pairs (name, type), DDL text, an Arrow schema.

A schema is an iterable of its Arrow fields, so the type does not name it.
"""


class DeclarationError(ConfigError):
    """A component contradicts its declaration, whatever row it was given."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The declared fields of one stream, without ``tx``.

    Attributes:
        names: In emission order.
        types: Their Arrow types; None: only names were declared. Untyped fields hold
            any Python object; their Arrow types are inferred per batch if needed.
    """

    names: tuple[str, ...] = ()
    types: tuple[pa.DataType, ...] | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            _check_name(name, self.names)

    @classmethod
    def parse(cls, declared: FieldsLike) -> Fields:
        """Read any of the legal forms of a component's fields.

        Raises:
            ConfigError: A name is empty, duplicate or ``tx``; a type is unknown; some
                fields have types and others have none.
        """
        if isinstance(declared, Fields):
            return declared
        if isinstance(declared, str):
            return cls._of_pairs(parse_ddl(declared))
        return cls._of_pairs([_pair(item) for item in declared])

    @classmethod
    def _of_pairs(cls, pairs: Sequence[tuple[str, pa.DataType | None]]) -> Fields:
        names = tuple(name for name, _ in pairs)
        types = tuple(kind for _, kind in pairs)
        if not pairs or all(kind is None for kind in types):
            return cls(names)
        if any(kind is None for kind in types):
            without = [name for name, kind in pairs if kind is None]
            raise ConfigError.illegal(
                "fields",
                names,
                "a type for all of them or for none",
                f"Without a type: {', '.join(without)}.",
            )
        return cls(names, types)

    @property
    def schema(self) -> pa.Schema | None:
        """The Arrow schema, or None when the fields are untyped."""
        if self.types is None:
            return None
        return pa.schema(list(zip(self.names, self.types, strict=True)))

    def indexes(self, wanted: Iterable[str]) -> tuple[int, ...]:
        """Positions of these names; all of them must be declared."""
        return tuple(self.names.index(name) for name in wanted)

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        if self.types is None:
            return ", ".join(self.names)
        pairs = zip(self.names, self.types, strict=True)
        return ", ".join(f"{name} {kind}" for name, kind in pairs)


def _pair(item: object) -> tuple[str, pa.DataType | None]:
    match item:
        case str(name):
            return name, None
        case (str(name), str(kind)):
            return name, parse_type(kind)
        case (str(name), pa.DataType() as kind):
            return name, kind
        case pa.Field() as field:
            return field.name, field.type
        case _:
            pass
    raise ConfigError.illegal(
        "fields", item, "a name, or a pair of a name and an Arrow or DDL type"
    )


def _check_name(name: str, names: tuple[str, ...]) -> None:
    if not name:
        raise ConfigError.illegal("fields", names, "names that are not empty")
    if name == TX:
        raise ConfigError.illegal(
            "fields",
            names,
            "any names but 'tx'",
            "Every row gets 'tx' as its first column by itself.",
        )
    if names.count(name) > 1:
        raise ConfigError.illegal(
            "fields", names, "different names", f"{name!r} is there twice."
        )
