"""Single option values: from text to a number, a choice or a duration.

``given`` has the options under lower-case names; ``name`` is the one documented.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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


def choice(
    given: Mapping[str, str], name: str, legal: tuple[Word, ...], default: Word
) -> Word:
    """One of a few words, in any case.

    Raises:
        ConfigError: It is another word.
    """
    text = given.get(name.lower())
    if text is None:
        return default
    for value in legal:
        if text.strip().lower() == value:
            return value
    raise ConfigError.illegal(name, text, ", ".join(legal))


def boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """``true`` or ``false``.

    Raises:
        ConfigError: It is neither.
    """
    word = "true" if default else "false"
    return choice(given, name, ("true", "false"), word) == "true"


def positive(given: Mapping[str, str], name: str) -> int | None:
    """A whole number of 1 or more; None when it is not given.

    Raises:
        ConfigError: It is anything else.
    """
    text = given.get(name.lower())
    if text is None:
        return None
    value = long(name, text)
    if value < 1:
        raise ConfigError(
            f"{name} must be positive: option '{name}' is {text!r}; legal: a whole"
            " number, 1 or more.",
            option=name,
            value=text,
        )
    return value


def long(name: str, text: str) -> int:
    """A whole number.

    Raises:
        ConfigError: It is none.
    """
    try:
        return int(text.strip())
    except ValueError:
        raise ConfigError.illegal(name, text, "a whole number") from None


def duration_ms(name: str, text: str) -> int:
    """A time such as ``500ms``, ``30s``, ``15m``, ``1h``; a bare number is ms.

    Raises:
        ConfigError: It is none.
    """
    match = _DURATION.fullmatch(text)
    unit = match.group(2).lower() if match else None
    if match is None or unit not in _UNITS_MS:
        raise ConfigError.illegal(name, text, "a time such as 500ms, 30s, 15m, 1h")
    return int(match.group(1)) * _UNITS_MS[unit]
