"""The registry's input: a value for each commit, a word for each stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_tx.errors import (
    ConfigError,
    DataLossError,
    FencedError,
    KafkaError,
    OffsetOutOfRangeError,
    OffsetsError,
    ReplayDiffersError,
    ReplayImpossibleError,
    StateError,
)
from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.transactions.layout.commit_stats import TaskSums


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted:
    """Offsets that a store has recorded.

    Attributes:
        id: The ``tx.id``, topology id or consumer id.
        committed: Next position to process, for every partition of the commit.
        committed_at_ms: Unix time when the store had recorded it.
        commit_ms: From the begin of the commit phase until then; None if another
            process made it.
        bounds: Answer of ``ClusterView.bounds`` at the last poll. A partition that is
            missing or unavailable keeps its former bounds.
        skipped: Offsets skipped since the last commit, by partition and reason
            (``catalogue.SKIP_REASON``).
    """

    id: str
    committed: Mapping[TopicPartition, LogPosition]
    committed_at_ms: int
    commit_ms: float | None
    bounds: Mapping[TopicPartition, LogBounds | Unavailable] = field(
        default_factory=dict
    )
    skipped: Mapping[tuple[TopicPartition, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCommitted(OffsetsCommitted):
    """A numbered batch whose commit a store has recorded.

    ``committed`` has the ends of its ranges, ``starts`` their begins.

    Attributes:
        duration_ms: From planning its last attempt until the store recorded it; None:
            not measured.
        from_tasks: Sums of task reports. ``skipped`` counts what tasks skipped, too.
        replays: Tries before the last one.
    """

    txid: int
    starts: Mapping[TopicPartition, int]
    duration_ms: float | None
    from_tasks: TaskSums
    replays: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A batch or chunk that is not committed yet.

    Attributes:
        number: Its txid, or the number of the chunk; None: not known yet.
        phase: One of ``catalogue.PHASE``.
        since_ms: Unix time when this process first planned it; a replay keeps it.
        phase_since_ms: Unix time when its phase began.
        tries: Attempts at it in this process, this one too.
    """

    number: int | None
    phase: str
    since_ms: int
    phase_since_ms: int
    tries: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsStored:
    """The stored state of an id as a job starts, before it commits anything itself.

    Fields have the meaning of ``BatchCommitted``.

    Attributes:
        committed_at_ms: Unix time of the last commit; None: not stored.
        newest_timestamp_ms: Newest record timestamp that is stored; None: none is.
        txid: The last committed one; None: batches have no numbers.
        is_bounded: The last commit is that of a run that ends by itself.
        is_all: ``committed`` has all partitions of the id: no others are shown.
    """

    id: str
    committed: Mapping[TopicPartition, LogPosition]
    committed_at_ms: int | None = None
    newest_timestamp_ms: int | None = None
    txid: int | None = None
    is_bounded: bool = False
    is_all: bool = False


# First match wins: a kind stands before the kinds it belongs to.
_STOP_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (FencedError, "fenced"),
    (StateError, "state"),
    (KafkaError, "kafka"),
    (DataLossError, "data_loss"),
    (OffsetOutOfRangeError, "data_loss"),
    (ReplayImpossibleError, "replay_impossible"),
    (ReplayDiffersError, "replay_differs"),
    (OffsetsError, "config"),
    (ConfigError, "config"),
)


def stop_reason(error: BaseException) -> str:
    """The value of ``catalogue.STOP_REASON`` for an error that ended a query.

    Other errors than those of kafka_tx come from the user's code: ``user``.
    """
    for kind, reason in _STOP_REASONS:
        if isinstance(error, kind):
            return reason
    return "user"
