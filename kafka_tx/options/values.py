"""Parses single option values: numbers, choices, durations.

A reader takes the option's documented name, for errors, and the value as it was given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

from kafka_tx.errors import ConfigError

Word = TypeVar("Word", bound=str)

_DURATION = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_UNITS_MS = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def text(name: str, value: object) -> str:
    """Any text that is not empty.

    Raises:
        ConfigError: It is empty, or no text.
    """
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
    """``true`` or ``false``.

    Raises:
        ConfigError: It is neither.
    """
    word = str(value).strip().lower()
    if word not in {"true", "false"}:
        raise ConfigError.illegal(name, value, "true or false")
    return word == "true"


def whole(least: int = 1, unit: int = 1) -> Callable[[str, object], int]:
    """A whole number from ``least``, times ``unit``; raises ConfigError for others."""

    def read(name: str, value: object) -> int:
        given = "" if isinstance(value, bool) else str(value).strip()
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


def long(name: str, value: object) -> int:
    """A whole number.

    Raises:
        ConfigError: It is none.
    """
    try:
        return int(str(value).strip())
    except ValueError:
        raise ConfigError.illegal(name, value, "a whole number") from None


def duration_ms(name: str, value: object) -> int:
    """A time such as ``500ms``, ``30s``, ``15m``, ``1h``; a bare number is ms.

    Raises:
        ConfigError: It is none.
    """
    match = _DURATION.fullmatch(str(value))
    unit = match.group(2).lower() if match else None
    if match is None or unit not in _UNITS_MS:
        raise ConfigError.illegal(name, value, "a time such as 500ms, 30s, 15m, 1h")
    return int(match.group(1)) * _UNITS_MS[unit]


def hosts(name: str, value: object) -> list[str]:
    """Host names: a list, one as JSON, or separated by commas.

    Raises:
        ConfigError: It is empty or something else.
    """
    if isinstance(value, str):
        given = value.strip()
        value = json.loads(given) if given.startswith("[") else given.split(",")
    if isinstance(value, list | tuple):
        found = [str(host).strip() for host in value]
        if found and all(found):
            return found
    raise ConfigError.illegal(name, value, "a list of host names")
