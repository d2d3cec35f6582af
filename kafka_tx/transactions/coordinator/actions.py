"""The actions that a transaction coordinator asks its runner to carry out.

Frozen values; the runner carries them out in order. It answers each one, except
``Cancel``, ``TransactionCommitted`` and ``Stopped``, with one event of the coordinator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from itertools import count
from typing import Any, Generic, TypeVar

from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.coordinator.uncommitted import Change, MetadataChain
from kafka_tx.transactions.layout.txid_layout import position

M = TypeVar("M")


@dataclass(frozen=True)
class Initialize(Generic[M]):
    """Plan the batch of ``attempt.txid``; answer ``initialized`` (or ``…_failed``).

    ``previous`` is the metadata of ``txid - 1``. For txid 1 it is None; once ranges of
    an opaque txid 1 were planned, it has empty ranges where that first plan begins. At
    most one batch is planned at a time.
    """

    attempt: TransactionAttempt
    previous: M | None


class Purpose(Enum):
    """Why a write is made.

    Attributes:
        KEEP: New metadata must be stored before it is used.
        CONFIRM: Changes nothing; success proves that we own the store and that nobody
            changed it. Made before a commit phase, and when nothing else is written.
        RECORD: A commit phase is complete.
    """

    KEEP = auto()
    CONFIRM = auto()
    RECORD = auto()


@dataclass(frozen=True, slots=True)
class Write:
    """Make this change in the store, in one atomic step; answer ``stored`` (or failed).

    At most one write is under way. A write without changes is made, too: the store
    compares epoch and position. ``expect`` has the records that the last write left
    (``txid_layout.position``); ``guarded_writes.write`` makes it.
    """

    write_id: int
    epoch: int
    put: Mapping[str, str]
    delete: tuple[str, ...]
    expect: Mapping[str, str | None]
    attempt: TransactionAttempt
    purpose: Purpose


@dataclass(frozen=True)
class StartBatch(Generic[M]):
    """Begin the processing phase; answer ``processed`` or ``failed``.

    ``committed_txid`` is the last committed txid; None before the first commit.
    """

    attempt: TransactionAttempt
    metadata: M
    committed_txid: int | None


@dataclass(frozen=True, slots=True)
class StartCommit:
    """Begin the commit phase; answer ``committed`` or ``commit_failed``, always.

    One at a time. The answer says that the work has ended on every machine, not only
    that nobody waits for the work.
    """

    attempt: TransactionAttempt


class Outcome(StrEnum):
    """The end of an attempt that did not commit; values of the metric's label."""

    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    """An earlier batch did not commit, or everything stops."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop working on these attempts; their later answers are ignored.

    The first attempt ends with ``outcome``, for ``reason``; later ones are cancelled.
    """

    attempts: tuple[TransactionAttempt, ...]
    reason: str
    outcome: Outcome = Outcome.FAILED


@dataclass(frozen=True)
class TransactionCommitted(Generic[M]):
    """The batch is recorded: update metrics and the mirror of offsets now."""

    attempt: TransactionAttempt
    metadata: M


@dataclass(frozen=True, slots=True)
class Stopped:
    """The last action. ``error`` is None after ``stop``."""

    error: BaseException | None = None


Action = (
    Initialize[M]
    | Write
    | StartBatch[M]
    | StartCommit
    | Cancel
    | TransactionCommitted[M]
    | Stopped
)


class WriteQueue:
    """The first write is under way; a failed write is repeated unchanged after a pause.

    Nobody knows whether a failed write has arrived. So nothing new is decided in its
    place before the same write, under a new id, has succeeded. Each write expects the
    records that the writes before it have left. ``chain`` takes each change that was
    written; its state has the stored records.
    """

    def __init__(self, chain: MetadataChain[Any]) -> None:
        self._chain = chain
        self._pending: deque[Write] = deque()
        self._ids = count(1)
        self.again_at_ms: int | None = None
        """When the first write is due again; None while the write is under way."""

    def __bool__(self) -> bool:
        return bool(self._pending)

    def holds(self, purpose: Purpose) -> bool:
        """Whether a write for this purpose is under way or waits."""
        return any(pending.purpose is purpose for pending in self._pending)

    def add(
        self, epoch: int, change: Change, attempt: TransactionAttempt, purpose: Purpose
    ) -> list[Write]:
        """Append a write; return it if it may be made now."""
        made, id_ = (change.put, change.delete), next(self._ids)
        self._pending.append(Write(id_, epoch, *made, {}, attempt, purpose))
        return self._first() if len(self._pending) == 1 else []

    def is_under_way(self, write_id: int) -> bool:
        """Whether this is the write whose answer is awaited."""
        is_first = bool(self._pending) and self._pending[0].write_id == write_id
        return is_first and self.again_at_ms is None

    def done(self) -> tuple[Write, list[Write]]:
        """Remove the first write; return it, and the next write to make."""
        finished = self._pending.popleft()
        self._chain.apply(Change(finished.put, finished.delete))
        return finished, self._first()

    def again(self, now_ms: int) -> list[Write]:
        """The first write under a new id, if it failed and its pause is over."""
        if self.again_at_ms is None or now_ms < self.again_at_ms:
            return []
        self.again_at_ms = None
        self._pending[0] = replace(self._pending[0], write_id=next(self._ids))
        return [self._pending[0]]

    def clear(self) -> None:
        """Drop all writes."""
        self._pending.clear()
        self.again_at_ms = None

    def _first(self) -> list[Write]:
        """The write to make now, on top of the stored records."""
        if not self._pending:
            return []
        expect = position(self._chain.state.texts)
        self._pending[0] = replace(self._pending[0], expect=expect)
        return [self._pending[0]]
