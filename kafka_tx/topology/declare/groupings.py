"""Groupings: which task of a bolt gets a row.

Routers are deterministic: the same rows in the same order, from the same task of the
source, reach the same tasks again, also in another process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from kafka_tx.topology.rows.blocks import Block, Rows, size
from kafka_tx.topology.rows.fields import Fields
from kafka_tx.topology.rows.hashing import (
    Hashes,
    changes_values,
    hash_columns,
    hash_values,
)

_REMEMBERED_KEYS = 1 << 16


class GroupingKind(StrEnum):
    """The groupings, by Storm's names."""

    SHUFFLE = "shuffle"
    FIELDS = "fields"
    GLOBAL = "global"
    ALL = "all"
    LOCAL_OR_SHUFFLE = "local-or-shuffle"


@dataclass(frozen=True, slots=True)
class Grouping:
    """How rows of one stream are spread over the tasks of one bolt.

    Attributes:
        kind: Which grouping.
        fields: For a fields grouping the names, in the order given; else empty.
    """

    kind: GroupingKind
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.fields)})" if self.fields else self.kind


class Router(Protocol):
    """Splits the blocks of one task of a source among the tasks of one bolt."""

    def route(self, block: Block) -> Iterator[tuple[int, Block]]:
        """Yield (target task, its rows); rows of one target keep their order."""
        ...


def router_for(
    grouping: Grouping, fields: Fields, tasks: int, source_task: int
) -> Router:
    """The router of one task of a source.

    Args:
        grouping: How.
        fields: The fields of the stream.
        tasks: Number of tasks of the target, at least 1.
        source_task: Index of the emitting task; shuffles of different tasks begin at
            different targets, so that small blocks do not all meet in task 0.
    """
    match grouping.kind:
        case GroupingKind.ALL:
            return AllRouter(tasks)
        case GroupingKind.GLOBAL:
            return OneRouter()
        case GroupingKind.FIELDS:
            indexes = fields.indexes(grouping.fields)
            kinds = fields.types and tuple(fields.types[index] for index in indexes)
            return OneRouter() if tasks == 1 else FieldsRouter(indexes, tasks, kinds)
        case GroupingKind.SHUFFLE | GroupingKind.LOCAL_OR_SHUFFLE:
            return OneRouter() if tasks == 1 else ShuffleRouter(tasks, source_task)


class OneRouter:
    """Everything to task 0, as in Storm to the lowest task."""

    def route(self, block: Block) -> Iterator[tuple[int, Block]]:
        """The block, whole."""
        yield 0, block


class AllRouter:
    """Everything to every task."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def route(self, block: Block) -> Iterator[tuple[int, Block]]:
        """The block, once for each task."""
        for task in range(self._tasks):
            yield task, block


class ShuffleRouter:
    """Equal shares in turn; a share of an Arrow batch is one slice of it."""

    def __init__(self, tasks: int, first: int) -> None:
        self._tasks = tasks
        self._next = first % tasks

    def route(self, block: Block) -> Iterator[tuple[int, Block]]:
        """One share for each task that gets any row.

        The rows that are left over after equal shares go on where the last ones ended.
        """
        rows = size(block)
        share, more = divmod(rows, self._tasks)
        start = 0
        for turn in range(min(rows, self._tasks)):
            end = start + share + (turn < more)
            yield (self._next + turn) % self._tasks, _slice(block, start, end)
            start = end
        self._next = (self._next + more) % self._tasks


class FieldsRouter:
    """Rows with equal values in some fields to one task: hash modulo tasks.

    Args:
        indexes: Of the fields.
        tasks: Of the target.
        kinds: Their declared types; None: they have none. Where Arrow holds another
            value than Python (0.1 as ``float``, a dictionary as map), its value counts,
            so that rows and record batches with one key meet.
    """

    def __init__(
        self,
        indexes: tuple[int, ...],
        tasks: int,
        kinds: tuple[pa.DataType, ...] | None = None,
    ) -> None:
        self._indexes = indexes
        self._tasks = tasks
        self._kinds = kinds if kinds and any(map(changes_values, kinds)) else None
        self._key = itemgetter(*indexes)
        self._known = _Targets(tasks, is_single=len(indexes) == 1)

    def route(self, block: Block) -> Iterator[tuple[int, Block]]:
        """One part for each task that gets any row.

        Raises:
            TypeError: A field holds a value that has no stable hash.
        """
        if isinstance(block, pa.RecordBatch):
            return self._route_batch(block)
        return self._route_rows(block)

    def _route_batch(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Block]]:
        targets = self._targets([batch.column(index) for index in self._indexes])
        for task in range(self._tasks):
            positions = np.flatnonzero(targets == task)
            if len(positions):
                yield task, batch.take(pa.array(positions))

    def _targets(self, columns: list[pa.Array]) -> Hashes:
        return hash_columns(columns) % np.uint64(self._tasks)

    def _targets_of(self, rows: Rows) -> list[int]:
        if self._kinds is not None:
            pairs = zip(self._indexes, self._kinds, strict=True)
            columns = [pa.array([row[i] for row in rows], kind) for i, kind in pairs]
            targets: list[int] = self._targets(columns).tolist()
            return targets
        try:
            return list(map(self._known.__getitem__, map(self._key, rows)))
        except TypeError:  # a list or dictionary inside: cannot be remembered
            return [self._known.target(key) for key in map(self._key, rows)]

    def _route_rows(self, rows: Rows) -> Iterator[tuple[int, Block]]:
        targets = self._targets_of(rows)
        parts: list[Rows] = [[] for _ in range(self._tasks)]
        for row, task in zip(rows, targets, strict=True):
            parts[task].append(row)
        for task, part in enumerate(parts):
            if part:
                yield task, part


class _Targets(dict[Any, int]):
    """The task of each key met so far, up to a limit."""

    def __init__(self, tasks: int, *, is_single: bool) -> None:
        super().__init__()
        self._tasks = tasks
        self._is_single = is_single

    def __missing__(self, key: Any) -> int:  # noqa: ANN401 - a field holds anything
        target = self.target(key)
        if len(self) < _REMEMBERED_KEYS:
            self[key] = target
        return target

    def target(self, key: Any) -> int:  # noqa: ANN401 - a field holds anything
        """The task of a key: the value of one field, or a tuple of several."""
        return hash_values((key,) if self._is_single else key) % self._tasks


def _slice(block: Block, start: int, end: int) -> Block:
    if isinstance(block, pa.RecordBatch):
        return block.slice(start, end - start)
    return block[start:end]
