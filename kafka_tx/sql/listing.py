"""Which ids a database holds state of."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from kafka_tx.errors import StateError
from kafka_tx.model import LogPosition, TopicPartition
from kafka_tx.sql.database import Database
from kafka_tx.sql.offsets import OFFSETS, OWNERS, topic_id_in
from kafka_tx.sql.state_tables import STATE
from kafka_tx.transactions import records


def stored_ids(url: str) -> list[str]:
    """Every id with records or offsets, ascending. Makes nothing, changes nothing.

    Raises:
        ConfigError: The URL cannot be used.
        StateUnavailableError: The database does not answer or is locked.
        StateCorruptedError: The file is damaged or no database.
        StateError: There is no such SQLite file, or the database refuses.
    """
    database = Database(url)
    _must_exist(database)
    found: set[str] = set()
    try:
        with database.reading(sa.MetaData()) as connection:
            for table in (STATE, OFFSETS):
                if sa.inspect(connection).has_table(table.name):
                    found |= set(connection.scalars(sa.select(table.c.id).distinct()))
    finally:
        database.close()
    return sorted(found)


def stored_offsets(
    url: str,
    id: str,  # noqa: A002 - the word of every store
) -> tuple[int, dict[TopicPartition, LogPosition]]:
    """Newest epoch (0: none) and next offsets of the at-least-once topology ``id``.

    Raises:
        StateCorruptedError: The record of the owners makes no sense.
        ConfigError, StateError: As of ``stored_ids``.
    """
    database = Database(url)
    _must_exist(database)
    columns = (
        OFFSETS.c.topic,
        OFFSETS.c.partition,
        OFFSETS.c.next_offset,
        OFFSETS.c.completed,
    )
    try:
        with database.reading(sa.MetaData()) as connection:
            if not sa.inspect(connection).has_table(OFFSETS.name):
                return 0, {}
            rows = connection.execute(sa.select(*columns).where(OFFSETS.c.id == id))
            offsets = {
                TopicPartition(topic, n): LogPosition(offset, topic_id_in(runs))
                for topic, n, offset, runs in rows
            }
            return _epoch(connection, database.url, id), offsets
    finally:
        database.close()


def _epoch(connection: sa.Connection, url: str, id_: str) -> int:
    if not sa.inspect(connection).has_table(OWNERS.name):
        return 0
    text = connection.scalar(sa.select(OWNERS.c.owners).where(OWNERS.c.id == id_))
    return records.decode_owners(text, path=OWNERS.name, store=url, id=id_).last


def _must_exist(database: Database) -> None:
    """Connecting would make a missing SQLite file."""
    file = make_url(database.url).database
    if database.dialect != "sqlite" or not file or file.startswith("file:"):
        return
    if not Path(file).exists():
        raise StateError(
            f"there is no store {database.url}: the file does not exist. A job makes"
            " it on its first run, where its option tx.store says; a relative path"
            " begins in the folder the job was started in.",
            store=database.url,
        )
