"""Sinks that remember Spark's batch ids, which start again with a new checkpoint.

Such a sink takes a new batch for one that it holds, and drops it without an error. A
planner does not see the sink. It knows whether somebody asks for txids, the word of the
user (``tx.sinkBatchIds``), and in a session with ``attach`` the kind of the sink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from kafka_tx.errors import BatchIdsAgainError
from kafka_tx.model import QueryShape
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.protocols import StateAtPlace, Store

IGNORED = "ignored"
"""The word for a sink that remembers no batch ids."""

_REMEMBER = (
    "Spark's file sinks (parquet, json, csv, text, orc, also by toTable),"
    " foreachBatch or foreach code that stores batch or epoch ids, Delta with"
    " txnVersion set to the batch id"
)
_REMEMBER_NONE = (
    "console, Kafka, streams into Delta or Iceberg tables, foreachBatch code that only"
    " appends"
)


@dataclass(frozen=True, slots=True)
class SinkNote:
    """Facts about a query's sink at the start of a run, as ``attach`` sees them.

    Attributes:
        name: The sink as Spark prints it; empty: not known.
        ignores_ids: A kind of sink that remembers no batch ids beyond its checkpoint.
        newest: Greatest batch id in a file sink, -1 if it has none; None: not known.
        first_new: Lowest batch id that this run has not handed to a sink before.
    """

    name: str = ""
    ignores_ids: bool = False
    newest: int | None = None
    first_new: int = 0

    @property
    def is_free(self) -> bool:
        """Whether the sink surely holds no id that this run is about to use."""
        return self.newest is not None and self.newest < self.first_new

    @property
    def is_used(self) -> bool:
        """Whether the sink holds the id of the next batch, which it would drop."""
        return self.newest is not None and self.newest >= self.first_new

    def warning(self) -> str:
        """A sentence for the log about a file sink."""
        return (
            f"{self.name} drops each batch whose Spark batch id it holds (newest:"
            f" {self.newest}). With a new or older checkpoint, give the query a new,"
            " empty output folder"
        )

    def believed(self, word: str) -> str:
        """The word of ``tx.sinkBatchIds``, or that of a sink that is known."""
        return IGNORED if self.ignores_ids else word

    def to_json(self) -> dict[str, Any]:
        """The fields of the note."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the result of ``to_json``."""
        return cls(**data)


UNKNOWN_SINK = SinkNote()


def forgotten(epoch: int) -> str:
    """The word for a sink that was emptied after the owner of this epoch.

    It holds for the next owner only: that one writes to the sink.
    """
    return f"forgotten@{epoch}"


def ids_again(
    store: Store, committed: int, epoch: int, query: QueryShape | None
) -> BatchIdsAgainError:
    """The error for a start whose sink may drop the next batches.

    ``epoch``: the stored one, which the next start finds.
    """
    return BatchIdsAgainError(
        f"Spark's batch ids start again for '{store.id}', which has committed txid"
        f" {committed}: the checkpoint is new, or tx.onDisagreement decides. Some sinks"
        " remember batch ids, and would drop the next batches without an error:"
        f" {_REMEMBER}. Nothing was read or written. If you still have the newest"
        f" checkpoint of this sink, start with it. {_ignored()} and"
        f" start again. {_emptied(store.id, committed, epoch)}{_lost(query)}",
        id=store.id,
        committed=committed,
        store=store.url,
    )


def unproven(
    store: Store, txid: int, epoch: int, query: QueryShape | None
) -> BatchIdsAgainError:
    """The error for a processed batch that the sink may have dropped."""
    before = txid - 1
    return BatchIdsAgainError(
        f"txid {txid} of '{store.id}' was processed, and is not committed: Spark's"
        " batch ids may have started again before it, and nobody has asked for its"
        " txid. Some sinks remember batch ids, and drop such a batch without an error:"
        f" {_REMEMBER}. The batch stays planned, so nothing is lost. {_ignored()} and"
        " start again with the same checkpoint: the batch is committed."
        f" {_emptied(store.id, before, epoch)}{_lost(query)}",
        id=store.id,
        committed=before,
        store=store.url,
    )


def _lost(query: QueryShape | None) -> str:
    return lost_with_checkpoint(query, names_sinks=False)


def _ignored() -> str:
    return (
        f"If the sink remembers no batch ids ({_REMEMBER_NONE}), or you use"
        " for_each_transaction, set tx.sinkBatchIds=ignored"
    )


def _emptied(id_: str, committed: int, epoch: int) -> str:
    """What to do with a sink that remembers batch ids, and with its new batches.

    Each source of a query has its own word: their stores count epochs apart.
    """
    return (
        "If the sink remembers them, give it a new, empty output folder, or delete the"
        " batch ids that your code has stored. Set"
        f" tx.sinkBatchIds={forgotten(epoch)} of the source '{id_}' for this start,"
        " remove tx.onDisagreement, and start with a new checkpointLocation: the query"
        f" continues after txid {committed}. A batch that was interrupted may then be"
        " in the former folder, too."
    )


def used_ids(store: StateAtPlace, sink: SinkNote) -> BatchIdsAgainError:
    """The error for a file sink that holds the ids of the batches to come."""
    return BatchIdsAgainError(
        f"{sink.name} already holds batches up to Spark's batch id {sink.newest}, and"
        f" the next new batch of '{store.id}' has the id {sink.first_new}: the sink"
        " would drop it without an error. Nothing was read or written. If you still"
        " have the newest checkpoint of this sink, start with it. Otherwise give the"
        " query a new, empty output folder and a new checkpointLocation, and remove"
        " tx.onDisagreement. Two queries need two folders.",
        id=store.id,
        newest=sink.newest,
        store=store.url,
    )
