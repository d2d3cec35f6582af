"""Records that cannot be processed any more: why, and what to do about it."""

from __future__ import annotations

from enum import StrEnum

from kafka_tx.errors import OffsetOutOfRangeError
from kafka_tx.model import LogBounds, TopicPartition


class LossReason(StrEnum):
    """Why offsets were given up, in every door. The value is the metrics' label."""

    TRIMMED = "retention"
    """The log start passed them: retention, or records were deleted."""

    CUT = "cut"
    """The log end fell below them: a leader lost them."""

    RECREATED = "topic_deleted"
    """The topic was deleted, and created again."""

    BEHIND = "too_far_behind"
    """They were more than ``max_offset_behind`` behind."""

    COMPACTED = "compacted"
    """Compaction removed them after they had failed, before they were tried again."""


class OutOfRange(StrEnum):
    """What to do when the wanted offset is below the log start or above the log end."""

    FAIL = "fail"
    """Raise ``OffsetOutOfRangeError``."""

    EARLIEST = "earliest"
    """As ``NEAREST``; a name that other settings use."""

    NEAREST = "nearest"
    """Below the log start go on there; above the log end go on at the end.

    What was committed is not read again: a log that lost its end holds less of it. A
    topic that was made anew is another log, and read from its start.
    Source: Storm, PartitionManager.fill.
    """

    def next_offset(
        self, partition: TopicPartition, wanted: int, bounds: LogBounds
    ) -> int:
        """Where to go on instead of ``wanted``, which lies outside of ``bounds``.

        Raises:
            OffsetOutOfRangeError: The policy is to fail.
        """
        is_above = wanted > bounds.end
        if self is OutOfRange.FAIL:
            raise out_of_range(
                partition, wanted, bounds, _ABOVE if is_above else _BELOW
            )
        return bounds.end if is_above else bounds.log_start


_ABOVE = "above the log end: records were cut, or the topic was re-created unseen"
_BELOW = "below the log start: retention or a deletion removed records"


def out_of_range(
    partition: TopicPartition, wanted: int, bounds: LogBounds, happened: str
) -> OffsetOutOfRangeError:
    """The error for a wanted offset that is ``happened``, with what to do."""
    return OffsetOutOfRangeError(
        f"{partition}: the next offset to read is {wanted}, and the log holds"
        f" [{bounds.log_start}, {bounds.end}); it is {happened}. Choose the"
        " out-of-range policy 'earliest' or 'nearest' to go on without them, or store"
        " another offset for this partition.",
        topic=partition.topic,
        partition=partition.partition,
        wanted=wanted,
        log_start=bounds.log_start,
        log_end=bounds.end,
    )
