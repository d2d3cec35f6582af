"""Lost records: the reasons and the policies."""

from __future__ import annotations

from enum import StrEnum

from kafka_tx.errors import OffsetOutOfRangeError
from kafka_tx.model import LogBounds, TopicPartition


class LossReason(StrEnum):
    """Why offsets were skipped, in every door. The value is the metrics' label."""

    TRIMMED = "retention"
    """The log start is above them: retention, or records were deleted."""

    CUT = "cut"
    """The log ends below them: a leader lost them."""

    RECREATED = "topic_deleted"
    """The topic was deleted, and created again."""

    BEHIND = "too_far_behind"
    """They were more than ``max_offset_behind`` behind."""

    COMPACTED = "compacted"
    """Compaction removed them between a failure and the retry."""


class OutOfRange(StrEnum):
    """The policy for a wanted offset below the log start or above the log end."""

    FAIL = "fail"
    """Raise ``OffsetOutOfRangeError``."""

    EARLIEST = "earliest"
    """Same as ``NEAREST``, under the name of other settings."""

    NEAREST = "nearest"
    """Below the log start go on at the start; above the log end, at the end.

    Committed records are not read again, even if the log lost its end. A topic that was
    created anew is another log, and is read from its start. Source: Storm,
    PartitionManager.fill.
    """

    def next_offset(
        self, partition: TopicPartition, wanted: int, bounds: LogBounds
    ) -> int:
        """The offset to go on at instead of ``wanted``, which is outside of ``bounds``.

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
    """The error for a wanted offset that is ``happened``, with the next step."""
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
