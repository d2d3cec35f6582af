"""What a transaction coordinator asks its runner to do.

Frozen values, carried out in the order in which they were given. Every one but
``Cancel``, ``TransactionCommitted`` and ``Stopped`` is answered by one event of the
coordinator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import Generic, TypeVar

from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.chain import Change
from kafka_tx.transactions.txid_layout import position

M = TypeVar("M")


@dataclass(frozen=True)
class Initialize(Generic[M]):
    """Plan the batch of ``attempt.txid``; answer ``initialized`` (or ``…_failed``).

    ``previous`` is the metadata of ``txid - 1``; None for txid 1. At most one is asked
    for at a time.
    """

    attempt: TransactionAttempt
    previous: M | None


@dataclass(frozen=True, slots=True)
class Write:
    """Make this change in the store, in one atomic step; answer ``stored`` (or failed).

    At most one is under way. One that failed is asked for again, under a new id. One
    that changes nothing is made all the same: the store compares epoch and position.

    Attributes:
        write_id: Names the write in its answer.
        epoch: Of the owner.
        put: Records to set.
        delete: Records to take away.
        expect: Where the store was left, as of ``txid_layout.position``; made with
            ``following.write``.
    """

    write_id: int
    epoch: int
    put: Mapping[str, str]
    delete: tuple[str, ...]
    expect: Mapping[str, str | None]


@dataclass(frozen=True)
class StartBatch(Generic[M]):
    """Begin the processing phase; answer ``processed`` or ``failed``.

    ``committed_txid`` is the last committed txid; None while there was none.
    """

    attempt: TransactionAttempt
    metadata: M
    committed_txid: int | None


@dataclass(frozen=True, slots=True)
class StartCommit:
    """Begin the commit phase; answer ``committed`` or ``commit_failed``, always.

    One at a time: the next one comes after that answer. The answer says that the work
    is over, on whatever machine it was done, not only that nobody waits for it.
    """

    attempt: TransactionAttempt


class Outcome(StrEnum):
    """How an attempt that did not commit ended; values of the metric's label."""

    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    """An earlier batch did not commit, or everything stops."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop working on these attempts; what they still answer is ignored.

    ``outcome`` is that of the first one, for ``reason``; later ones are cancelled.
    """

    attempts: tuple[TransactionAttempt, ...]
    reason: str
    outcome: Outcome = Outcome.FAILED


@dataclass(frozen=True)
class TransactionCommitted(Generic[M]):
    """The batch is recorded: metrics and the mirror of offsets move now."""

    attempt: TransactionAttempt
    metadata: M


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing more comes. ``error`` is None after ``stop``."""

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


class Purpose(Enum):
    """Why a write is made."""

    KEEP = auto()
    """New metadata must be stored before it is used."""

    CONFIRM = auto()
    """Nothing is changed; that it succeeds says that the store is ours, and as we left
    it. Before a commit phase, and once in a while when nothing else is written."""

    RECORD = auto()
    """A commit phase is complete."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write, for which attempt and why it is made."""

    write: Write
    attempt: TransactionAttempt
    purpose: Purpose

    @property
    def change(self) -> Change:
        """What the store holds once it is made."""
        return Change(self.write.put, self.write.delete)


class WriteQueue:
    """The first is under way; one that failed is made again, unchanged, after a pause.

    Whether a failed write arrived is unknown, so nothing may be decided anew in its
    place before the same write has succeeded. Each write expects what the ones before
    it have left.

    Args:
        stored: Every record of the id, as its owner found them.
    """

    def __init__(self, stored: Mapping[str, str]) -> None:
        self._stored = dict(stored)
        self._pending: deque[PendingWrite] = deque()
        self._ids = 0
        self.again_at_ms: int | None = None
        """When the first one is due again; None while it is under way."""

    def __bool__(self) -> bool:
        return bool(self._pending)

    def keeps_metadata(self) -> bool:
        """Whether metadata of a new txid is on its way to the store."""
        return self._holds(Purpose.KEEP)

    def confirms(self) -> bool:
        """Whether the store is being asked who owns it."""
        return self._holds(Purpose.CONFIRM)

    def add(
        self,
        epoch: int,
        change: Change,
        attempt: TransactionAttempt,
        purpose: Purpose,
    ) -> list[Write]:
        """Append a write; return it if it may be made now."""
        write = Write(self._new_id(), epoch, change.put, change.delete, {})
        self._pending.append(PendingWrite(write, attempt, purpose))
        return self._first() if len(self._pending) == 1 else []

    def is_under_way(self, write_id: int) -> bool:
        """Whether this is the write whose answer is awaited."""
        is_first = bool(self._pending) and self._pending[0].write.write_id == write_id
        return is_first and self.again_at_ms is None

    def done(self) -> tuple[PendingWrite, list[Write]]:
        """Take the first one off; return it, and the next one to make."""
        finished = self._pending.popleft()
        for path in finished.write.delete:
            self._stored.pop(path, None)
        self._stored |= finished.write.put
        return finished, self._first()

    def again(self, now_ms: int) -> list[Write]:
        """The first one under a new id, if it failed and its pause is over."""
        if self.again_at_ms is None or now_ms < self.again_at_ms:
            return []
        self.again_at_ms = None
        first = self._pending[0]
        write = replace(first.write, write_id=self._new_id())
        self._pending[0] = replace(first, write=write)
        return [write]

    def clear(self) -> None:
        """Give all of them up."""
        self._pending.clear()
        self.again_at_ms = None

    def _first(self) -> list[Write]:
        """The write that is to be made now, on top of what is stored."""
        if not self._pending:
            return []
        first = self._pending[0]
        write = replace(first.write, expect=position(self._stored))
        self._pending[0] = replace(first, write=write)
        return [write]

    def _holds(self, purpose: Purpose) -> bool:
        return any(pending.purpose is purpose for pending in self._pending)

    def _new_id(self) -> int:
        self._ids += 1
        return self._ids
