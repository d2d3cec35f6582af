"""Which part of which batch is written, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from zlib import crc32

from kafka_tx.kafka.producer import OutRecord


@dataclass(slots=True)
class Digest:
    """What was written, in any order: two tries with the same rows have the same.

    Attributes:
        rows: How many; None where an older version has written.
        sum: Of their check sums.
    """

    rows: int | None = 0
    sum: int = 0

    def of(self, records: Iterable[OutRecord]) -> Iterator[OutRecord]:
        """Hand records on, and count them."""
        rows, total = 0, 0
        for record in records:
            rows += 1
            total += crc32(record.value or b"", crc32(record.key or b""))
            yield record
        self.rows, self.sum = rows, total

    def __str__(self) -> str:
        return f"{self.rows} {self.sum:x}"


def read_marker(metadata: str | None) -> tuple[int, Digest]:
    """The number of parts (0: not known) and the digest that a marker holds."""
    words = (metadata or "0").split()
    if len(words) < 3:
        return int(words[0]), Digest(None)
    return int(words[0]), Digest(int(words[1]), int(words[2], 16))


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of which batch: ``index`` of ``parts``, of the sink's ``id``.

    Attributes:
        parts: How many there are; 0 where the tasks are not told.
        life: What the txids are counted in where that is less than the sink's life:
            the id of Spark's query, whose batch ids start again with a new checkpoint.
        compares: Whether a replay must hold the rows that were written; False where
            one part is the whole batch, so that any rows of the same records will do.
    """

    id: str
    txid: int
    index: int
    parts: int
    life: str = ""
    compares: bool = True

    @property
    def name(self) -> str:
        """The transactional id: a new writer of the part fences every older one."""
        return f"kafka_tx.{self.id}.{self.index}"

    @property
    def group(self) -> str:
        """The consumer group that remembers the txid."""
        return f"{self.name}.{self.life}" if self.life else self.name
