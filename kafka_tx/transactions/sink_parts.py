"""Parts of a batch in a Kafka sink, and what is remembered of them.

Each part of a batch is one Kafka transaction that also commits a marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar
from zlib import crc32

from kafka_tx.model import TransactionAttempt

_WORDS = 8
_NONE = "-"


class Written(Protocol):
    """A record, as far as a digest looks at it: all that readers can see of it."""

    @property
    def topic(self) -> str:
        """Where it goes."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        """Its headers, in order."""

    @property
    def partition(self) -> int | None:
        """The partition that it asks for."""

    @property
    def timestamp_ms(self) -> int | None:
        """The time that it asks for."""


_Record = TypeVar("_Record", bound=Written)


@dataclass(slots=True)
class Digest:
    """What was written, in any order: two tries with the same rows have the same.

    Attributes:
        rows: How many.
        sum: Of their check sums.
    """

    rows: int = 0
    sum: int = 0

    def of(self, records: Iterable[_Record]) -> Iterator[_Record]:
        """Hand records on, and count them."""
        rows, total = 0, 0
        for record in records:
            rows += 1
            total += _check_sum(record)
            yield record
        self.rows, self.sum = rows, total

    def __str__(self) -> str:
        return f"{self.rows} {self.sum:x}"


def _check_sum(record: Written) -> int:
    """Lengths keep key and value apart, and nothing from what is empty."""
    key, value = record.key, record.value
    lengths = (
        None if key is None else len(key),
        None if value is None else len(value),
    )
    asked = record.topic, record.partition, record.timestamp_ms
    headers = list(record.headers or ())
    total = crc32(f"{lengths} {asked} {headers}".encode("utf-8", "surrogatepass"))
    return crc32(value or b"", crc32(key or b"", total))


@dataclass(frozen=True, slots=True)
class Marker:
    """What is remembered of a part that was written last.

    Attributes:
        parts: How many there were in the batch; 0: not known.
        run: Of the program that wrote it; empty where nobody is known.
        epoch: Of the owner of the batch; 0: not known.
        life: As of ``Part``.
        owner, plan, numbering: As of ``Part``.
    """

    index: int
    txid: int
    parts: int = 0
    digest: Digest = field(default_factory=Digest)
    run: str = ""
    epoch: int = 0
    life: str = ""
    owner: str = ""
    plan: str = ""
    numbering: str = ""

    @property
    def attempt(self) -> TransactionAttempt:
        """Whose it is, as far as sinks compare attempts."""
        return _attempt_of(self)

    @property
    def metadata(self) -> str:
        """The marker as metadata of an offset, which is the txid."""
        who = f"{self.run or _NONE} {self.epoch} {self.owner or _NONE}"
        what = f"{self.plan or _NONE} {self.numbering or _NONE}"
        return f"{self.parts} {self.digest} {who} {what}"

    @classmethod
    def of_metadata(
        cls, index: int, txid: int, metadata: str | None, life: str = ""
    ) -> Marker:
        """Read what ``metadata`` wrote; with other words only the txid is known."""
        words = ["" if word == _NONE else word for word in (metadata or "").split()]
        if len(words) != _WORDS:
            return cls(index, txid, life=life)
        parts, rows, total, run, epoch, owner, plan, numbering = words
        digest = Digest(int(rows), int(total, 16))
        named = {"owner": owner, "plan": plan, "numbering": numbering}
        return cls(index, txid, int(parts), digest, run, int(epoch), life, **named)


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
        plan, numbering: As of ``TransactionAttempt``.
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
    numbering: str = ""

    @property
    def attempt(self) -> TransactionAttempt:
        """Whose it is, as far as sinks compare attempts."""
        return _attempt_of(self)

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
            self.numbering,
        )


def _attempt_of(one: Marker | Part) -> TransactionAttempt:
    attempt = TransactionAttempt.of(one.txid, epoch=one.epoch, number=0)
    return replace(attempt, source=one.owner, plan=one.plan, numbering=one.numbering)
