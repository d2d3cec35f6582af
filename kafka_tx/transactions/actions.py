"""What a transaction coordinator asks its runner to do.

Frozen values, carried out in the order in which they were given. Every one but
``Cancel``, ``TransactionCommitted`` and ``Stopped`` is answered by one event of the
coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from kafka_tx.model import TransactionAttempt

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
