"""The demo's result: words and how often they came, in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

_TABLES = """
CREATE TABLE IF NOT EXISTS words (word TEXT PRIMARY KEY, times INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS done (txid INTEGER PRIMARY KEY);
"""
_ADD = """
INSERT INTO words VALUES (?, ?)
ON CONFLICT (word) DO UPDATE SET times = times + excluded.times
"""


class WordTable:
    """Counts that are stored together with the txid they came from.

    A txid is counted once, however often its batch is replayed: counts and txid are
    one SQLite transaction, and a txid that is there is passed over.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._open()) as db, db:
            db.executescript(_TABLES)

    def add(self, txid: int, counts: Mapping[str, int]) -> bool:
        """Count a batch; False when this txid is counted already."""
        with closing(self._open()) as db, db:
            db.execute("BEGIN IMMEDIATE")
            if db.execute("SELECT 1 FROM done WHERE txid = ?", (txid,)).fetchone():
                return False
            db.execute("INSERT INTO done VALUES (?)", (txid,))
            db.executemany(_ADD, counts.items())
        return True

    def counts(self) -> Counter[str]:
        """Every word and how often it was counted."""
        with closing(self._open()) as db:
            return Counter(dict(db.execute("SELECT word, times FROM words")))

    def total(self) -> int:
        """How many records were counted."""
        with closing(self._open()) as db:
            row = db.execute("SELECT coalesce(sum(times), 0) FROM words").fetchone()
        return int(row[0])

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=10, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        return db


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was produced against what was counted, in records."""

    produced: int
    counted: int
    lost: int
    duplicated: int

    @property
    def is_exact(self) -> bool:
        """Whether every record was counted exactly once."""
        return not self.lost and not self.duplicated


def compare(produced: Mapping[str, int], counted: Mapping[str, int]) -> Comparison:
    """Hold both against each other word by word.

    A record too few of one word is not made good by one too many of another.
    """
    sent, found = Counter(produced), Counter(counted)
    return Comparison(
        produced=sent.total(),
        counted=found.total(),
        lost=(sent - found).total(),
        duplicated=(found - sent).total(),
    )
