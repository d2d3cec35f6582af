"""How many parts a batch of a Kafka sink has, decided before the first is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.admission import (
    check_newest,
    check_numbering,
    following,
)


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """Kept with the sink's markers, and read back before a run writes its first batch.

    Whether the first batch of a run is new, or was begun by an earlier one whose tasks
    may still be alive, cannot be told. So it always has the earlier number of parts:
    each of them is written again or found done, and that fences those tasks.

    Attributes:
        parts: Of batches from ``since`` on.
        since: A txid.
        before: Parts of the batches before.
        source: ``tx.id`` of the source whose batches the sink counts; empty: not known.
        epoch: Of the owner that stored it; 0: not known.
        numbering: That the sink counts; empty: not known.
    """

    parts: int
    since: int
    before: int
    source: str = ""
    epoch: int = 0
    numbering: str = ""

    def parts_of(self, txid: int) -> int:
        """How many parts a batch has."""
        return self.parts if txid >= self.since else self.before

    def follows(self, given: Wish) -> bool:
        """Whether a batch may be written by it as it is."""
        counted = given.attempt.numbering, given.attempt.epoch
        return (self.numbering, self.epoch, self.parts) == (*counted, given.parts)

    def as_fields(self) -> dict[str, Any]:
        """For the record that keeps it."""
        return asdict(self)

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Self:
        """Read what ``as_fields`` wrote; fields of later versions are left out."""
        return cls(**{name: fields[name] for name in cls.__slots__ if name in fields})


@dataclass(frozen=True, slots=True)
class Wish:
    """What a call wants to write: a batch, in so many parts, into the sink ``id``."""

    id: str
    attempt: TransactionAttempt
    parts: int

    @property
    def txid(self) -> int:
        """Of the batch."""
        return self.attempt.txid


def planned(stored: SinkPlan | None, wish: Wish, txid: int = 0) -> SinkPlan:
    """The plan to write a batch by; store it first where it is another one.

    Args:
        stored: That is kept.
        wish: What a call wants.
        txid: The last one that the sink holds.

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
