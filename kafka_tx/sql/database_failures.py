"""Turns errors of databases into ours, and shows URLs without secrets."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import exc
from sqlalchemy.engine import URL

from kafka_tx.errors import (
    StateCorruptedError,
    StateError,
    StateLostError,
    StateUnavailableError,
)
from kafka_tx.offsets.owners import LOST_BY
from kafka_tx.sql.database_refusals import next_step
from kafka_tx.transactions.ownership.refusals import AFTER_A_DATABASE, AFTER_A_FILE

_SQLITE_LATER = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL")
_SQLITE_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_SQLITE_FILE = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")
_SQLSTATE_LATER = ("08", "40", "53", "57")
_SQLSTATE_GONE = "42P01"
_MYSQL_GONE = 1146
_MYSQL_LATER = (
    *(1042, 1043, 1047, 1053, 1158, 1159, 1160, 1161),
    *(2002, 2003, 2006, 2013),
)


def translate(error: exc.SQLAlchemyError, url: URL) -> StateError:
    """Our error for one of SQLAlchemy's; the text names the address and what to do."""
    store = address(url)
    reason = _reason(error, url)
    orig = getattr(error, "orig", None)
    if _is_gone(orig):
        return StateLostError(
            f"tables of kafka_tx in {store}, which were there, are gone ({reason}): the"
            f" database {LOST_BY}. Nothing was written, and no table was made in their"
            f" place. {AFTER_A_DATABASE}",
            store=store,
        )
    if url.get_backend_name() == "sqlite":
        return _of_sqlite(orig, url, store, reason)
    found = next_step(_sqlstate(orig), _number(orig), reason, url)
    if found is not None:
        advice, passes = found
        kind = StateUnavailableError if passes else StateError
        return kind(
            f"the database {store} refuses: {reason.rstrip('.')}. {advice}", store=store
        )
    if _is_for_later(error, orig):
        return StateUnavailableError(
            f"the database {store} does not answer: {reason}", store=store
        )
    return _of_statement(store, reason)


def _of_statement(store: str, reason: str) -> StateError:
    return StateError(
        f"the database {store} refuses a statement: {reason}. Nothing of it was"
        " written. If it names a table, a column or a type, something else made or"
        " changed the table: give it the columns that are named. Choose another table"
        " only if this job has written nothing into this one, for a new one begins"
        " empty. If it names a value, that value does not fit the column",
        store=store,
    )


def _of_sqlite(
    orig: BaseException | None, url: URL, store: str, reason: str
) -> StateError:
    name = getattr(orig, "sqlite_errorname", "")
    if name.startswith(_SQLITE_LATER):
        advice = " (is the disk full?)" if name == "SQLITE_FULL" else ""
        return StateUnavailableError(
            f"the store {store} cannot be used now: {reason}{advice}", store=store
        )
    if name.startswith(_SQLITE_DAMAGED):
        return StateCorruptedError(
            f"the file of store {store} is damaged: {reason}. Nothing was changed."
            f" {AFTER_A_FILE}. If it never was a SQLite database, name another file",
            store=store,
            path=url.database,
            reason=reason,
        )
    if name and not name.startswith(_SQLITE_FILE):
        return _of_statement(store, reason)
    return StateError(
        f"the store {store} cannot be opened or written: {reason}."
        f" {_what_is_wrong_with(url.database)}",
        store=store,
        path=url.database,
    )


def _what_is_wrong_with(file: str | None) -> str:
    path = Path(file or "")
    folder = path.parent
    if not folder.is_dir():
        return f"Directory {folder} does not exist: create it, or choose another store"
    if path.is_dir():
        return f"{path} is a directory: name a file in it"
    if not os.access(folder, os.W_OK | os.X_OK):
        return (
            f"Directory {folder} is not writable for this user, and SQLite keeps files"
            " beside its own there: grant it, or choose another store"
        )
    return f"Is {path} writable for this user? Grant it, or choose another store"


def _is_gone(orig: BaseException | None) -> bool:
    """Whether a table is missing: each was there when the process began to use it."""
    if _sqlstate(orig) == _SQLSTATE_GONE or _number(orig) == _MYSQL_GONE:
        return True
    is_sqlite = hasattr(orig, "sqlite_errorname")
    return is_sqlite and str(orig).startswith("no such table")


def _is_for_later(error: exc.SQLAlchemyError, orig: BaseException | None) -> bool:
    code = _sqlstate(orig)
    if code:
        return code.startswith(_SQLSTATE_LATER)
    if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
        return True
    if number := _number(orig):
        return number in _MYSQL_LATER
    return isinstance(
        error, exc.OperationalError | exc.InterfaceError | exc.TimeoutError
    )


def _sqlstate(orig: BaseException | None) -> str:
    """PostgreSQL's code; MySQL's numbers say more than its SQLSTATEs."""
    if _number(orig) is not None:
        return ""
    return getattr(orig, "sqlstate", None) or getattr(orig, "pgcode", None) or ""


def _number(orig: BaseException | None) -> int | None:
    """The error number of MySQL's drivers."""
    first = orig.args[0] if orig is not None and orig.args else None
    return first if isinstance(first, int) else None


def _reason(error: exc.SQLAlchemyError, url: URL) -> str:
    """The driver's own sentence, without SQL, parameters or the password."""
    text = str(getattr(error, "orig", None) or error).strip().replace("\n", " ")
    return without_secrets(text, url)


_HIDDEN = "***"
_SECRET_WORDS = ("password", "passwd", "pwd", "secret", "token")


def address(url: URL) -> str:
    """The URL without secrets, wherever it has them: user part or parameters."""
    hidden = {name: _HIDDEN for name in url.query if _is_secret(name)}
    shown = url.update_query_dict(hidden) if hidden else url
    return shown.render_as_string(hide_password=True).replace("%2A%2A%2A", _HIDDEN)


def without_secrets(text: str, url: URL) -> str:
    """A driver's text without the URL's secrets."""
    for secret in _secrets(url):
        text = text.replace(secret, _HIDDEN)
    return text


def _secrets(url: URL) -> list[str]:
    found = [str(url.password)] if url.password else []
    for name, value in url.query.items():
        if _is_secret(name):
            found += [value] if isinstance(value, str) else list(value)
    return sorted(filter(None, found), key=len, reverse=True)


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)
