"""Committers of the examples: nobody writes between their look and what they write."""

from __future__ import annotations

import runpy
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_tx import TransactionAttempt
from tests.doc_pages import ROOT


class Watched(sqlite3.Connection):
    """A successor tries to write directly behind each look."""

    refused = 0

    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        found = super().execute(sql, *given)
        if sql.startswith("SELECT"):
            (path,) = (row[2] for row in super().execute("PRAGMA database_list"))
            with (
                closing(sqlite3.Connection(path, timeout=0)) as successor,
                pytest.raises(sqlite3.OperationalError, match="locked"),
            ):
                successor.execute("BEGIN IMMEDIATE")
            Watched.refused += 1
        return found


@pytest.mark.parametrize(
    ("example", "bolt", "row"),
    [
        ("three_designs", "Total", SimpleNamespace(rows=3)),
        ("opaque_count", "Update", SimpleNamespace(count=3)),
    ],
)
def test_no_successor_writes_between_the_look_and_the_write(
    example: str, bolt: str, row: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = runpy.run_path(str(ROOT / "examples" / f"{example}.py"))
    database = names.get("DATABASE", tmp_path / "total.db")
    with closing(sqlite3.connect(database)) as db, db:
        if "DATABASE" in names:
            db.execute("CREATE TABLE total (count, previous, txid, attempt)")
            db.execute("INSERT INTO total VALUES (0, 0, 0, 0)")
    committer = names[bolt](*([] if "DATABASE" in names else [database]))
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *a, **more: connect(*a, factory=Watched, **more)
    )
    monkeypatch.setattr(Watched, "refused", 0)

    committer.prepare(SimpleNamespace(attempt=TransactionAttempt(1, 1)), None)
    committer.execute(row)
    committer.finish_batch()

    assert Watched.refused == 1
    with closing(connect(database)) as db:
        assert db.execute("SELECT * FROM total").fetchone()[0] == 3
