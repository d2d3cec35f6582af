"""What the registry is given: one value for each commit, one word for each stop."""

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
from kafka_tx.model import LogBounds, TopicPartition, Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted:
    """Offsets that a store has recorded.

    Attributes:
        id: The ``tx.id``, topology id or consumer id.
        committed: Next offset to process, for every partition of the commit.
        committed_at_ms: Unix time when the store had recorded it.
        commit_ms: From the begin of the commit phase until then.
        bounds: What the logs held when last looked at; the answer of
            ``ClusterView.bounds`` can be given as it is. A partition that is missing
            or unavailable keeps the bounds it had.
        topic_ids: Of the topics whose offsets ``committed`` has, as far as known.
        skipped: Offsets jumped over since the last commit, by partition and reason
            (``catalogue.SKIP_REASON``).
    """

    id: str
    committed: Mapping[TopicPartition, int]
    committed_at_ms: int
    commit_ms: float
    bounds: Mapping[TopicPartition, LogBounds | Unavailable] = field(
        default_factory=dict
    )
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[tuple[TopicPartition, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCommitted(OffsetsCommitted):
    """A numbered batch whose commit a store has recorded.

    ``committed`` holds the ends of its ranges (``BatchMetadata.ends()``).

    Attributes:
        txid: The batch.
        starts: Where its ranges begin (``BatchMetadata.starts()``).
        records: Records it held.
        duration_ms: From planning its last attempt until the store recorded it.
        bytes: Key and value bytes of its records; None where nobody counted.
        newest_timestamp_ms: Newest record timestamp (Unix time); None where unknown.
        phases_ms: How long its last attempt spent in each phase
            (``catalogue.PHASE``); phases that nobody measured are left out.
    """

    txid: int
    starts: Mapping[TopicPartition, int]
    records: int
    duration_ms: float
    bytes: int | None = None
    newest_timestamp_ms: int | None = None
    phases_ms: Mapping[str, float] = field(default_factory=dict)


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

    Everything that kafka_tx did not raise itself comes from the user's code: ``user``.
    """
    for kind, reason in _STOP_REASONS:
        if isinstance(error, kind):
            return reason
    return "user"
