"""What a component emits: the names of its fields and, if declared, their types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from kafka_tx.errors import ConfigError
from kafka_tx.topology.rows.ddl import parse_ddl, parse_type

TX = "tx"
"""Name of the first column of every row: the attempt. It is never declared."""

DEFAULT_STREAM = "default"
"""The stream that ``fields`` declares and ``emit`` uses when none is named."""

TX_TYPE = pa.struct([("txid", pa.int64()), ("attempt_id", pa.int64())])
"""How the attempt looks as an Arrow column."""

FieldsLike: TypeAlias = "Fields | str | Iterable[str] | Iterable[tuple[str, Any]]"
"""How fields may be declared: names, pairs (name, type), DDL text, an Arrow schema.

A schema is an iterable of its (Arrow) fields, hence it needs no place in the type.
"""


class DeclarationError(ConfigError):
    """What a component does contradicts its declaration, whatever row it was given."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The declared fields of one stream, without ``tx``.

    Attributes:
        names: In emission order.
        types: Their Arrow types; None when only names were declared. Untyped fields
            hold any Python object; their Arrow types are found per batch when needed.
    """

    names: tuple[str, ...] = ()
    types: tuple[pa.DataType, ...] | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            _check_name(name, self.names)

    @classmethod
    def parse(cls, declared: FieldsLike) -> Fields:
        """Read any of the forms a component may declare its fields in.

        Raises:
            ConfigError: A name is empty, twice there or ``tx``; a type is unknown; some
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
        """Number of fields, ``tx`` not counted."""
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
