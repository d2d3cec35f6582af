"""Spouts over lists in memory: for tests, examples and trying things out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_tx.config import Mode
from kafka_tx.errors import ConfigError, FailedException
from kafka_tx.model import TransactionAttempt, Unavailable
from kafka_tx.topology.declare.spouts import (
    Json,
    OpaquePartitionedTransactionalSpout,
    PartitionedTransactionalSpout,
    PartitionEmitter,
)
from kafka_tx.topology.rows.blocks import Block
from kafka_tx.topology.rows.fields import Fields, FieldsLike


class MemoryTransactionalSpout(PartitionedTransactionalSpout):
    """Emits rows of lists in memory, which may grow while the topology runs.

    Metadata of a partition is ``[index, amount]``: rows ``[index, index + amount)``. A
    replay has the same rows, also after ``append``. The rows stay on the driver; tasks
    get only the rows of their batch.

    Args:
        data: Rows by partition, or the rows of partitions 0, 1, …
        fields: Names (or types too) of a row's values.
        take_per_partition: Most rows of a partition in one batch, at least 1.

    Raises:
        ConfigError: ``take_per_partition`` is below 1, or a row has another number of
            values than there are fields.
    """

    def __init__(
        self,
        data: Mapping[Any, Iterable[Sequence[Any]]] | Sequence[Iterable[Sequence[Any]]],
        fields: FieldsLike,
        take_per_partition: int,
    ) -> None:
        if take_per_partition < 1:
            raise ConfigError.illegal(
                "take_per_partition", take_per_partition, "a whole number from 1"
            )
        self.fields = declared = Fields.parse(fields)
        self._width = len(declared)
        self._take = take_per_partition
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._planned_to: dict[str, int] = {}
        self._lost: set[str] = set()
        by_partition = data if isinstance(data, Mapping) else dict(enumerate(data))
        for partition, rows in by_partition.items():
            self.append(partition, rows)

    def append(self, partition: object, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows to the end of a partition; an unknown one is a new partition.

        Raises:
            ConfigError: A row has another number of values than there are fields.
        """
        checked = [self._checked(row) for row in rows]
        self._rows.setdefault(str(partition), []).extend(checked)

    def _checked(self, row: Sequence[Any]) -> tuple[Any, ...]:
        if isinstance(row, str | bytes) or len(row) != self._width:
            raise ConfigError.illegal(
                "row", row, f"a tuple with one value for each of: {self.fields}"
            )
        return tuple(row)

    @property
    def is_exhausted(self) -> bool:
        """Whether every row is planned; false again after ``append``.

        Source: Storm, MemoryTransactionalSpout (deviates: there, after more empty
        batches than may be pending).
        """
        return all(
            self._planned_to.get(partition, 0) >= len(rows)
            for partition, rows in self._rows.items()
        )

    def open(self) -> None:
        """Begin anew: no row is planned yet."""
        self._planned_to.clear()

    def is_ready(self) -> bool:
        """Whether partitions that are not lost have rows that no batch holds yet."""
        return any(
            self._planned_to.get(partition, 0) < len(rows)
            for partition, rows in self._rows.items()
            if partition not in self._lost
        )

    def partitions(self) -> Sequence[str]:
        """The partitions, in the order in which they were added."""
        return list(self._rows)

    def plan(self, partition: str, last: Json | None) -> Json | Unavailable:
        """The next rows: at most ``take_per_partition``, perhaps none."""
        index = 0 if last is None else sum(last)
        amount = max(0, min(self._take, len(self._rows.get(partition, ())) - index))
        self._planned_to[partition] = index + amount
        return [index, amount]

    def empty_after(self, metadata: Json) -> Json:
        """The metadata of no rows, right after these rows."""
        return [sum(metadata), 0]

    def is_empty(self, metadata: Mapping[str, Json]) -> bool:
        """Whether no partition has a row in the batch."""
        return not any(amount for _, amount in metadata.values())

    def emitter(
        self,
        attempt: TransactionAttempt,  # noqa: ARG002 - the same for all attempts
        metadata: Mapping[str, Json],
    ) -> PartitionEmitter:
        """The rows of this batch; reading a lost partition fails it."""
        rows = {
            partition: self._rows.get(partition, [])[index : index + amount]
            for partition, (index, amount) in metadata.items()
        }
        return MemoryEmitter(rows, frozenset(self._lost))


class OpaqueMemoryTransactionalSpout(
    MemoryTransactionalSpout, OpaquePartitionedTransactionalSpout
):
    """The opaque form; partitions can be lost and found again, as with a broker.

    A lost partition has an empty range at its position. A batch that was planned
    with its rows before fails, and is planned anew without these rows.
    Source: Storm, OpaqueMemoryTransactionalSpout (deviates: lost means lost).
    """

    mode: Mode = "opaque"

    def set_lost(self, partition: object, *, lost: bool = True) -> None:
        """Lose a partition, or find it again."""
        (self._lost.add if lost else self._lost.discard)(str(partition))

    def plan(self, partition: str, last: Json | None) -> Json | Unavailable:
        """The next rows; a lost partition cannot be reached."""
        if partition in self._lost:
            self._planned_to[partition] = 0 if last is None else sum(last)
            return Unavailable("lost")
        return super().plan(partition, last)


@dataclass(frozen=True, slots=True)
class MemoryEmitter:
    """The rows of one batch on their way to its tasks."""

    rows: Mapping[str, list[tuple[Any, ...]]]
    lost: frozenset[str] = frozenset()

    def read(
        self,
        partition: str,
        metadata: Json,  # noqa: ARG002 - the rows were chosen by it already
        facts: dict[str, Json],
    ) -> Iterator[Block]:
        """Yield the rows of the partition in one block.

        Raises:
            FailedException: The partition is lost.
        """
        rows = self.rows[partition]
        if rows and partition in self.lost:
            raise FailedException(f"partition {partition} is lost", partition=partition)
        facts["records"] = len(rows)
        if rows:
            yield rows
