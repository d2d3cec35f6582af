"""Where the partitions of a new batch start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from kafka_tx.errors import FetchError, OffsetOutOfRangeError
from kafka_tx.model import LogBounds, LogPosition, Skip, TopicPartition, Unavailable
from kafka_tx.offsets.loss import LossReason, OutOfRange
from kafka_tx.planning.standing import Finding, Standing, stand
from kafka_tx.planning.start import StartRules, choose_start

Answers: TypeAlias = Mapping[TopicPartition, int | Unavailable | None]
"""Start offsets of partitions; None: the end of the log."""

Lasts: TypeAlias = Mapping[TopicPartition, LogPosition | None]
"""Ends of the batch before; None: it did not include the partition."""

Believes: TypeAlias = Callable[[TopicPartition, Standing], bool]
"""Whether an answer about a partition counts, or brokers are polled again first."""

_NO_ANSWER = Unavailable("no answer")


def choose_starts(
    lasts: Lasts,
    known: Mapping[TopicPartition, LogBounds],
    policy: OutOfRange,
    first_offsets: Answers | None,
    believes: Believes,
) -> tuple[dict[TopicPartition, int], dict[Skip, int]]:
    """The start of each reachable partition, and its skipped offsets.

    Args:
        lasts: Ends of the batch before; None for new partitions. If all are new this is
            the first batch: they start at ``first_offsets``, and all must be reachable
            unless these are the earliest. Later new partitions start at the earliest
            offset.
        known: Bounds of the logs that can be reached now.
        policy: Policy for offsets outside of the log. A first offset beyond the
            end always fails. Otherwise: if the log ends below, start at its end, since
            records above were read before; in another topic, at its start.
        first_offsets: Starts of the first batch, fetched before ``known``: otherwise
            the end of a growing log would lie beyond ``known``. None: the earliest.
        believes: Whether an answer that contradicts the batch before counts already. If
            not, the partition is left out, as if it were not reachable.

    Returns:
        Start offsets, and lost offsets by reason.

    Raises:
        FetchError: The first batch must wait for a partition.
        OffsetOutOfRangeError: A start is outside of the log, or its topic was
            re-created, and the policy is to fail.
    """
    first: Mapping[TopicPartition, int | None] = {}
    if first_offsets is not None:
        first = _reachable(first_offsets, lasts, known)
    starts: dict[TopicPartition, int] = {}
    lost: dict[Skip, int] = {}
    for partition, bounds in known.items():
        position = lasts[partition]
        if position is None:
            offset = first.get(partition, bounds.log_start)
            starts[partition] = _first_start(partition, offset, bounds, policy)
            continue
        if _goes_on(position, bounds):
            starts[partition] = position.offset
            continue
        standing = stand(position, bounds)
        if _is_believed(partition, standing, believes):
            if standing.means_loss and policy is OutOfRange.FAIL:
                raise _refused(partition, standing, position.topic_id)
            starts[partition] = standing.next_offset
            if standing.lost or standing.cut:
                reason = LossReason.CUT if standing.cut else LossReason.TRIMMED
                lost[partition, reason] = standing.lost or standing.cut
    return starts, lost


def _first_start(
    partition: TopicPartition,
    offset: int | None,
    bounds: LogBounds,
    policy: OutOfRange,
) -> int:
    is_beyond = (offset or 0) > bounds.end
    decision = choose_start(
        partition,
        StartRules(out_of_range=OutOfRange.FAIL if is_beyond else policy),
        stored=None,
        resolved=offset,
        bounds=bounds,
    )
    return decision.committed.offset


def _goes_on(position: LogPosition, bounds: LogBounds) -> bool:
    """Whether the position is plainly valid (the usual case): faster than ``stand``."""
    is_same = (
        position.topic_id == bounds.topic_id
        and position.leader_epoch == bounds.leader_epoch
    )
    return is_same and bounds.log_start <= position.offset <= bounds.end


def _is_believed(
    partition: TopicPartition, standing: Standing, believes: Believes
) -> bool:
    if standing.means_loss:
        return believes(partition, standing)
    return standing.finding is not Finding.UNANSWERED


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
            raise FetchError(
                f"{partition} has no start position yet, since it cannot be reached:"
                f" {getattr(offset, 'reason', 'no answer')}. The first batch waits for"
                " it.",
                topic=partition.topic,
                partition=partition.partition,
            )
        starts[partition] = offset
    return starts


def _refused(
    partition: TopicPartition, standing: Standing, was: str | None
) -> OffsetOutOfRangeError:
    wanted, bounds = standing.position, standing.bounds
    now = bounds and bounds.topic_id
    happened = {
        Finding.ANEW: f"the topic was re-created (its id was {was} and is {now}); the"
        " new log is read from its start",
        Finding.CUT: "records were cut from the log's end, above it (an unclean leader"
        " election), and others may have their offsets now; reading goes on at"
        f" {standing.next_offset}, and nothing that was read is read again",
        Finding.TRIMMED: "retention or a deletion removed records, also ones that were"
        " not read; reading goes on at the log's start",
    }[standing.finding]
    known = bounds and (bounds.log_start, bounds.end)
    return OffsetOutOfRangeError(
        f"{partition}: the next offset to read is {wanted}, and the log holds {known}:"
        f" {happened}, if the spout has the option failOnDataLoss=false.",
        topic=partition.topic,
        partition=partition.partition,
        wanted=wanted,
        log_start=bounds and bounds.log_start,
        log_end=bounds and bounds.end,
    )
