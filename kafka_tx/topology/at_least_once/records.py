"""Records that spouts read for at-least-once topologies, and packets of their rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from kafka_tx.topology.at_least_once.lineage import Lineage, Positions
from kafka_tx.topology.rows.blocks import Block
from kafka_tx.topology.rows.fields import FieldsLike
from kafka_tx.topology.run.messages import NO_ROOTS, Packet, Roots


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Rows that a spout read.

    Attributes:
        roots: The number of each row's record; a record may have several rows.
        read: The numbers of all records that were read. A record without a row is then
            done. A number is in one ``Records`` only, and all rows of a record are in
            the same one.
        error: Why these records could not be read; they fail, and others go on.
    """

    block: Block
    roots: Roots
    read: Roots
    error: str = ""


class AtLeastOnceSource(Protocol):
    """Reads one chunk of records in the tasks of a spout. Pickled for the tasks."""

    def read(self, task: int, tasks: int, facts: dict[str, Any]) -> Iterator[Records]:
        """Yield this task's share of the records of the chunk."""


class AtLeastOnceSpout(Protocol):
    """The parts of a spout that an at-least-once topology needs at build."""

    @property
    def fields(self) -> FieldsLike:
        """The emitted fields."""

    def empty_chunk(self) -> AtLeastOnceSource:
        """A chunk without records; ``build`` pickles it as a check."""


@dataclass(frozen=True, slots=True, eq=False)
class AtLeastOncePacket(Packet):
    """A packet whose rows are tracked; its block may be pickled already.

    Such a block travels as bytes: what cannot be read back would end Spark's task.
    """

    lineage: Lineage = field(default=Lineage(NO_ROOTS))
    pickled: bytes = b""

    def rows(self) -> Block:
        """The block; raises whatever rows raise that cannot be read back."""
        if len(self.block) or not self.pickled:
            return self.block
        block: Block = pickle.loads(self.pickled)  # noqa: S301 - a task's
        return block

    def __reduce__(self) -> tuple[Any, ...]:
        block = [] if self.pickled else self.block
        bare = Packet(self.target, self.task, self.source, self.stream, block, self.id)
        parts = (self.lineage.roots, self.lineage.starts, self.pickled)
        return _packet, (bare, *parts)


def _packet(
    bare: Packet, roots: Roots, starts: Positions | None, pickled: bytes
) -> AtLeastOncePacket:
    head = (bare.target, bare.task, bare.source, bare.stream, bare.block)
    return AtLeastOncePacket(*head, bare.id, Lineage(roots, starts), pickled)
