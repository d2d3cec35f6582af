"""A running bolt of one task, and the collector of its rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.declare.bolts import BasicBolt, BatchBolt, TaskContext
from kafka_tx.topology.declare.graph import Component
from kafka_tx.topology.rows.blocks import Block, Rows, conform, size, to_batch, with_tx
from kafka_tx.topology.rows.declared_values import ValueCheck
from kafka_tx.topology.rows.fields import DEFAULT_STREAM, DeclarationError, Fields
from kafka_tx.topology.rows.row import Row, rows_for


class Outlet:
    """The collector that a bolt is given. Keeps emitted rows until ``take``.

    Picklable, and pickled together with a bolt that waits for its commit phase.

    Args:
        wanted: The streams with readers; rows of others are checked and dropped.
    """

    def __init__(self, component: Component, wanted: Collection[str]) -> None:
        self._name = component.name
        self._fields = dict(component.outputs)
        # In the order declared, so that every attempt sends its rows in the same order.
        self._blocks: dict[str, list[Block]] = {
            stream: [] for stream in component.outputs if stream in wanted
        }
        self._open: dict[str, tuple[int, ValueCheck, Rows]] = {
            stream: (len(fields), ValueCheck(self._name, fields), [])
            for stream, fields in self._fields.items()
        }
        self.rows = 0
        """Rows taken so far."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """See ``Collector``."""
        known = self._open.get(stream)
        if known is None:
            raise self._unknown(stream)
        width, check, rows = known
        if type(values) is not tuple:
            values = self._as_tuple(values)
        if len(values) != width:
            raise self._misfit(values, stream)
        check(values)
        rows.append(values)

    def emit_arrow(
        self,
        batch: pa.RecordBatch,
        stream: str = DEFAULT_STREAM,
        rows: Sequence[int] | None = None,  # noqa: ARG002 - batches fail as a whole
    ) -> None:
        """See ``Collector``."""
        if stream not in self._open:
            raise self._unknown(stream)
        self._close_rows(stream)
        parts = batch.to_batches() if isinstance(batch, pa.Table) else [batch]
        for part in parts:
            whole = conform(part, self._fields[stream], self._name)
            if whole.num_rows and stream in self._blocks:
                self._blocks[stream].append(whole)

    def reset_timeout(self, row: Row) -> None:
        """Do nothing: a batch times out as a whole."""

    def put(self, block: Block) -> None:
        """Emit a whole block, as spouts do; raises as ``emit`` and ``emit_arrow``."""
        if isinstance(block, pa.RecordBatch):
            self.emit_arrow(block)
            return
        for row in block:
            self.emit(row)

    def take(self) -> list[tuple[str, Block]]:
        """The rows emitted since the last call, by stream, in order."""
        for stream in self._open:
            self._close_rows(stream)
        taken = [(stream, b) for stream, blocks in self._blocks.items() for b in blocks]
        for blocks in self._blocks.values():
            blocks.clear()
        self.rows += sum(size(block) for _, block in taken)
        return taken

    def _close_rows(self, stream: str) -> None:
        width, check, rows = self._open[stream]
        if rows:
            if stream in self._blocks:
                self._blocks[stream].append(rows)
            self._open[stream] = (width, check, [])

    def _as_tuple(self, values: Sequence[Any]) -> tuple[Any, ...]:
        if isinstance(values, Sequence) and not isinstance(values, str | bytes):
            return tuple(values)
        raise ConfigError(
            f"component '{self._name}' emitted {values!r}; legal: a tuple or list with"
            " one value for each declared field.",
            option=self._name,
        )

    def _misfit(self, values: Sequence[Any], stream: str) -> ConfigError:
        fields = self._fields[stream]
        return ConfigError(
            f"component '{self._name}' emitted {len(values)} values on stream"
            f" '{stream}'; legal: one for each of its {len(fields)} declared fields"
            f" ({fields}). 'tx' is put before them by itself.",
            option=self._name,
        )

    def _unknown(self, stream: str) -> DeclarationError:
        return DeclarationError(
            f"component '{self._name}' emitted on stream '{stream}'; legal: its"
            f" declared streams ({', '.join(self._open) or 'none'}). Set 'fields' or"
            " 'streams' on the bolt.",
            option=self._name,
        )


@dataclass(eq=False, slots=True)
class RunningBolt:
    """A running bolt of one task of a batch.

    A basic bolt gets the collector with every row, and has nothing to finish. A batch
    bolt or committer gets it once, first.
    """

    bolt: BasicBolt | BatchBolt
    outlet: Outlet
    _attempt: TransactionAttempt
    _arrow: bool

    def prepare(self, context: TaskContext) -> None:
        """Called once, first."""
        if isinstance(self.bolt, BasicBolt):
            self.bolt.prepare(context)
        else:
            self.bolt.prepare(context, self.outlet)

    def feed(self, source: str, stream: str, fields: Fields, block: Block) -> None:
        """Give the bolt rows of one stream."""
        bolt, outlet, attempt = self.bolt, self.outlet, self._attempt
        if self._arrow:
            batch = with_tx(to_batch(block, fields, source), attempt)
            if isinstance(bolt, BasicBolt):
                bolt.execute_arrow(batch, outlet)
            else:
                bolt.execute_arrow(batch)
            return
        rows = rows_for(source, stream, fields, block, attempt)
        if isinstance(bolt, BasicBolt):
            with_outlet = bolt.execute
            for row in rows:
                with_outlet(row, outlet)
            return
        execute = bolt.execute
        for row in rows:
            execute(row)

    def finish(self) -> None:
        """Called after the last row."""
        if not isinstance(self.bolt, BasicBolt):
            self.bolt.finish_batch()

    def close(self) -> None:
        """Clean up."""
        self.bolt.cleanup()
