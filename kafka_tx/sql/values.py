"""A value that knows which transaction wrote it, so that a replay counts once.

The rules for one value, without a database; the maps apply the same ones to all keys of
a batch at once. Source: Storm, TransactionalMap and OpaqueMap (deviates: the attempt is
compared too).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from kafka_tx.errors import FencedError, OutOfOrderError
from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.refusals import PUT_BACK

V = TypeVar("V")


@dataclass(frozen=True)
class TransactionalValue(Generic[V]):
    """A value and the last txid that is counted in it.

    Right where a txid holds the same records on every replay.

    Attributes:
        value: None where there is none.
        txid: 0 where no transaction has written yet.
        epoch: Of the newest owner that wrote or replayed; an older one is refused.
    """

    value: V | None = None
    txid: int = 0
    epoch: int = 0

    def update(
        self, attempt: TransactionAttempt, change: Callable[[V | None], V | None]
    ) -> TransactionalValue[V]:
        """The value with ``change`` counted; unchanged where the txid is counted.

        Raises:
            FencedError: A newer owner wrote or replayed.
            OutOfOrderError: A later txid is counted already.
        """
        stored = TransactionAttempt.of(self.txid, epoch=self.epoch, number=0)
        if is_counted(attempt, stored, what="this value", is_opaque=False):
            return replace(self, epoch=attempt.epoch)
        return TransactionalValue(change(self.value), attempt.txid, attempt.epoch)


@dataclass(frozen=True)
class OpaqueValue(Generic[V]):
    """A value, what it was before the last transaction, and that transaction.

    Right also where a replay of a txid holds other records: it starts from
    ``previous``, as if the earlier attempt had never been.

    Attributes:
        value: None where there is none, or it was removed.
        previous: The value before ``txid``; None where there was none.
        txid: 0 where no transaction has written yet.
        attempt_id: Of the attempt that wrote; one of an older epoch, or of the same
            txid and lower, comes from an owner that was overtaken.
    """

    value: V | None = None
    previous: V | None = None
    txid: int = 0
    attempt_id: int = 0

    def update(
        self, attempt: TransactionAttempt, change: Callable[[V | None], V | None]
    ) -> OpaqueValue[V]:
        """The value with ``change`` counted, in place of an earlier attempt's.

        Raises:
            FencedError: A newer owner wrote, or a later attempt of the same txid.
            OutOfOrderError: A later txid is counted already.
        """
        stored = TransactionAttempt(self.txid, self.attempt_id)
        is_replay = is_counted(attempt, stored, what="this value", is_opaque=True)
        base = self.previous if is_replay else self.value
        return OpaqueValue(change(base), base, attempt.txid, attempt.attempt_id)


def is_counted(
    attempt: TransactionAttempt,
    stored: TransactionAttempt,
    *,
    what: str,
    is_opaque: bool,
) -> bool:
    """Whether an earlier attempt of the txid has written, if this one may write now.

    The owner is judged first: what one that was overtaken believes about txids, also
    about later ones, does not count.

    Raises:
        FencedError: A newer owner has written; opaque: or a later attempt of the txid.
        OutOfOrderError: A later txid has written.
    """
    is_late = is_opaque and (attempt.attempt_id < stored.attempt_id)
    if attempt.epoch < stored.epoch or (attempt.txid == stored.txid and is_late):
        raise _overtaken(attempt, stored, what)
    if attempt.txid < stored.txid:
        raise OutOfOrderError(
            f"transaction {attempt.txid} comes after {stored.txid}, which {what}"
            " already holds. Nothing was changed. Transactions are committed in order:"
            " either another job writes here too (give each its own name), or the store"
            f" of the tx.id is older than this state{PUT_BACK}",
            txid=attempt.txid,
            stored_txid=stored.txid,
        )
    return attempt.txid == stored.txid


def _overtaken(
    attempt: TransactionAttempt, stored: TransactionAttempt, what: str
) -> FencedError:
    return FencedError(
        f"attempt {attempt} is older than attempt {stored}, whose result {what} holds"
        f" (epochs {attempt.epoch} and {stored.epoch}). Nothing was changed. A newer"
        " owner of the same tx.id has written here: this one must stop. If there is no"
        f" other, the store of the tx.id is older than this state{PUT_BACK}",
        attempt=str(attempt),
        stored=str(stored),
    )
