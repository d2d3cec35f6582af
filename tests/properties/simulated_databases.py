"""Databases that hold stores and sinks, and go back, vanish or lose one of the two."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kafka_tx.errors import KafkaTxError
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.model import TransactionAttempt
from kafka_tx.protocols import NOTHING, Expected, Texts
from kafka_tx.sinks.admission import check_mode, is_written
from kafka_tx.sinks.store_beside import check_store_beside
from kafka_tx.transactions.ownership.memory import MemorySnapshot, MemoryStore
from tests.properties.simulated_sink import SINK, TOPIC, Brokers, Writer, log, simulated

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

    def acquire(
        self, put: Texts = NOTHING, *, above: int = 0, expect: Expected = None
    ) -> int:
        happens, self._database.before_takeover = self._database.before_takeover, None
        if happens is not None:
            happens()
        return super().acquire(put, above=above, expect=expect)

    def sinks(self, numbering: str) -> dict[str, int]:
        newest = {name: t.newest for name, t in self._database.tables.items()}
        return {n: a.txid for n, a in newest.items() if a.numbering == numbering}


class Database:
    """Stores by id and tables by name.

    ``before_takeover`` happens once, after a start has judged what is stored.
    """

    def __init__(self) -> None:
        self.before_takeover: Callable[[], None] | None = None
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
        texts, epoch = store.read(), store.epoch()
        check_store_beside(attempt, texts, epoch, what="the sink", store=store.url)

    def records(self, table: str) -> list[int]:
        return [record for _, record in self.tables.get(table, Table()).rows]

    def drop(self, table: str) -> None:
        """Somebody empties what is written there."""
        self.tables.pop(table, None)

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


class DiedError(KafkaTxError):
    """The driver died between two parts of a batch."""

    retryable = True


class KafkaSinks(Database):
    """Topics that exactly-once sinks write, and their markers, which never go back.

    Attributes:
        door: ``transaction`` for queries, ``bolt`` for topologies.
        parts: Of the batches that follow.
        dies_after: How many parts the driver still writes; below 0: all of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.door, self.parts, self.dies_after = "transaction", 1, -1
        self.halves: dict[str, int] = {}
        """By sink the txid of which some parts were written, and others not."""
        self._brokers: dict[str, Brokers] = {}
        self._writers: dict[tuple[object, ...], Writer] = {}

    def write(
        self,
        table: str,
        attempt: TransactionAttempt,
        rows: list[int],
        *,
        is_opaque: bool,
    ) -> None:
        """In parts, each of which is there or not; raises what Kafka sinks raise."""
        check_mode(attempt, "the sink")
        brokers = self._brokers.setdefault(table, Brokers())
        run = (table, self.door, self.parts, attempt.source, attempt.epoch)
        writer = self._writers.setdefault(
            run, Writer(self.door, attempt.epoch, self.parts)
        )
        writer.before_part = self._may_die
        records = [OutRecord(TOPIC, b"", b"%d %d" % (attempt.txid, n)) for n in rows]
        with simulated(brokers):
            try:
                writer.put_rows(attempt, records)
                self.halves.pop(table, None)
            except DiedError:
                if self._newest().txid == attempt.txid:
                    self.halves[table] = attempt.txid
                raise
            finally:
                self.tables[table] = Table(self._newest(), _rows(brokers))

    def _may_die(self, number: int) -> None:
        if number == self.dies_after:
            self.dies_after = -1
            raise DiedError("between two parts")

    def _newest(self) -> TransactionAttempt:
        markers = log().recall(SINK).markers
        attempts = (marker.attempt for marker in markers)
        return max(attempts, key=lambda a: a.txid, default=Table().newest)

    def drop(self, table: str) -> None:
        """The topic is made anew; markers stay."""
        if table in self._brokers:
            self._brokers[table].rows.clear()
            self.tables[table] = replace(self.tables[table], rows=())

    def copied(self) -> Copy:
        return Copy({}, {}, 0)

    def put_back(self, copy: Copy, *, stores: bool = True, tables: bool = True) -> None:
        """Nobody can."""


def _rows(brokers: Brokers) -> tuple[tuple[int, int], ...]:
    found = (row.split() for row in brokers.rows)
    return tuple((int(txid), int(number)) for txid, number in found)
