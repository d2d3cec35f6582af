"""Why databases refuse, and the next step for each: by SQLSTATE or MySQL's number."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy.engine import URL


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason, and what to do about it.

    Attributes:
        codes: Beginnings of SQLSTATEs, and numbers of MySQL and MariaDB.
        advice: The next step. ``{user}`` and ``{database}`` are those of the URL.
        passes: Whether the same call may succeed later, so that it is tried again.
        texts: What PostgreSQL says while it lets nobody in: that has no SQLSTATE.
    """

    codes: tuple[str | int, ...]
    advice: str
    passes: bool = False
    texts: tuple[str, ...] = ()

    def is_meant(self, code: str, number: int | None, text: str) -> bool:
        """Whether a driver's error has this reason."""
        if code:
            return any(isinstance(c, str) and code.startswith(c) for c in self.codes)
        if number is not None:
            return number in self.codes
        return any(re.search(each, text) for each in self.texts)


REFUSALS = (
    Refusal(
        ("28", 1045, 1698),
        "Check user and password, and from where the server lets this user in"
        " (PostgreSQL: pg_hba.conf)",
        texts=(
            *("authentication failed", "no pg_hba.conf", "no password supplied"),
            'role "[^"]*" (does not exist|is not permitted)',
        ),
    ),
    Refusal(
        ("3D", 1049),
        "The server has no such database. Check its name. If it is a new one, create"
        " it. If it was dropped, restore it before you start again: with an empty one"
        " the job does not go on where it was",
        texts=('database "[^"]*" does not exist',),
    ),
    Refusal(
        ("3F",),
        "The user's search_path names no schema that exists and that the user may use."
        " Let the owner of the job's schema run GRANT USAGE, CREATE ON SCHEMA … TO"
        " {user}. If search_path names another schema, set it to that of the job's"
        " tables: ALTER ROLE {user} SET search_path = …",
    ),
    Refusal(
        ("42501",),
        "The user lacks a right, mostly because another user made the tables. Let the"
        " owner of what is named run, with the schema that the tables are in: GRANT"
        " USAGE, CREATE ON SCHEMA … TO {user}; GRANT SELECT, INSERT, UPDATE, DELETE ON"
        " ALL TABLES IN SCHEMA … TO {user}; GRANT CONNECT, TEMPORARY ON DATABASE"
        " {database} TO {user}. Do not change search_path instead: in another schema"
        " everything begins empty",
        texts=('permission denied for database "',),
    ),
    Refusal(
        (1044, 1142, 1143, 1227, 1370),
        "The user lacks a right. Let an administrator run GRANT SELECT, INSERT, UPDATE,"
        " DELETE, CREATE, INDEX ON {database}.* TO {user}",
    ),
    Refusal(
        ("25006", 1290, 1792, 1836),
        "It takes no writes now. If it is a standby, name the primary. If somebody has"
        " switched writes off (PostgreSQL: default_transaction_read_only; MariaDB and"
        " MySQL: read_only), switch them on",
        passes=True,
    ),
    Refusal(
        ("53100", 1021, 1114),
        "Its disk or a quota is full: make room on the server, or raise the quota",
        passes=True,
    ),
    Refusal(
        ("53300", 1040, 1203, 1226),
        "A limit of connections or of statements is reached, of the server or of the"
        " user: raise it (PostgreSQL: max_connections, ALTER ROLE {user} CONNECTION"
        " LIMIT), or end other programs that use it",
        passes=True,
        texts=("too many (connections|clients)", "remaining connection slots"),
    ),
    Refusal(
        ("57014", 1969, 3024),
        "A time-out of the server, or somebody, has cancelled the statement. If it is"
        " the time-out, raise it for this user (PostgreSQL: ALTER ROLE {user} SET"
        " statement_timeout = 0; MariaDB: max_statement_time)",
        passes=True,
    ),
    Refusal(
        ("25P03",),
        "It ended a transaction in which nothing happened for too long. Nothing of it"
        " was written. This process was frozen meanwhile; it tries again",
        passes=True,
    ),
    Refusal(
        ("40001", "40P01", "55P03", 1020, 1205, 1213),
        "Another transaction was in the way. Nothing of this one was written, and it is"
        " tried again",
        passes=True,
    ),
)


def next_step(
    code: str, number: int | None, text: str, url: URL
) -> tuple[str, bool] | None:
    """What to do about an error, and whether it may pass; None: it has no row."""
    for refusal in REFUSALS:
        if refusal.is_meant(code, number, text):
            named = {"user": url.username or "…", "database": url.database or "…"}
            return refusal.advice.format(**named), refusal.passes
    return None
