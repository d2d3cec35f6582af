"""How many parts a batch of a Kafka sink has, decided before the first is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from kafka_tx.errors import FencedError
from kafka_tx.transactions.marker_rules import check_owner


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
    """

    parts: int
    since: int
    before: int
    source: str = ""
    epoch: int = 0

    def parts_of(self, txid: int) -> int:
        """How many parts a batch has."""
        return self.parts if txid >= self.since else self.before

    def follows(self, given: Wish) -> bool:
        """Whether a batch may be written by it as it is."""
        same_owner = (self.source, self.epoch) == (given.source, given.epoch)
        return same_owner and self.parts == given.parts

    def as_fields(self) -> dict[str, Any]:
        """For the record that keeps it."""
        return asdict(self)

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Self:
        """Read what ``as_fields`` wrote; fields of later versions are left out."""
        return cls(**{name: fields[name] for name in cls.__slots__ if name in fields})


@dataclass(frozen=True, slots=True)
class Wish:
    """What a call wants to write: a batch, in so many parts, of a source's owner."""

    id: str
    txid: int
    parts: int
    source: str = ""
    epoch: int = 0


def planned(stored: SinkPlan | None, wish: Wish) -> SinkPlan:
    """The plan to write a batch by; store it first where it is another one.

    Raises:
        ConfigError: The sink belongs to another source.
        FencedError: A newer owner stored its plan.
    """
    if stored is None:
        return SinkPlan(wish.parts, wish.txid, wish.parts, wish.source, wish.epoch)
    check_owner(wish.id, stored.source, wish.source)
    if 0 < wish.epoch < stored.epoch:
        raise FencedError(
            f"the sink '{wish.id}' has a newer owner (epoch {stored.epoch}); this one"
            f" (epoch {wish.epoch}, txid {wish.txid}) was overtaken and must stop.",
            id=wish.id,
        )
    source, epoch = wish.source or stored.source, max(wish.epoch, stored.epoch)
    now = stored.parts_of(wish.txid)
    since = wish.txid + 1 if now != wish.parts else min(stored.since, wish.txid)
    return SinkPlan(wish.parts, since, now, source, epoch)
