"""What outlives a simulated driver: a fenced store, and a sink that counts once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast

from kafka_tx.config import Mode
from kafka_tx.errors import StateConflictError
from kafka_tx.model import TransactionAttempt
from kafka_tx.protocols import NOTHING, Expected, Store, Texts
from kafka_tx.sinks.admission import is_written
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.txid_layout import CURRENT
from kafka_tx.transactions.ownership.refusals import fenced

Range = tuple[int, int]
Batch = dict[int, Range]


def ranges(metadata: Mapping[str, Any]) -> Batch:
    """What a batch holds, by partition."""
    return {int(p): (part["start"], part["end"]) for p, part in metadata.items()}


class Checker(Protocol):
    def check_recorded(self, txid: int) -> None: ...

    def has_changed(self) -> None: ...


class SimulatedStore:
    """A fenced map whose every write is checked against the order of txids."""

    url, id = "memory:", "sim"

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self.values: dict[str, str] = {}
        self.epoch = 0

    def acquire(
        self, put: Texts = NOTHING, *, above: int = 0, expect: Expected = None
    ) -> int:
        self._check_expected(expect)
        self.epoch = max(self.epoch, above) + 1
        self.values |= put
        return self.epoch

    def read(self) -> dict[str, str]:
        return dict(self.values)

    def write(
        self,
        epoch: int,
        put: Mapping[str, str],
        delete: Iterable[str] = (),
        expect: Expected = None,
    ) -> None:
        if epoch != self.epoch:
            raise fenced(cast(Store, self), held=epoch, stored=self.epoch)
        self._check_expected(expect)
        before = self.currtx()
        for path in delete:
            self.values.pop(path, None)
        self.values |= put
        after = self.currtx()
        assert after in (before, before + 1), f"currtx went from {before} to {after}"
        if after > before:
            self._checker.check_recorded(before)
        self._checker.has_changed()

    def _check_expected(self, expect: Expected) -> None:
        for path, value in (expect or {}).items():
            if self.values.get(path) != value:
                raise StateConflictError(f"{path} is another")

    def currtx(self) -> int:
        at = records.Place(CURRENT, self.url, self.id)
        text = self.values.get(CURRENT)
        return 1 if text is None else int(records.decode(text, CURRENT, at))

    def txids(self, prefix: str) -> list[int]:
        ours = (p for p in self.values if p.startswith(prefix + "/"))
        return sorted(int(path.rpartition("/")[2]) for path in ours)


class Sink:
    """Sums per key that count once: (value, txid), or (value, previous, txid).

    One commit is one database transaction that also holds the newest attempt. What an
    older owner brings is refused, whatever its txid.
    """

    def __init__(self, mode: Mode) -> None:
        self._is_opaque = mode == "opaque"
        self.newest = TransactionAttempt(0, 0)
        self.rows: dict[tuple[int, str], tuple[int, int, int]] = {}

    def commit(self, attempt: TransactionAttempt, batch: Batch) -> None:
        """Raises what maps raise."""
        is_written(attempt, self.newest, what="the map", is_opaque=self._is_opaque)
        assert attempt.txid <= self.newest.txid + 1, f"{attempt} after {self.newest}"
        self.newest = attempt
        if self._is_opaque:
            for key, (_, previous, txid) in self.rows.items():
                if txid == attempt.txid:
                    self.rows[key] = (previous, previous, txid)
        for partition, (start, end) in batch.items():
            if end > start:
                self._add((partition, "count"), end - start, attempt.txid)
                self._add((partition, "sum"), sum(range(start, end)), attempt.txid)

    def _add(self, key: tuple[int, str], amount: int, txid: int) -> None:
        value, previous, stored = self.rows.get(key, (0, 0, 0))
        if self._is_opaque:
            base = previous if stored == txid else value
            self.rows[key] = (base + amount, base, txid)
        elif stored != txid:
            self.rows[key] = (value + amount, value, txid)

    def value(self, partition: int, name: str) -> int:
        return self.rows.get((partition, name), (0, 0, 0))[0]
