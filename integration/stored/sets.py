"""A set: all that a version stores, in files that are small enough to be committed.

``store.sql`` is a SQLite database, ``tables.json`` the statements that make its tables
elsewhere, ``zookeeper.json`` the same records as nodes, ``jobs.json`` what jobs have
beside them, and ``texts.json`` one of each other thing.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.schema import CreateTable

from integration.stored import texts
from integration.stored.jobs import JOBS, made
from kafka_tx.sql.offsets import OFFSETS, OWNERS
from kafka_tx.sql.progress import progress_table
from kafka_tx.sql.state_tables import OWNER, STATE
from kafka_tx.zookeeper.store import Owner

FOLDER = Path(__file__).parents[2] / "tests" / "stored"
RELEASE = FOLDER / "0.3.0"
"""The set that is compared with what this version makes."""
BEFORE = FOLDER / "before-0.3"
"""Stored by a version before the first release (its own code has made it)."""


def make(folder: Path) -> None:
    """Make the set of this version in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "store.db")
        url = f"sqlite:///{file}"
        jobs = {name: made(name, url).saved() for name in JOBS}
        texts.keep_in_sql(url)
        with closing(sqlite3.connect(file)) as database:
            dump = "\n".join(database.iterdump())
            nodes = _nodes(database)
    (folder / "store.sql").write_text(f"{dump}\n")
    _write(folder / "tables.json", _statements())
    _write(folder / "zookeeper.json", nodes)
    _write(folder / "jobs.json", jobs)
    _write(folder / "texts.json", texts.texts())


def _write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def _statements() -> dict[str, list[str]]:
    tables = (STATE, OWNER, OFFSETS, OWNERS, progress_table(sa.MetaData()))
    dialects: dict[str, Any] = {"mysql": mysql, "postgresql": postgresql}
    return {
        name: [str(CreateTable(t).compile(dialect=each.dialect())) for t in tables]
        for name, each in dialects.items()
    }


def _nodes(database: sqlite3.Connection) -> dict[str, str]:
    """The records of each id as nodes below a root, with the owner's."""
    rows = database.execute("SELECT id, path, value FROM kafka_tx_state")
    nodes = {f"{id_}/{path}": value for id_, path, value in rows}
    owners = database.execute("SELECT id, epoch FROM kafka_tx_owner")
    for id_, epoch in owners:
        nodes[f"{id_}/~owner"] = Owner(epoch, "0123456789abcdef").record().decode()
    return nodes


# --- opening ------------------------------------------------------------------------


def opened(folder: Path, place: Path) -> str:
    """The URL of a SQLite store with the content of a set."""
    file = place / "store.db"
    with closing(sqlite3.connect(file)) as database:
        database.executescript((folder / "store.sql").read_text())
    return f"sqlite:///{file}"


def copied(folder: Path, place: Path, url: str) -> None:
    """Bring the set's tables of kafka_tx to another database, made as the set says.

    Also the tables of its jobs.
    """
    here, there = (sa.create_engine(u) for u in (opened(folder, place), url))
    kind = "postgresql" if there.dialect.name == "postgresql" else "mysql"
    statements = json.loads((folder / "tables.json").read_text())[kind]
    try:
        with here.connect() as source, there.begin() as target:
            for statement in statements:
                target.exec_driver_sql(statement)
            for name in sa.inspect(source).get_table_names():
                table = sa.Table(name, sa.MetaData(), autoload_with=source)
                if not name.startswith("kafka_tx_"):
                    table.create(target)
                rows = [
                    dict(row) for row in source.execute(sa.select(table)).mappings()
                ]
                if rows:
                    target.execute(sa.insert(table), rows)
    finally:
        here.dispose()
        there.dispose()


# --- comparing ----------------------------------------------------------------------


def shapes(folder: Path) -> dict[str, Any]:
    """Names and types of all members of a set; ids, times and numbers do not count."""
    found: dict[str, Any] = {"tables": json.loads((folder / "tables.json").read_text())}
    for name in ("zookeeper", "jobs", "texts"):
        found[name] = shape(json.loads((folder / f"{name}.json").read_text()))
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript((folder / "store.sql").read_text())
        rows = database.execute("SELECT name, sql FROM sqlite_master")
        found["sql"] = dict(sorted(map(_without_digest, rows)))
        names = "SELECT name FROM sqlite_master WHERE type = 'table'"
        for (table,) in database.execute(names).fetchall():
            content = database.execute(f'SELECT * FROM "{table}"')
            columns = [column for column, *_ in content.description]
            rows_ = (dict(zip(columns, row, strict=True)) for row in content)
            found[f"rows of {table}"] = _distinct(map(shape, rows_))
    return found


def _without_digest(row: tuple[str, str | None]) -> tuple[str, str]:
    return row[0], row[1] or ""


def shape(value: Any) -> Any:
    """The names of members and the types of values; also of JSON in a text."""
    if isinstance(value, dict):
        return {str(name): shape(one) for name, one in sorted(value.items())}
    if isinstance(value, list):
        return _distinct(map(shape, value))
    if isinstance(value, str) and value[:1] in ("{", "["):
        return {"JSON": shape(json.loads(value))}
    if isinstance(value, str) and value.startswith("kafka_tx:"):
        return value[: value.index(":", len("kafka_tx:"))]
    return type(value).__name__


def _distinct(values: Iterable[Any]) -> list[Any]:
    return [json.loads(one) for one in sorted({json.dumps(v) for v in values})]
