"""A value that knows which transaction wrote it, so that a replay counts once.

The rules for one value, without a database; the maps apply the same ones to all keys of
a batch at once. Source: Storm, TransactionalMap and OpaqueMap (deviates: the attempt is
compared too).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafka_tx.errors import FencedError, OutOfOrderError
from kafka_tx.model import TransactionAttempt

V = TypeVar("V")


@dataclass(frozen=True)
class TransactionalValue(Generic[V]):
    """A value and the last txid that is counted in it.

    Right where a txid holds the same records on every replay.

    Attributes:
        value: None where there is none.
        txid: 0 where no transaction has written yet.
    """

    value: V | None = None
    txid: int = 0

    def update(
        self, attempt: TransactionAttempt, change: Callable[[V | None], V | None]
    ) -> TransactionalValue[V]:
        """The value with ``change`` counted; itself where the txid is counted already.

        Raises:
            OutOfOrderError: A later txid is counted already.
        """
        stored = TransactionAttempt(self.txid, 0)
        if is_counted(attempt, stored, what="this value", is_opaque=False):
            return self
        return TransactionalValue(change(self.value), attempt.txid)


@dataclass(frozen=True)
class OpaqueValue(Generic[V]):
    """A value, what it was before the last transaction, and that transaction.

    Right also where a replay of a txid holds other records: it starts from
    ``previous``, as if the earlier attempt had never been.

    Attributes:
        value: None where there is none, or it was removed.
        previous: The value before ``txid``; None where there was none.
        txid: 0 where no transaction has written yet.
        attempt_id: Of the attempt that wrote; a replay with a lower one comes from an
            owner that was overtaken.
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
            OutOfOrderError: A later txid is counted already.
            FencedError: A later attempt of the same txid wrote.
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

    Raises:
        OutOfOrderError: A later txid has written.
        FencedError: Opaque, and a later attempt of the same txid has written.
    """
    if attempt.txid < stored.txid:
        raise OutOfOrderError(
            f"transaction {attempt.txid} comes after {stored.txid}, which {what}"
            " already holds. Nothing was changed. Transactions are committed in order:"
            " either another job writes here too (give each its own name), or the store"
            " of the tx.id is older than this state (restore both from the same time)",
            txid=attempt.txid,
            stored_txid=stored.txid,
        )
    if attempt.txid > stored.txid:
        return False
    if is_opaque and attempt.attempt_id < stored.attempt_id:
        raise FencedError(
            f"attempt {attempt} is older than attempt {stored}, whose result {what}"
            " holds. Nothing was changed. A newer owner of the same tx.id has started;"
            " this one must stop",
            attempt=str(attempt),
            stored=str(stored),
        )
    return True
