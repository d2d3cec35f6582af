"""A value that knows which transaction wrote it, so that a replay counts once.

The rules for one value, without a database; the maps apply the same ones to all keys of
a batch at once. Source: Storm, TransactionalMap and OpaqueMap (deviates: the attempt is
compared too).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.admission import is_written

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
        if is_written(attempt, stored, what="this value", is_opaque=False):
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
        is_replay = is_written(attempt, stored, what="this value", is_opaque=True)
        base = self.previous if is_replay else self.value
        return OpaqueValue(change(base), base, attempt.txid, attempt.attempt_id)
