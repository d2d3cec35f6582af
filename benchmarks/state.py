"""Counting batches into a map: kafka_tx's set-based update against a loop of upserts.

Each batch brings 100,000 keys, in random order, of a million; both sides write them in
one database transaction with the txid and commit it to the disk. The loop executes the
same upsert once for each key on the plain driver, without looking at replays.
``sqlite-opaque`` also keeps the value before the transaction; the loop does not.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import psycopg
import pyarrow as pa
from sqlalchemy import make_url

from benchmarks.report import Case, print_report
from integration.cluster.postgresql import PostgresServer
from integration.cluster.running import running
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap

KEYS = 1_000_000
BATCH = 100_000
CREATE = (
    "CREATE TABLE looped (key TEXT PRIMARY KEY, value BIGINT NOT NULL,"
    " txid BIGINT NOT NULL)"
)
UPSERT = (
    "INSERT INTO looped (key, value, txid) VALUES (?, ?, ?) ON CONFLICT (key)"
    " DO UPDATE SET value = looped.value + excluded.value, txid = excluded.txid"
)

Write = Callable[[int, pa.Table], object]


def batches(count: int) -> list[pa.Table]:
    """The same for every run: 100,000 different keys each."""
    chance = random.Random(7)
    return [
        pa.table(
            {
                "key": [f"user-{n:07d}" for n in chance.sample(range(KEYS), BATCH)],
                "value": [1] * BATCH,
            }
        )
        for _ in range(count)
    ]


def write_map(state: TransactionalMap) -> Write:
    return lambda txid, rows: state.update(TransactionAttempt(txid, 1), rows)


def write_loop(connection: Any, upsert: str) -> Write:
    def write(txid: int, rows: pa.Table) -> None:
        cursor = connection.cursor()
        keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
        for key, value in zip(keys, values, strict=True):
            cursor.execute(upsert, (key, value, txid))
        connection.commit()

    return write


@contextmanager
def sqlite_loop(path: Path) -> Iterator[Write]:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(CREATE)
        yield write_loop(connection, UPSERT)


@contextmanager
def postgresql_loop(url: str) -> Iterator[Write]:
    address = make_url(url)
    with psycopg.connect(
        host=address.host,
        port=address.port,
        user=address.username,
        dbname=address.database,
    ) as connection:
        connection.execute(CREATE)
        yield write_loop(connection, UPSERT.replace("?", "%s"))


def compare(case: str, ours: Write, theirs: Write, rounds: list[pa.Table]) -> Case:
    """Medians of alternating batches into growing tables, after one to warm up."""
    rates: dict[Write, list[float]] = {ours: [], theirs: []}
    for txid, rows in enumerate(rounds, start=1):
        for write, found in rates.items():
            started = perf_counter()
            write(txid, rows)
            found.append(BATCH / (perf_counter() - started))
    first, second = (median(found[1:]) for found in rates.values())
    return Case(case, first, second, "key updates/s", less_is_better=False)


def sqlite_cases(rounds: list[pa.Table]) -> Iterator[Case]:
    for case, kind in (("sqlite", TransactionalMap), ("sqlite-opaque", OpaqueMap)):
        with tempfile.TemporaryDirectory() as work:
            path = Path(work)
            state = kind(f"sqlite:///{path}/ours.db", "counts")
            with closing(state), sqlite_loop(path / "theirs.db") as loop:
                yield compare(case, write_map(state), loop, rounds)


def postgresql_cases(rounds: list[pa.Table]) -> Iterator[Case]:
    with running(PostgresServer()) as server:
        state = TransactionalMap(server.url(), "counts")
        with closing(state), postgresql_loop(server.url()) as loop:
            yield compare("postgresql", write_map(state), loop, rounds)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks state")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--batches", type=int, default=5, help="default 5")
    parser.add_argument("--case", choices=["sqlite", "postgresql"], help="default both")
    chosen = parser.parse_args(arguments)
    rounds = batches(chosen.batches + 1)
    cases: list[Case] = []
    if chosen.case != "postgresql":
        cases += sqlite_cases(rounds)
    if chosen.case != "sqlite":
        cases += postgresql_cases(rounds)
    print_report("state", "a loop of upserts", cases, as_json=chosen.json)
