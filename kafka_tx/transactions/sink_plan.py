"""The number of parts of a Kafka sink's batch, decided before the first write."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.admission import check_newest, check_numbering, following


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """Stored with the sink's markers, and read before a run writes its first batch.

    An earlier run may have begun this batch, and its tasks may be alive. So the batch
    keeps the earlier number of parts: writing each of them fences the old tasks.

    Attributes:
        parts: Number of parts of batches from ``since`` on.
        since: First txid with this number of parts.
        before: Number of parts of earlier batches.
        source: ``tx.id`` of the source whose batches the sink counts; empty: not known.
        epoch: Epoch of the owner that stored the plan; 0: not known.
        numbering: Numbering of the sink's txids; empty: not known.
    """

    parts: int
    since: int
    before: int
    source: str = ""
    epoch: int = 0
    numbering: str = ""

    def parts_of(self, txid: int) -> int:
        """Number of parts of a batch."""
        return self.parts if txid >= self.since else self.before

    def follows(self, given: Wish) -> bool:
        """Whether a batch may be written without a change of the plan."""
        counted = given.attempt.numbering, given.attempt.epoch
        return (self.numbering, self.epoch, self.parts) == (*counted, given.parts)

    def as_fields(self) -> dict[str, Any]:
        """The plan's fields, for its record."""
        return asdict(self)

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Self:
        """Read the result of ``as_fields``; fields of later versions are ignored."""
        return cls(**{name: fields[name] for name in cls.__slots__ if name in fields})


@dataclass(frozen=True, slots=True)
class Wish:
    """The wish of a call: write a batch, in so many parts, to the sink ``id``."""

    id: str
    attempt: TransactionAttempt
    parts: int


def planned(stored: SinkPlan | None, wish: Wish, txid: int = 0) -> SinkPlan:
    """The plan to write a batch by; if it differs from ``stored``, store it first.

    ``txid`` is the last one that the sink holds.

    Raises:
        AnotherNumberingError: The sink belongs to another source, or another store.
        FencedError: A newer owner stored its plan.
        OutOfOrderError: The sink holds a later txid.
    """
    given, parts = wish.attempt, wish.parts
    if stored is None:
        named = given.source, given.epoch, given.numbering
        return SinkPlan(parts, given.txid, parts, *named)
    what = f"the sink '{wish.id}'"
    known = TransactionAttempt.of(txid, epoch=stored.epoch, number=0)
    known = replace(known, source=stored.source, numbering=stored.numbering)
    check_numbering(given, known, what)
    check_newest(given, known, what)
    now = stored.parts_of(given.txid)
    since = given.txid + 1 if now != parts else min(stored.since, given.txid)
    next_ = following(given, known)
    return SinkPlan(parts, since, now, next_.source, next_.epoch, next_.numbering)
