"""The suite for sinks: maps and tables in SQLite, and Kafka's on simulated brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks import table_writes
from kafka_tx.sinks.table_writes import NEVER, Commit, write_batch
from kafka_tx.sql import progress
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.tables import append_rows
from kafka_tx.testing import Crash
from tests.conformance.sink_suite import RuleSuite, SinkSuite
from tests.properties.simulated_sink import TOPIC, Brokers, Program, Writer, simulated

STEPS = "before_cursor_execute", "commit"


@contextmanager
def dying_at(step: int) -> Iterator[None]:
    """End the program before a statement, a commit, or after the last of them."""
    left = [step]

    def die(*_: object) -> None:
        if left[0] == 0:
            raise Crash
        left[0] -= 1

    for name in STEPS:
        sa.event.listen(Engine, name, die)
    try:
        yield
        die()
    finally:
        for name in STEPS:
            sa.event.remove(Engine, name, die)


@dataclass
class SqlSink:
    """A map with a key for each row, or a table."""

    url: str
    kind: type[TransactionalMap] | None
    is_opaque: bool = False

    def write(self, attempt, rows):
        if self.kind is None:
            table = pa.table({"key": pa.array(rows, pa.string())})
            return append_rows(self.url, "t", attempt, table, opaque=self.is_opaque)
        table = pa.table({"key": pa.array(rows, pa.string()), "value": [1] * len(rows)})
        return self.kind(self.url, "t").update(attempt, table)

    def dies(self, attempt, rows, step):
        try:
            with dying_at(step):
                self.write(attempt, rows)
        except Crash:
            return True
        finally:
            progress._left.clear()  # a new program knows nothing
        return False

    def rows(self):
        engine = sa.create_engine(self.url)
        value = "1" if self.kind is None else "value"
        with engine.connect() as db:
            if not sa.inspect(db).has_table("t"):
                return []
            key = engine.dialect.identifier_preparer.quote_identifier("key")
            query = f"SELECT {key}, {value} FROM t WHERE {value} IS NOT NULL"
            found = db.execute(sa.text(query)).all()
        engine.dispose()
        assert {count for _, count in found} <= {1}
        keys = (key for key, _ in found)
        return sorted(k.decode() if isinstance(k, bytes) else k for k in keys)


class OfSqlite(SinkSuite):
    kind: type[TransactionalMap] | None = None

    @pytest.fixture
    def open_sink(self, tmp_path):
        url = f"sqlite:///{tmp_path}/sinks.db"
        return partial(SqlSink, url, self.kind, self.takes_back)


class TestTransactionalMap(OfSqlite):
    kind = TransactionalMap


class TestOpaqueMap(OfSqlite):
    kind, takes_back = OpaqueMap, True


class TestTable(OfSqlite):
    pass


class TestOpaqueTable(OfSqlite):
    takes_back = True


@dataclass
class MemoryTable:
    """A table whose commits hold rows and attempt, as those of a lakehouse do."""

    commits: list[tuple[TransactionAttempt, list[str]]]
    sink: str
    steps: int = 1_000

    def write(self, attempt, rows):
        return write_batch(MemoryBatch(self, rows), attempt)

    def step(self):
        if self.steps == 0:
            raise Crash
        self.steps -= 1

    def dies(self, attempt, rows, step):
        self.steps = step
        try:
            self.write(attempt, rows)
            self.step()
        except Crash:
            return True
        finally:
            self.steps = 1_000
            table_writes._left.clear()  # a new program knows nothing
        return False

    def rows(self):
        return sorted(row for _, rows in self.commits for row in rows)


@dataclass
class MemoryBatch:
    """One batch for it; each call is a step in which the program may die."""

    table: MemoryTable
    given: list[str]
    what = "table 't'"

    @property
    def sink(self):
        return "t", self.table.sink

    def stored(self, _):
        self.table.step()
        return self.table.commits[-1][0] if self.table.commits else NEVER

    def commit(self):
        return Commit(len(self.table.commits))

    def check_stored(self, _):
        pass

    def has_rows(self):
        return True

    def write(self, attempt):
        self.table.step()
        self.table.commits.append((attempt, self.given))
        self.table.step()
        return True


class TestTableOfALakehouse(SinkSuite):
    @pytest.fixture
    def open_sink(self, request):
        return partial(MemoryTable, [], request.node.nodeid)


@dataclass
class KafkaSink:
    """The protocol of ``write_transaction`` on simulated brokers.

    ``write_transaction`` itself refuses second writes and opaque attempts.
    """

    brokers: Brokers
    writers: dict[int, Writer] = field(default_factory=dict)

    def write(self, attempt, rows):
        before = len(self.brokers.rows)
        self._write(attempt, rows)
        return len(self.brokers.rows) > before

    def _write(self, attempt, rows):
        made = Writer("transaction", attempt.epoch, 1)
        writer = self.writers.setdefault(attempt.epoch, made)
        writer.put(attempt, [[OutRecord(TOPIC, None, row.encode()) for row in rows]])

    def dies(self, attempt, rows, step):
        program = Program(partial(self._write, attempt, rows))
        for _ in range(step + 1):
            program.step()
        died = not program.is_done
        if died:
            program.kill()
        assert program.error is None
        return died

    def rows(self):
        return sorted(row.decode() for row in self.brokers.rows)


class TestKafkaSink(RuleSuite):
    @pytest.fixture
    def open_sink(self):
        brokers = Brokers()
        with simulated(brokers):
            yield partial(KafkaSink, brokers)
