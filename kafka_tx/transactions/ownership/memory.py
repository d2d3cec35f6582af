"""State in this process's memory: for tests, demos and jobs that may start over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Self, TypeAlias

from kafka_tx.config import check_id
from kafka_tx.errors import StateError
from kafka_tx.model import CommittedOffset, TopicPartition
from kafka_tx.protocols import NOTHING, Expected, Paths, Texts
from kafka_tx.transactions.layout.records import check_path, check_value
from kafka_tx.transactions.ownership.refusals import conflict, fenced
from kafka_tx.transactions.ownership.store_base import OffsetsOfId, StateOfId


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """Everything a MemoryStore held at one moment."""

    epoch: int
    values: Mapping[str, str]


Positions: TypeAlias = tuple[int, dict[TopicPartition, CommittedOffset]]
"""Newest epoch and stored offsets of an at-least-once topology."""


@dataclass(frozen=True, slots=True)
class StoredId:
    """The stored state of an id at one moment, read together with other ids.

    ``store`` is a copy of its records. ``at_least_once`` decodes the offsets of an
    at-least-once topology: epoch 0 and no offsets if none are stored. Of an id that
    cannot be read, both raise the error at their use: it hides no other id.
    """

    store: MemoryStore
    at_least_once: Callable[[], Positions]

    @classmethod
    def unreadable(cls, url: str, id_: str, error: StateError) -> Self:
        """What is known of an id that cannot be read."""

        def fail() -> Positions:
            raise error

        return cls(_Unreadable(url, id_, error), fail)


@dataclass(slots=True)
class _Cell:
    """The state that all stores of one name and id share. A write replaces it whole."""

    now: MemorySnapshot = field(default_factory=lambda: MemorySnapshot(0, {}))
    lock: Lock = field(default_factory=Lock)


_cells: dict[tuple[str, str], _Cell] = {}


class MemoryStore(StateOfId):
    """A Store that lives as long as the process.

    Objects with the same ``name`` and ``id`` share their state, also after all were
    closed, like connections to one database. Other processes do not see the state.
    """

    def __init__(self, name: str, id: str) -> None:  # noqa: A002 - the seam's word
        super().__init__(f"memory:{name}", check_id(id))
        self._cell = _cells.setdefault((name, id), _Cell())

    @classmethod
    def copy_of(
        cls,
        url: str,
        id: str,  # noqa: A002 - the seam's word
        now: MemorySnapshot,
    ) -> MemoryStore:
        """A private copy of another store's state of an id."""
        copy = cls.__new__(cls)
        StateOfId.__init__(copy, url, id)
        copy._cell = _Cell(now)
        return copy

    def acquire(
        self, put: Texts = NOTHING, *, above: int = 0, expect: Expected = None
    ) -> int:
        """As ``Store.acquire``."""
        new = {check_path(p): check_value(p, value) for p, value in put.items()}
        with self._cell.lock:
            now = self._cell.now
            self._check_expected(now, expect)
            epoch = max(now.epoch, above) + 1
            self._cell.now = MemorySnapshot(epoch, {**now.values, **new})
            return epoch

    def epoch(self) -> int:
        """As ``Store.epoch``."""
        return self._cell.now.epoch

    def read(self, prefix: str = "") -> dict[str, str]:
        """As ``Store.read``."""
        values = self._cell.now.values
        return {p: values[p] for p in sorted(values) if p.startswith(prefix)}

    def get(self, path: str) -> str | None:
        """As ``Store.get``."""
        return self._cell.now.values.get(check_path(path))

    def write(
        self, epoch: int, put: Texts, delete: Paths = (), *, expect: Expected = None
    ) -> None:
        """As ``Store.write``."""
        gone = {check_path(path) for path in delete}
        new = {check_path(p): check_value(p, value) for p, value in put.items()}
        with self._cell.lock:
            now = self._cell.now
            if now.epoch != epoch or not epoch:
                raise fenced(self, held=epoch, stored=now.epoch)
            self._check_expected(now, expect)
            kept = {p: v for p, v in now.values.items() if p not in gone}
            self._cell.now = MemorySnapshot(epoch, {**kept, **new})

    def _check_expected(self, now: MemorySnapshot, expect: Expected) -> None:
        for path, value in (expect or {}).items():
            if now.values.get(path) != value:
                raise conflict(self, path)

    def sinks(self, numbering: str) -> dict[str, int]:  # noqa: ARG002
        """Empty: no sink keeps its state here."""
        return {}

    def close(self) -> None:
        """Nothing to release; the state stays."""

    def snapshot(self) -> MemorySnapshot:
        """The whole state now, for a test that simulates a crash later."""
        return self._cell.now

    def restore(self, snapshot: MemorySnapshot) -> None:
        """Go back to ``snapshot``, for every object of this name and id."""
        with self._cell.lock:
            self._cell.now = snapshot


class _Unreadable(MemoryStore):
    """Stands for the copy of an id that could not be read."""

    def __init__(self, url: str, id_: str, error: StateError) -> None:
        StateOfId.__init__(self, url, id_)
        self._error = error

    def epoch(self) -> int:
        raise self._error

    def read(self, prefix: str = "") -> dict[str, str]:  # noqa: ARG002
        raise self._error

    def get(self, path: str) -> str | None:  # noqa: ARG002
        raise self._error


class MemoryOffsetStore(OffsetsOfId):
    """An OffsetStore that lives as long as the object."""

    def __init__(self) -> None:
        super().__init__("memory:", "")
        self._offsets: dict[TopicPartition, CommittedOffset] = {}

    def acquire(self, task: int = 0, tasks: int = 1) -> int:  # noqa: ARG002
        """Fences nobody: no other process can use this object."""
        return 0

    def topics(self) -> frozenset[str]:
        """As ``OffsetStore.topics``."""
        return frozenset(partition.topic for partition in self._offsets)

    def load(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """As ``OffsetStore.load``."""
        stored = self._offsets
        return {p: stored[p] for p in partitions if p in stored}

    def store(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """As ``OffsetStore.store``."""
        self._offsets = {**self._offsets, **offsets}

    def close(self) -> None:
        """Nothing to release; the offsets stay."""
