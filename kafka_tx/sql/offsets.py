"""Committed offsets in a SQL database: one row for each partition."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from kafka_tx.config import check_id
from kafka_tx.model import Broker, CommittedOffset, TopicPartition
from kafka_tx.offsets.offset_fields import optional_fields, with_optional_fields
from kafka_tx.offsets.owners import Claim, Owners, new_word
from kafka_tx.sql.database import Database
from kafka_tx.sql.dialects import ExactText, LongText, upsert
from kafka_tx.stored import SQL_OFFSETS
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.ownership.store_base import OffsetsOfId

_TABLES = sa.MetaData()

OFFSETS = sa.Table(
    "kafka_tx_offsets",
    _TABLES,
    sa.Column("id", ExactText(200), primary_key=True),
    sa.Column("topic", ExactText(249), primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    sa.Column("completed", LongText(), nullable=False),
    sa.Column("topology_id", LongText(), nullable=False),
    sa.Column("topology_name", LongText(), nullable=False),
    sa.Column("broker_host", LongText(), nullable=False),
    sa.Column("broker_port", sa.Integer, nullable=False),
)
OWNERS = sa.Table(
    "kafka_tx_offset_owners",
    _TABLES,
    sa.Column("id", ExactText(200), primary_key=True),
    sa.Column("owners", LongText(), nullable=False),
)


class _RacedError(Exception):
    """Another process created the owners' row at the same time."""


class SqlOffsetStore(OffsetsOfId):
    """An OffsetStore in any database that SQLAlchemy reaches; stores everything.

    The owner locks and checks the row of its id in ``kafka_tx_offset_owners`` in the
    transaction that writes. So no other process can take over in between.
    """

    def __init__(self, url: str, id: str) -> None:  # noqa: A002 - the seam's word
        self._database = Database(url)
        super().__init__(self._database.url, check_id(id))
        self.retry_ms = self._database.retry_policy.limit_ms
        self._claim: Claim | None = None

    def acquire(self, task: int = 0, tasks: int = 1) -> int:
        """As ``OffsetStore.acquire``."""
        try:
            self._claim = self._claimed(task, tasks)
        except _RacedError:  # somebody else made the row; now it can be locked
            self._claim = self._claimed(task, tasks)
        return self._claim.epoch

    def _claimed(self, task: int, tasks: int) -> Claim:
        with self._database.writing(_TABLES) as connection:
            text = self._locked_owners(connection)
            owners, claim = self._owners(text).claimed(task, tasks)
            row = {"id": self.id, "owners": records.encode_owners(owners)}
            if text is not None:
                upsert(connection, OWNERS, [row])
                return claim
            try:
                connection.execute(sa.insert(OWNERS).values(row))
            except sa.exc.IntegrityError as error:
                raise _RacedError from error
            return claim

    def tasks(self) -> int:
        """How many tasks share the id, by its last owner; 1 before the first."""
        query = sa.select(OWNERS.c.owners).where(OWNERS.c.id == self.id)
        with self._database.reading(_TABLES) as connection:
            return self._owners(connection.scalar(query)).tasks

    def topics(self) -> frozenset[str]:
        """As ``OffsetStore.topics``."""
        query = sa.select(OFFSETS.c.topic).where(OFFSETS.c.id == self.id).distinct()
        with self._database.reading(_TABLES) as connection:
            return frozenset(connection.scalars(query))

    def load(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """As ``OffsetStore.load``."""
        wanted = set(partitions)
        query = sa.select(OFFSETS).where(
            OFFSETS.c.id == self.id, OFFSETS.c.topic.in_({p.topic for p in wanted})
        )
        with self._database.reading(_TABLES) as connection:
            rows = connection.execute(query).mappings().all()
        stored = [r for r in rows if (r["topic"], r["partition"]) in wanted]
        return dict(offset_in(row, self.url) for row in stored)

    def store(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """As ``OffsetStore.store``, in one database transaction."""
        rows = [
            {
                "id": self.id,
                "topic": topic,
                "partition": partition,
                "next_offset": offset.offset,
                "completed": _runs_text(offset),
                "topology_id": offset.topology_id,
                "topology_name": offset.topology_name,
                "broker_host": offset.broker.host if offset.broker else "",
                "broker_port": offset.broker.port if offset.broker else 0,
            }
            for (topic, partition), offset in offsets.items()
        ]
        claim = self._claim
        if claim is not None and rows:
            claim.words += (new_word(),)
        with self._database.writing(_TABLES) as connection:
            if claim is not None:
                self._check(connection, claim, writes=bool(rows))
            upsert(connection, OFFSETS, rows)
        if claim is not None and rows:
            claim.words = claim.words[-1:]

    def remove(self) -> None:
        """Delete all offsets of the id, as its owner; raises as ``store``."""
        assert self._claim is not None, "only an owner removes"
        with self._database.writing(_TABLES) as connection:
            self._check(connection, self._claim, writes=False)
            connection.execute(sa.delete(OFFSETS).where(OFFSETS.c.id == self.id))

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""
        self._database.close()

    def _check(self, connection: sa.Connection, claim: Claim, *, writes: bool) -> None:
        """Make sure of the owner and of what it left; leave its next word."""
        owners = self._owners(self._locked_owners(connection))
        owners.check(claim, store=self.url, id=self.id)
        if writes:
            text = records.encode_owners(owners.wrote(claim))
            upsert(connection, OWNERS, [{"id": self.id, "owners": text}])

    def _locked_owners(self, connection: sa.Connection) -> str | None:
        """The record of the owners, ours to change until the transaction ends."""
        query = sa.select(OWNERS.c.owners).where(OWNERS.c.id == self.id)
        text: str | None = connection.scalar(query.with_for_update())
        return text

    def _owners(self, text: str | None) -> Owners:
        return records.decode_owners(
            text, records.Place(OWNERS.name, self.url, self.id)
        )


def offset_in(row: sa.RowMapping, url: str) -> tuple[TopicPartition, CommittedOffset]:
    """A row's partition and its progress.

    Raises:
        StateCorruptedError, FormatError: The row is damaged, or another version's.
    """
    host, port = row["broker_host"], row["broker_port"]
    try:
        more = members_of(row, url)
        committed = CommittedOffset(
            offset=int(row["next_offset"]),
            completed=tuple((s, e) for s, e in more["completed"]),
            topology_id=row["topology_id"],
            topology_name=row["topology_name"],
            broker=Broker(host, port) if host else None,
        )
        partition = TopicPartition(row["topic"], int(row["partition"]))
        return partition, with_optional_fields(committed, more)
    except (AttributeError, ValueError, TypeError, KeyError) as error:
        at = records.Place(f"{row['topic']}-{row['partition']}", url, row["id"])
        raise records.corrupted(str(error), at) from None


def _runs_text(offset: CommittedOffset) -> str:
    """The runs, and the fields that have no column."""
    said = {"completed": offset.completed, **optional_fields(offset)}
    return json.dumps(SQL_OFFSETS.stamped(said), separators=(",", ":"))


def members_of(row: sa.RowMapping, url: str) -> Mapping[str, Any]:
    """The result of ``_runs_text`` in a row.

    Raises FormatError, or ValueError, AttributeError: Another text.
    """
    members: Mapping[str, Any] = json.loads(row["completed"])
    at = {"store": url, "id": row["id"], "path": f"{row['topic']}-{row['partition']}"}
    what = f"the offset of {at['path']} of id '{at['id']}' in store {url}"
    if {"v", "completed"} & members.keys():
        SQL_OFFSETS.check_members(members, what, **at)
    return members
