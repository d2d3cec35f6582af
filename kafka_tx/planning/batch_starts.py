"""Where the partitions of a new batch start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from kafka_tx.errors import FetchError
from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.offsets.loss import Losses, OutOfRange, judge
from kafka_tx.offsets.position_checks import Finding, PositionCheck, check_position

Answers: TypeAlias = Mapping[TopicPartition, int | Unavailable | None]
"""Start offsets of partitions; None: the end of the log."""

Lasts: TypeAlias = Mapping[TopicPartition, LogPosition | None]
"""Ends of the batch before; None: it did not include the partition."""

Believes: TypeAlias = Callable[[TopicPartition, PositionCheck], bool]
"""Whether an answer about a partition counts, or brokers are polled again first."""

_BEYOND = "Give the spout startingOffsets that its logs hold."

_NO_ANSWER = Unavailable("no answer")


def choose_starts(
    lasts: Lasts,
    known: Mapping[TopicPartition, LogBounds],
    losses: Losses,
    first_offsets: Answers | None,
    believes: Believes,
    awaited: Collection[TopicPartition] = (),
) -> dict[TopicPartition, int]:
    """The start of each reachable partition.

    Args:
        lasts: Ends of the batch before; None for new partitions. If all are new this is
            the first batch: they start at ``first_offsets``, and all must be reachable
            unless these are the earliest. Later new partitions start at the earliest
            offset; as in the source, offsets below it are lost.
        known: Bounds of the logs that can be reached now.
        losses: Decides on offsets outside of the log, and counts skipped ones.
        first_offsets: Starts of the first batch, fetched before ``known``: otherwise
            the end of a growing log would lie beyond ``known``. None: the earliest.
        believes: A partition whose answer does not count yet is left out, as if it were
            not reachable.
        awaited: Partitions that the first batch knew, and may have left out: the
            earliest offset of these is their start, and nothing is lost.

    Raises:
        FetchError: The first batch must wait for a partition.
        DataLossError: A start is outside of the log, or its topic was re-created, and
            the policy is to fail.
    """
    first: Mapping[TopicPartition, int | None] = {}
    if first_offsets is not None:
        first = _reachable(first_offsets, lasts, known)
    is_first = not any(lasts.values())
    starts: dict[TopicPartition, int] = {}
    for partition, bounds in known.items():
        position = lasts[partition]
        if position is None:
            offset = first.get(partition, bounds.log_start)
            if bounds.log_start and not (is_first or partition in awaited):
                losses.added_late(partition, bounds.log_start)
            starts[partition] = _first_start(
                partition, offset, bounds, losses, believes
            )
            continue
        if _goes_on(position, bounds):
            starts[partition] = position.offset
            continue
        check = check_position(position, bounds)
        if check.finding is not Finding.UNANSWERED and (
            not check.means_loss or believes(partition, check)
        ):
            starts[partition] = losses.judge(partition, check)
    return starts


def _first_start(
    partition: TopicPartition,
    offset: int | None,
    bounds: LogBounds,
    losses: Losses,
    believes: Believes,
) -> int:
    first = LogPosition(bounds.end if offset is None else offset, None)
    check = check_position(first, bounds)
    if check.finding is Finding.CUT and losses.policy is OutOfRange.FAIL:
        judge(partition, check, losses.policy, f"{_BEYOND} {losses.advice}")
    if check.means_loss and not believes(partition, check):
        raise _waits(partition, f"its log ends at {bounds.end}, below the start")
    return losses.judge(partition, check)


def _goes_on(position: LogPosition, bounds: LogBounds) -> bool:
    """Whether the position is plainly valid (the usual case), fast."""
    is_same = (
        position.topic_id == bounds.topic_id
        and position.leader_epoch == bounds.leader_epoch
    )
    return is_same and bounds.log_start <= position.offset <= bounds.end


def _reachable(
    found: Answers,
    wanted: Iterable[TopicPartition],
    known: Mapping[TopicPartition, LogBounds],
) -> dict[TopicPartition, int | None]:
    """The first offsets, if all are known and all logs can be reached."""
    starts: dict[TopicPartition, int | None] = {}
    for partition in wanted:
        offset = found.get(partition, _NO_ANSWER)
        if isinstance(offset, Unavailable) or partition not in known:
            reason = getattr(offset, "reason", "no answer")
            raise _waits(partition, f"it cannot be reached: {reason}")
        starts[partition] = offset
    return starts


def _waits(partition: TopicPartition, reason: str) -> FetchError:
    return FetchError(
        f"{partition} has no start position yet, since {reason}. The first batch waits"
        " for it.",
        topic=partition.topic,
        partition=partition.partition,
    )
