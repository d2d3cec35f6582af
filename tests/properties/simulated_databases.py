"""Databases that hold stores and sinks, and go back, vanish or lose one of the two."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_tx.errors import StateLostError
from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions import records
from kafka_tx.transactions.admission import is_written
from kafka_tx.transactions.memory import MemorySnapshot, MemoryStore
from kafka_tx.transactions.refusals import AFTER_A_LOSS
from kafka_tx.transactions.txid_layout import CURRENT, numbering_of

_names = map(str, itertools.count(1))

EMPTY = MemorySnapshot(0, {})


@dataclass(frozen=True)
class Table:
    """What a map or table holds: rows by txid, and the attempt that wrote last."""

    newest: TransactionAttempt = field(default_factory=lambda: TransactionAttempt(0, 0))
    rows: tuple[tuple[int, int], ...] = ()

    def written(
        self, attempt: TransactionAttempt, records: list[int], *, is_opaque: bool
    ) -> Table:
        """Raises what maps and tables raise."""
        stored = self.newest
        is_replay = is_written(attempt, stored, what="the sink", is_opaque=is_opaque)
        rows = self.rows
        if is_replay and not is_opaque:
            return Table(attempt, rows)
        if is_replay:
            rows = tuple(row for row in rows if row[0] != attempt.txid)
        return Table(attempt, (*rows, *((attempt.txid, n) for n in records)))


@dataclass(frozen=True)
class Copy:
    """All that a database held at one moment."""

    stores: Mapping[str, MemorySnapshot]
    tables: Mapping[str, Table]
    at: int


class StoreAmongTables(MemoryStore):
    """A store that knows the tables of its database."""

    def __init__(self, database: Database, id_: str) -> None:
        super().__init__(database.name, id_)
        self._database = database

    def sinks(self, numbering: str) -> dict[str, int]:
        newest = {name: t.newest for name, t in self._database.tables.items()}
        return {n: a.txid for n, a in newest.items() if a.numbering == numbering}


class Database:
    """Stores by id and tables by name."""

    def __init__(self) -> None:
        self.name = f"people{next(_names)}"
        self.ids: set[str] = set()
        self.tables: dict[str, Table] = {}
        self._now = 0

    def store(self, id_: str) -> MemoryStore:
        self.ids.add(id_)
        return StoreAmongTables(self, id_)

    def write(
        self,
        table: str,
        attempt: TransactionAttempt,
        rows: list[int],
        *,
        is_opaque: bool,
    ) -> None:
        self._check_store(attempt)
        held = self.tables.get(table, Table())
        self.tables[table] = held.written(attempt, rows, is_opaque=is_opaque)

    def _check_store(self, attempt: TransactionAttempt) -> None:
        """As maps and tables do whose store is in the same database."""
        if attempt.source not in self.ids:
            return
        store = self.store(attempt.source)
        texts = store.read()
        numbering = numbering_of(texts, store.url, store.id)
        if numbering is None or numbering.name != attempt.numbering:
            return
        text = texts.get(CURRENT)
        where = {"path": CURRENT, "store": store.url, "id": store.id}
        current = records.decode(text, CURRENT, **where) if text else 1
        if attempt.txid > current or attempt.epoch > store.epoch():
            raise StateLostError(f"the database went back. {AFTER_A_LOSS}")

    def records(self, table: str) -> list[int]:
        return [record for _, record in self.tables.get(table, Table()).rows]

    # --- what happens to it ---

    def copied(self) -> Copy:
        self._now += 1
        stores = {id_: self.store(id_).snapshot() for id_ in self.ids}
        return Copy(stores, dict(self.tables), self._now)

    def put_back(self, copy: Copy, *, stores: bool = True, tables: bool = True) -> None:
        """Whoever is connected goes on with what is there now."""
        if stores:
            for id_ in self.ids:
                self.store(id_).restore(copy.stores.get(id_, EMPTY))
        if tables:
            self.tables = dict(copy.tables)

    def empty(self) -> None:
        """Somebody removed its file, or began it anew."""
        self.put_back(Copy({}, {}, 0))
