"""Log lines: one for each event, with its id, txid and attempt.

All loggers are children of ``kafka_tx``; handlers and levels are the user's. Nothing
that happens with every batch is above DEBUG. A line ends with what is known, such as
``[id=orders txid=12 attempt=12:3000000000001]``, and its ``LogRecord`` has the same as
attributes ``id``, ``txid`` and ``attempt`` (None: not known).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from kafka_tx.model import TransactionAttempt

_R = TypeVar("_R")

_FIELDS = ("id", "txid", "attempt")

_about: ContextVar[Mapping[str, Any]] = ContextVar("kafka_tx_logs", default={})  # noqa: B039 - never changed


class EventLog(logging.LoggerAdapter[logging.Logger]):
    """A logger that takes ``id``, ``txid`` and ``attempt``, too; see ``about``."""

    def log(self, level: int, msg: object, *args: object, **named: Any) -> None:  # noqa: ANN401 - as in logging
        """Write a line if the level is on; line breaks of its values become ``|``."""
        if not self.isEnabledFor(level):
            return
        given = {name: named.pop(name) for name in _FIELDS if name in named}
        fields = {**_about.get(), **_named(given)}
        text, values = str(msg), tuple(map(_value, args))
        if fields:
            text = f"{text if args else text.replace('%', '%%')} [%s]"
            known = [f"{name}={fields[name]}" for name in _FIELDS if name in fields]
            values = (*values, " ".join(known))
        extra = {name: fields.get(name) for name in _FIELDS}
        named["stacklevel"] = named.get("stacklevel", 1) + 1
        self.logger.log(level, text, *values, extra=extra, **named)


def event_log(name: str) -> EventLog:
    """The log of a module."""
    return EventLog(logging.getLogger(name))


@contextmanager
def about(**fields: Any) -> Iterator[None]:  # noqa: ANN401 - as EventLog takes them
    """Add these fields to every line that this thread logs inside the block."""
    token = _about.set({**_about.get(), **_named(fields)})
    try:
        yield
    finally:
        _about.reset(token)


def same_events(call: Callable[[], _R]) -> Callable[[], _R]:
    """Wrap a call for another thread, which then logs with this thread's fields."""
    return partial(copy_context().run, call)


class JsonFormatter(logging.Formatter):
    """Each line as a JSON object: for logs that a machine reads.

    Its members: ``time`` (UTC, ISO 8601), ``level``, ``logger``, ``message``; where
    known ``id``, ``txid``, ``attempt`` and ``error`` (with its traceback). Lines of
    other loggers are formatted, too.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the record holds."""
        at = datetime.fromtimestamp(record.created, UTC)
        members = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: getattr(record, name, None) for name in _FIELDS},
            "error": self.formatException(record.exc_info) if record.exc_info else None,
        }
        known = {name: value for name, value in members.items() if value is not None}
        return json.dumps(known, ensure_ascii=False, default=str)


def _named(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a line; an attempt adds its txid and, if known, its id."""
    known = {name: value for name, value in fields.items() if value not in (None, "")}
    attempt = known.get("attempt")
    if not isinstance(attempt, TransactionAttempt):
        return known
    found: dict[str, Any] = {"txid": attempt.txid, "attempt": str(attempt)}
    return (
        found
        | ({"id": attempt.source} if attempt.source else {})
        | {name: value for name, value in known.items() if name != "attempt"}
    )


def _value(value: object) -> object:
    return value if isinstance(value, int | float) else one_line(str(value))


def one_line(text: str) -> str:
    """A text of records or of user code, for a terminal or a line of a log.

    Line breaks become ``|``, other characters that are not shown become escapes.
    """
    lines = (line.strip() for line in text.splitlines())
    return shown(" | ".join(line for line in lines if line))


def shown(text: str) -> str:
    """A text for a terminal: what is neither shown nor a line break is an escape."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character == "\n" or character.isprintable():
        return character
    return character.encode("unicode_escape").decode()
