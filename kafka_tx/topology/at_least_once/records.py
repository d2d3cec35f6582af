"""What spouts read for at-least-once topologies, and how it travels between tasks."""

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
        block: The rows.
        roots: The number of each row's record; several rows may be of one.
        read: The numbers of all records that were read, also of those without a row,
            which are done with that. A number comes in one ``Records`` only, and all
            rows of a record come together.
        error: Why these records could not be read, if they could not: they fail, and
            the others go on.
    """

    block: Block
    roots: Roots
    read: Roots
    error: str = ""


class AtLeastOnceSource(Protocol):
    """What the tasks of a spout are sent for one chunk of records. Pickled."""

    def read(self, task: int, tasks: int, facts: dict[str, Any]) -> Iterator[Records]:
        """Yield the records of the chunk that are this task's, of ``tasks`` in all."""
        ...


class AtLeastOnceSpout(Protocol):
    """What an at-least-once topology needs to know of a spout when it is built."""

    @property
    def fields(self) -> FieldsLike:
        """What is emitted."""
        ...

    def empty_chunk(self) -> AtLeastOnceSource:
        """A chunk of nothing; ``build`` pickles it to see whether that can be done."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class AtLeastOncePacket(Packet):
    """A packet whose rows are tracked.

    Attributes:
        lineage: From which records each row comes.
        pickled: Its block, pickled before; empty: it is pickled with the packet.
    """

    lineage: Lineage = field(default=Lineage(NO_ROOTS))
    pickled: bytes = b""

    def __reduce__(self) -> tuple[Any, ...]:
        block = [] if self.pickled else self.block
        bare = Packet(self.target, self.task, self.source, self.stream, block, self.id)
        parts = (self.lineage.roots, self.lineage.starts, self.pickled)
        return _packet, (bare, *parts)


def _packet(
    bare: Packet, roots: Roots, starts: Positions | None, pickled: bytes
) -> AtLeastOncePacket:
    block = pickle.loads(pickled) if pickled else bare.block  # noqa: S301 - a task's
    head = (bare.target, bare.task, bare.source, bare.stream, block)
    return AtLeastOncePacket(*head, bare.id, Lineage(roots, starts))
