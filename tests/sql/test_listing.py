from __future__ import annotations

import sqlite3

import pytest

from kafka_tx.errors import StateError
from kafka_tx.sql.store import SqlStore, stored_ids


def test_ids_with_state_are_listed_in_order(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    for name in ("b", "a", "empty"):
        store = SqlStore(url, name)
        epoch = store.acquire()
        if name != "empty":
            store.write(epoch, {"x": "1", "y": "2"})
        store.close()

    assert stored_ids(url) == ["a", "b"]


def test_a_database_without_our_tables_has_no_ids_and_gets_no_tables(tmp_path):
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()

    assert stored_ids(f"sqlite:///{file}") == []

    with sqlite3.connect(file) as db:
        tables = db.execute("SELECT name FROM sqlite_master").fetchall()
    db.close()
    assert tables == [("theirs",)]


def test_a_missing_file_is_not_made(tmp_path):
    with pytest.raises(StateError, match="does not exist"):
        stored_ids(f"sqlite:///{tmp_path}/none.db")

    assert list(tmp_path.iterdir()) == []
