"""Parts of a batch in a Kafka sink, their markers, and how many parts there are.

Each part of a batch is one Kafka transaction that also commits a marker. The number of
parts is decided before the first write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from struct import Struct
from typing import Any, Protocol, Self, TypeVar
from zlib import crc32

from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.admission import attempt_to_store, check_newest, check_numbering
from kafka_tx.stored import MARKERS

OF_OLD_VERSIONS = re.compile(r"\d+ \d+ [0-9a-f]+( |$)|\d+$")
"""Markers of versions before the first release: words that begin with numbers."""
_LENGTHS, _OF_HEADER = Struct("<6q"), Struct("<2q")
_NO_TIME = -(2**63)


class Written(Protocol):
    """One record or several, as input of a digest."""

    def counted(self) -> tuple[int, int]:
        """Number of records, and the sum of their ``check_sum``."""

    def sum_compared(self) -> int:
        """Sum of the numbers by which a replay is compared instead; 0: none."""


_Records = TypeVar("_Records", bound=Written)


@dataclass(slots=True)
class Digest:
    """Number and check sums of written rows, in any order: equal for the same rows.

    ``compared`` is the sum of numbers that are equal for the same rows although other
    records are made of them; 0: there are none.
    """

    rows: int = 0
    sum: int = 0
    compared: int = 0

    def of(self, written: Iterable[_Records]) -> Iterator[_Records]:
        """Pass records on, and count them."""
        rows, total, compared = 0, 0, 0
        for some in written:
            count, check_sums = some.counted()
            rows += count
            total += check_sums
            compared += some.sum_compared()
            yield some
        self.rows, self.sum, self.compared = rows, total, compared

    def is_of_same_rows(self, other: Digest) -> bool:
        """Whether both are of the same rows; version 0.3.0 knew check sums alone."""
        if self.compared and other.compared:
            return (self.rows, self.compared) == (other.rows, other.compared)
        return (self.rows, self.sum) == (other.rows, other.sum)

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
    """Check sum of one record: of everything that readers see.

    Lengths separate its fields, and an absent field from an empty one. The native
    writer computes the same (``check_sum.c``).
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
    """The record of the last write of a part.

    Attributes:
        parts: Number of parts of the batch; 0: not known.
        run: Run of the program that wrote the part; empty: not known.
        life: As of ``Part``.
    """

    index: int
    attempt: TransactionAttempt
    parts: int = 0
    digest: Digest = field(default_factory=Digest)
    run: str = ""
    life: str = ""

    @property
    def txid(self) -> int:
        """The txid that was written; 0: the marker announces a writer."""
        return self.attempt.txid

    @property
    def metadata(self) -> str:
        """The marker as metadata of an offset; the offset is the txid.

        Of the attempt's id it has the epoch, by which alone sinks compare.
        """
        its = self.attempt
        named = {"source": its.source, "plan": its.plan, "numbering": its.numbering}
        said = {"txid": self.txid, "parts": self.parts, "digest": str(self.digest)}
        said |= {"run": self.run, "epoch": its.epoch}
        if self.digest.compared:
            named["compared"] = f"{self.digest.compared:x}"
        return compact(MARKERS.stamped(said | named))

    @classmethod
    def of_metadata(
        cls,
        index: int,
        txid: int,
        metadata: str,
        life: str = "",
        what: str = "a marker",
    ) -> Marker:
        """Read the result of ``metadata``.

        Raises FormatError, or Python's errors: It is another text. ``what`` is the
        marker in words.
        """
        if OF_OLD_VERSIONS.match(metadata):
            MARKERS.check(None, what)
        said = json.loads(metadata)
        MARKERS.check_members(said, what)
        attempt = TransactionAttempt.of(txid, epoch=int(said["epoch"]), number=0)
        rows, total = said["digest"].split()
        compared = said.get("compared", "0")
        digest = Digest(int(rows), int(total, 16), int(compared, 16))
        attempt = replace(
            attempt,
            source=str(said["source"]),
            plan=str(said["plan"]),
            numbering=str(said["numbering"]),
        )
        parts, run = int(said["parts"]), str(said["run"])
        return cls(index, attempt, parts, digest, run, life)


