"""What is wrong with the records of a topology, and the smallest change that mends it.

A topology goes on from the metadata of the txid before ``currtx``, with every txid from
there on, without a hole. ``currtx`` says which one that is; where it cannot be read,
the lowest metadata does: a commit leaves none below its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_tx.errors import StateCorruptedError
from kafka_tx.transactions import records
from kafka_tx.transactions.ledger_records import metadata_path
from kafka_tx.transactions.txid_layout import CURRENT, METADATA


@dataclass
class Chain:
    """The records of a topology, read as far as they can be.

    Attributes:
        texts: Every record of the id, by path.
        store: Address of the store, without secrets.
        id: Whose they are.
        problems: Path and reason of each record that is wrong.
    """

    texts: Mapping[str, str]
    store: str
    id: str
    problems: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        paths = [path for path in self.texts if path.startswith(METADATA)]
        readable = [path for path in paths if self._read(path, "metadata")]
        self._txids = sorted(map(_txid_of, readable))
        self._others = set(paths) - set(readable)
        names = (path.removeprefix(METADATA) for path in paths)
        self._lowest = min(map(int, filter(_is_txid, names)), default=0)
        self._current = self._stored_current()

    def current(self) -> int | None:
        """The lowest uncommitted txid; None where no readable record tells."""
        if self._current is None:
            self.problems.setdefault(CURRENT, "it is missing")
            return self._lowest + 1 if self._lowest in self._txids else None
        first = max(self._current - 1, 1)
        if self._current > 1 and first not in self._txids:
            self.problems[metadata_path(first)] = (
                f"it is missing, and '{CURRENT}' is {self._current}"
            )
            return None
        return self._current

    def gone(self, current: int) -> tuple[str, ...]:
        """Metadata that is no part of the chain: too old, after a hole, unreadable."""
        txid = max(current - 1, 1)
        kept = set()
        while txid in self._txids:
            kept.add(txid)
            txid += 1
        for txid in set(self._txids) - kept:
            what = "of a committed txid" if txid < current else "after one that is not"
            self.problems.setdefault(metadata_path(txid), f"it is {what} there")
        left = {metadata_path(txid) for txid in self._txids if txid not in kept}
        return tuple(sorted(left | self._others))

    def _stored_current(self) -> int | None:
        """What ``currtx`` says; 1: nothing was ever committed; None: unreadable."""
        if CURRENT not in self.texts:
            return 1 if self._lowest <= 1 else None
        payload = self._read(CURRENT, CURRENT)
        if payload and isinstance(payload[0], int) and payload[0] > 0:
            return payload[0]
        self.problems.setdefault(CURRENT, "its content makes no sense")
        return None

    def _read(self, path: str, kind: str) -> tuple[object] | None:
        """The payload, in a tuple as it may be null; None: unreadable."""
        if path.startswith(METADATA) and not _is_txid(path.removeprefix(METADATA)):
            self.problems[path] = "its name is no txid"
            return None
        where = {"path": path, "store": self.store, "id": self.id}
        try:
            return (records.decode(self.texts[path], kind, **where),)
        except StateCorruptedError as error:
            self.problems[path] = str(error.fields["reason"])
            return None


def _is_txid(name: str) -> bool:
    return name.isdecimal() and str(int(name)) == name


def _txid_of(path: str) -> int:
    return int(path.removeprefix(METADATA))
