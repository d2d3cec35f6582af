"""Parts of a batch in a Kafka sink, and what is remembered of them.

Each part of a batch is one Kafka transaction that also commits a marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Protocol, TypeVar
from zlib import crc32

from kafka_tx.model import TransactionAttempt

_WORDS = 8
_NONE = "-"
_LENGTHS, _OF_HEADER = Struct("<6q"), Struct("<2q")
_NO_TIME = -(2**63)


class Written(Protocol):
    """One record or several, as far as a digest looks at them."""

    def counted(self) -> tuple[int, int]:
        """How many, and the sum of their check sums: see ``check_sum``."""


_Records = TypeVar("_Records", bound=Written)


@dataclass(slots=True)
class Digest:
    """What was written, in any order: two tries with the same rows have the same.

    Attributes:
        rows: How many.
        sum: Of their check sums.
    """

    rows: int = 0
    sum: int = 0

    def of(self, written: Iterable[_Records]) -> Iterator[_Records]:
        """Hand records on, and count them."""
        rows, total = 0, 0
        for some in written:
            count, check_sums = some.counted()
            rows += count
            total += check_sums
            yield some
        self.rows, self.sum = rows, total

    def __str__(self) -> str:
        return f"{self.rows} {self.sum:x}"


def check_sum(
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    partition: int | None,
    timestamp_ms: int | None,
) -> int:
    """Of one record: all that readers can see of it.

    Lengths keep its members apart, and nothing from what is empty. The native writer
    computes the same (``check_sum.c``).
    """
    name = topic.encode("utf-8", "surrogatepass")
    total = crc32(
        _LENGTHS.pack(
            len(name),
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            -1 if partition is None else partition,
            _NO_TIME if timestamp_ms is None else timestamp_ms,
            len(headers),
        )
    )
    total = crc32(name, total)
    for text, content in headers:
        header = text.encode("utf-8", "surrogatepass")
        size = -1 if content is None else len(content)
        total = crc32(_OF_HEADER.pack(len(header), size), total)
        total = crc32(content or b"", crc32(header, total))
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