def compact(value: object) -> str:
    """JSON without blanks, as markers are stored."""
    return json.dumps(value, separators=(",", ":"))


def name_of(sink: str, which: int | str) -> str:
    """The transactional id of a part, or of ``plan``."""
    return f"kafka_tx.{sink}.{which}"


def group_of(name: str, life: str) -> str:
    """The consumer group that holds the last txid of a transactional id in a life."""
    return f"{name}.{life}" if life else name


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of which batch: ``index`` of ``parts``, of the sink's ``id``.

    Attributes:
        parts: Number of parts; 0 if the tasks do not know it.
        life: Scope of the txids if shorter than the sink's life: the id of Spark's
            query, whose batch ids start again with a new checkpoint.
        compares: Whether a replay must hold the rows that were written; False if one
            part is the whole batch, so that any rows of the same records are fine.
        run: The id of this program; another one after each restart.
        reads_all_markers: Whether all markers of the sink are read before the first
            write of a run; False if the number of parts was fixed before any was
            written.
    """

    id: str
    attempt: TransactionAttempt
    index: int
    parts: int
    life: str = ""
    compares: bool = True
    run: str = ""
    reads_all_markers: bool = False

    def __str__(self) -> str:
        return f"part {self.index} of txid {self.txid} of sink '{self.id}'"

    @property
    def txid(self) -> int:
        """Txid of the batch."""
        return self.attempt.txid

    @property
    def name(self) -> str:
        """The transactional id: a new writer of the part fences all older writers."""
        return name_of(self.id, self.index)

    @property
    def group(self) -> str:
        """The consumer group that holds the txid."""
        return group_of(self.name, self.life)

    def marker(self, digest: Digest) -> Marker:
        """The marker of the part after its write."""
        its = self.attempt
        return Marker(self.index, its, self.parts, digest, self.run, self.life)


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """Stored with the sink's markers, and read before a run writes its first batch.

    An earlier run may have begun this batch, and its tasks may be alive. So the batch
    keeps the earlier number of parts: writing each of them fences the old tasks.

    Attributes:
        parts: Number of parts of batches from ``since`` on; ``before`` is that of
            earlier ones.
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
        return MARKERS.stamped(asdict(self))

    @classmethod
    def of_fields(cls, fields: dict[str, Any], what: str = "a plan") -> Self:
        """Read the result of ``as_fields``; ``what`` is the plan in words.

        Raises FormatError, or TypeError: Something else.
        """
        if {"v", "parts"} & fields.keys():
            MARKERS.check_members(fields, what)
        plan = cls(**{name: fields[name] for name in cls.__slots__ if name in fields})
        numbers = plan.parts, plan.since, plan.before, plan.epoch
        if not all(type(number) is int for number in numbers):
            raise TypeError(f"its numbers are {numbers}")
        return plan


@dataclass(frozen=True, slots=True)
class Wish:
    """The wish of a call: write a batch, in so many parts, to the sink ``id``."""

    id: str
    attempt: TransactionAttempt
    parts: int


def plan_of(markers: Iterable[Marker]) -> SinkPlan | None:
    """The plan by which markers were written, where its record is gone; None: unknown.

    A topic of markers that expired records for a while has dropped it: its markers are
    written with each batch, and the plan only where it changes.
    """
    newest = max(markers, key=lambda m: m.attempt, default=None)
    if newest is None or not newest.parts:
        return None
    its = newest.attempt
    named = its.source, its.epoch, its.numbering
    return SinkPlan(newest.parts, newest.txid, newest.parts, *named)


def planned(stored: SinkPlan | None, wish: Wish, txid: int = 0) -> SinkPlan:
    """The plan to write a batch by; if it differs from ``stored``, store it first.

    ``txid`` is the last one that the sink holds. Raises: as ``check_numbering`` and
    ``check_newest``.
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
    next_ = attempt_to_store(given, known)
    return SinkPlan(parts, since, now, next_.source, next_.epoch, next_.numbering)
