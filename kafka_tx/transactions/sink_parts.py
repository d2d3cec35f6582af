"""Parts of a batch in a Kafka sink, and what is remembered of them.

Each part of a batch is one Kafka transaction that also commits a marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from zlib import crc32

_OLD_WORDS, _WORDS = 3, 6
_NONE = "-"


class Keyed(Protocol):
    """A record, as far as a digest looks at it."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""


_Record = TypeVar("_Record", bound=Keyed)


@dataclass(slots=True)
class Digest:
    """What was written, in any order: two tries with the same rows have the same.

    Attributes:
        rows: How many; None where an older version has written.
        sum: Of their check sums.
    """

    rows: int | None = 0
    sum: int = 0

    def of(self, records: Iterable[_Record]) -> Iterator[_Record]:
        """Hand records on, and count them."""
        rows, total = 0, 0
        for record in records:
            rows += 1
            total += crc32(record.value or b"", crc32(record.key or b""))
            yield record
        self.rows, self.sum = rows, total

    def __str__(self) -> str:
        return f"{self.rows} {self.sum:x}"


@dataclass(frozen=True, slots=True)
class Marker:
    """What is remembered of a part that was written last.

    Attributes:
        parts: How many there were in the batch; 0: not known.
        run: Of the program that wrote it; empty where an older version has written.
        epoch: Of the owner of the batch; 0: not known.
        life: As of ``Part``.
        owner: As of ``Part``.
        plan: As of ``Part``.
    """

    index: int
    txid: int
    parts: int = 0
    digest: Digest = field(default_factory=lambda: Digest(None))
    run: str = ""
    epoch: int = 0
    life: str = ""
    owner: str = ""
    plan: str = ""

    @property
    def metadata(self) -> str:
        """The marker as metadata of an offset, which is the txid."""
        who = f"{self.run or _NONE} {self.epoch} {self.owner or _NONE}"
        return f"{self.parts} {self.digest} {who} {self.plan or _NONE}"

    @classmethod
    def of_metadata(
        cls, index: int, txid: int, metadata: str | None, life: str = ""
    ) -> Marker:
        """Read what ``metadata`` wrote, also that of older versions."""
        words = (metadata or "0").split()
        digest = Digest(None)
        if len(words) >= _OLD_WORDS:
            digest = Digest(int(words[1]), int(words[2], 16))
        run, epoch, owner = "", 0, ""
        if len(words) >= _WORDS:
            run, epoch, owner = _named(words[3]), int(words[4]), _named(words[5])
        plan = _named(words[_WORDS]) if len(words) > _WORDS else ""
        return cls(index, txid, int(words[0]), digest, run, epoch, life, owner, plan)


def _named(word: str) -> str:
    return "" if word == _NONE else word


def name_of(sink: str, which: int | str) -> str:
    """The transactional id of a part, or of ``plan``."""
    return f"kafka_tx.{sink}.{which}"


def group_of(name: str, life: str) -> str:
    """The consumer group that remembers what a transactional id wrote in a life."""
    return f"{name}.{life}" if life else name


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of which batch: ``index`` of ``parts``, of the sink's ``id``.

    Attributes:
        parts: How many there are; 0 where the tasks are not told.
        life: What the txids are counted in where that is less than the sink's life:
            the id of Spark's query, whose batch ids start again with a new checkpoint.
        compares: Whether a replay must hold the rows that were written; False where
            one part is the whole batch, so that any rows of the same records will do.
        run: Of this program; another one after each restart.
        epoch: Of the owner of the batch; 0: not known.
        looks: Whether all markers of the sink are looked at before the first write of
            a run; False where the number of parts was fixed before any was written.
        owner: Whose txids they are: the id of the source or of the topology; empty: not
            known.
        plan: As of ``TransactionAttempt``.
    """

    id: str
    txid: int
    index: int
    parts: int
    life: str = ""
    compares: bool = True
    run: str = ""
    epoch: int = 0
    looks: bool = False
    owner: str = ""
    plan: str = ""

    @property
    def name(self) -> str:
        """The transactional id: a new writer of the part fences every older one."""
        return name_of(self.id, self.index)

    @property
    def group(self) -> str:
        """The consumer group that remembers the txid."""
        return group_of(self.name, self.life)

    def marker(self, digest: Digest) -> Marker:
        """What is remembered once it is written."""
        return Marker(
            self.index,
            self.txid,
            self.parts,
            digest,
            self.run,
            self.epoch,
            self.life,
            self.owner,
            self.plan,
        )
