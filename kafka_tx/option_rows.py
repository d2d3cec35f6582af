"""Options as rows: name, sentence, parser, default; and the parsers of values.

A parser takes the option's documented name, for errors, and the value as it was given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from kafka_tx.errors import ConfigError
from kafka_tx.logs import event_log

logger = event_log(__name__)

Word = TypeVar("Word", bound=str)
Value = TypeVar("Value")

_WHOLE = re.compile(r"[+-]?[0-9]+")
_INT64 = 2**63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_2000_MS, _YEAR_3000_MS = 946_684_800_000, 32_503_680_000_000
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_UNITS_US = {
    "us": 1,
    "": 1_000,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_UNITS_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def text(name: str, value: object) -> str:
    """Any text that is not empty; raises ConfigError (it is empty, or no text)."""
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ConfigError.illegal(name, value, "text that is not empty")


def choice(*legal: Word) -> Callable[[str, object], Word]:
    """One of a few words, in any case; raises ConfigError for another one."""

    def read(name: str, value: object) -> Word:
        for word in legal:
            if str(value).strip().lower() == word:
                return word
        raise ConfigError.illegal(name, value, ", ".join(legal))

    return read


def boolean(name: str, value: object) -> bool:
    """``true`` or ``false``; raises ConfigError (it is neither)."""
    word = str(value).strip().lower()
    if word not in {"true", "false"}:
        raise ConfigError.illegal(name, value, "true or false")
    return word == "true"


def whole(least: int = 1, unit: int = 1) -> Callable[[str, object], int]:
    """A whole number from ``least``, times ``unit``; raises ConfigError for others."""

    def read(name: str, value: object) -> int:
        given = "" if isinstance(value, bool) else str(value).strip().removeprefix("+")
        if not given.isdecimal() or int(given) < least:
            must = f"{name} must be positive: " if least else ""
            legal = f"a whole number from {least}"
            raise ConfigError(
                f"{must}option '{name}' is {value!r}; legal: {legal}",
                option=name,
                value=value,
            )
        return int(given) * unit

    return read


def time_ms(name: str, value: object) -> int:
    """Milliseconds since 1970, -1 (the end) or -2 (the beginning); raises ConfigError.

    A time that was most probably given in another unit is logged with its date.
    """
    text = str(value).strip()
    number = int(text) if _WHOLE.fullmatch(text) else None
    if number is None or not -2 <= number < _INT64:
        legal = "milliseconds since 1970, -1 for the end, or -2 for the beginning"
        raise ConfigError.illegal(name, value, legal)
    if 0 < number < _YEAR_2000_MS or number > _YEAR_3000_MS:
        logger.warning("option '%s' is %d, which is %s", name, number, as_date(number))
    return number


def as_date(time_ms: int) -> str:
    """The date of milliseconds since 1970, for people, and whether it looks odd."""
    try:
        date = (_EPOCH + timedelta(milliseconds=time_ms)).isoformat()
    except OverflowError:
        date = "a time after the year 9999"
    if 0 < time_ms < _YEAR_2000_MS:
        return f"{date}: times are in milliseconds. For seconds, add three zeros"
    if time_ms > _YEAR_3000_MS:
        return f"{date}: times are in milliseconds. Cut micro- or nanoseconds to them"
    return date


def duration_ms(name: str, value: object) -> int:
    """A time such as ``500ms``, ``30s``, ``15m``, ``1h``; a bare number is ms."""
    match = _NUMBER_AND_UNIT.fullmatch(str(value))
    unit = match.group(2).lower() if match else None
    if match is None or unit not in _UNITS_US:
        raise ConfigError.illegal(name, value, "a time such as 500ms, 30s, 15m, 1h")
    return int(match.group(1)) * _UNITS_US[unit] // 1_000


def size_bytes(name: str, value: object) -> int:
    """Bytes from 1, such as ``1000000``, ``500k``, ``64m``, ``2g``; k is 1024."""
    match = _NUMBER_AND_UNIT.fullmatch(str(value))
    unit = match.group(2).lower().removesuffix("b") if match else ""
    found = int(match.group(1)) * _UNITS_BYTES.get(unit, 0) if match else 0
    if found:
        return found
    raise ConfigError.illegal(name, value, "bytes from 1, such as 1000000, 64m, 2g")


def hosts(name: str, value: object) -> list[str]:
    """Host names: a list, one as JSON, or separated by commas; raises ConfigError."""
    found: object = value
    if isinstance(value, str):
        given = value.strip()
        with suppress(ValueError):  # it is no JSON, and no list then
            found = json.loads(given) if given.startswith("[") else given.split(",")
    if isinstance(found, list | tuple):
        found = [str(host).strip() for host in found]
        if found and all(found):
            return found
    raise ConfigError.illegal(name, value, "a list of host names")


# --- rows -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    """One row of a table of options.

    Attributes:
        name: As it is documented.
        field: The field that it sets; empty: it is parsed together with others.
        read: Parses the value; takes the name, too.
        default: As the docs show it.
    """

    name: str
    sentence: str
    field: str = ""
    read: Callable[[str, Any], Any] = text
    default: str = ""


def row(
    name: str, sentence: str, read: Callable[[str, Any], Any] = text, shown: str = ""
) -> dict[str, Option]:
    """Metadata that makes a field of a dataclass an option."""
    return {"row": Option(name, sentence, read=read, default=shown)}


def option(
    default: Value,
    name: str,
    sentence: str,
    read: Callable[[str, Any], Any] = text,
    shown: str = "",
) -> Value:
    """A field that is an option; the docs show ``shown`` or the default."""
    return field(default=default, metadata=row(name, sentence, read, shown))


def rows(*kinds: type[Any]) -> tuple[Option, ...]:
    """The options among the fields of these dataclasses."""
    return tuple(
        replace(one.metadata["row"], field=one.name, default=_shown(one))
        for kind in kinds
        for one in fields(kind)
        if "row" in one.metadata
    )


def _shown(one: Any) -> str:  # noqa: ANN401 - a field of any dataclass
    given: str = one.metadata["row"].default
    has_none = one.default is MISSING or one.default is None
    return given or ("" if has_none else str(one.default).lower())


def values_of(options: Iterable[Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given under lower-case names; raises ConfigError."""
    return {
        each.field: each.read(each.name, given[each.name.lower()])
        for each in options
        if each.field and each.name.lower() in given
    }


def picked(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that are fields of the dataclass ``kind``."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in values.items() if name in names}
