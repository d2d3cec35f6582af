"""How long a database may be silent or away; parameters of its URL decide otherwise."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from sqlalchemy.engine import URL

from kafka_tx.errors import ConfigError
from kafka_tx.transactions.patience import DEFAULT_MS


@dataclass(frozen=True, kw_only=True, slots=True)
class Waits:
    """Our own parameters of a database's URL.

    Attributes:
        retry_for_ms: How long what cannot be had now is tried again; 0 tries once.
        silence_ms: PostgreSQL with psycopg: how long a connection may be silent before
            the server is asked, by another one, what became of it; 0 never asks.
    """

    retry_for_ms: int = DEFAULT_MS
    silence_ms: int = 8_000

    @classmethod
    def taken_from(cls, url: URL, option: str) -> tuple[URL, Waits]:
        """The URL without our parameters, and what they say.

        Raises:
            ConfigError: One of them is no number.
        """
        names = [field.name for field in fields(cls)]
        given = {
            name: _number(name, url.query[name], option)
            for name in names
            if name in url.query
        }
        return url.difference_update_query(names), replace(cls(), **given)


def _number(name: str, text: str | tuple[str, ...], option: str) -> int:
    if not (isinstance(text, str) and text.isascii() and text.isdecimal()):
        raise ConfigError.illegal(
            f"{option}: {name}", text, "milliseconds, such as 120000; 0 switches it off"
        )
    return int(text)
