"""Where the partitions of a new batch start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kafka_tx.errors import FetchError, OffsetOutOfRangeError
from kafka_tx.model import (
    CommittedOffset,
    LogBounds,
    TopicPartition,
    Unavailable,
)
from kafka_tx.offsets.discovery import is_another
from kafka_tx.offsets.loss import OutOfRange
from kafka_tx.offsets.start import StartRules, choose_start
from kafka_tx.topology.spouts import Json

Answers: TypeAlias = Mapping[TopicPartition, int | Unavailable | None]
"""Offsets where partitions start; None: at the end."""

_NO_ANSWER = Unavailable("no answer")


def choose_starts(
    lasts: Mapping[TopicPartition, Json | None],
    known: Mapping[TopicPartition, LogBounds],
    topic_ids: Mapping[str, str],
    policy: OutOfRange,
    first_offsets: Answers | None,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Mapping[str, int]]]:
    """Where each reachable partition goes on, and what was given up there.

    Args:
        lasts: Metadata of the batch before; None for partitions that are new. If all
            are new this is the first batch: they start at their first offsets, and all
            of them must be reachable unless that is the earliest. Partitions that are
            new later start at the earliest offset.
        known: Logs that can be reached now.
        topic_ids: As the brokers tell them now.
        policy: What to do with offsets outside of the log. A first offset beyond the
            end always fails.
        first_offsets: Of the first batch, asked for before ``known``, or the end of a
            growing log would be beyond what is known; None: it starts at the earliest.

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
    lost: dict[TopicPartition, Mapping[str, int]] = {}
    for partition, bounds in known.items():
        if (
            end := _goes_on(lasts[partition], bounds, topic_ids, partition)
        ) is not None:
            starts[partition] = end
            continue
        offset = first.get(partition, bounds.log_start)
        is_beyond = lasts[partition] is None and (offset or 0) > bounds.end
        decision = choose_start(
            partition,
            StartRules(out_of_range=OutOfRange.FAIL if is_beyond else policy),
            stored=_stored(partition, lasts[partition], bounds, topic_ids, policy),
            resolved=offset,
            bounds=bounds,
        )
        starts[partition] = decision.committed.offset
        if decision.lost:
            lost[partition] = {str(reason): n for reason, n in decision.lost.items()}
    return starts, lost


def _goes_on(
    last: Json | None,
    bounds: LogBounds,
    topic_ids: Mapping[str, str],
    partition: TopicPartition,
) -> int | None:
    """Where the batch before ended, if there is nothing to decide, as almost always."""
    if last is None or is_another(last.get("id"), topic_ids.get(partition.topic)):
        return None
    end: int = last["end"]
    return end if bounds.log_start <= end <= bounds.end else None


def _reachable(
    found: Answers,
    wanted: Iterable[TopicPartition],
    known: Mapping[TopicPartition, LogBounds],
) -> dict[TopicPartition, int | None]:
    """The first offsets, if all of them are there and all logs can be reached."""
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


def _stored(
    partition: TopicPartition,
    last: Json | None,
    bounds: LogBounds,
    topic_ids: Mapping[str, str],
    policy: OutOfRange,
) -> CommittedOffset | None:
    """Where the batch before ended; the log start of a topic that was re-created."""
    if last is None:
        return None
    was, now = last.get("id"), topic_ids.get(partition.topic)
    if not is_another(was, now):
        return CommittedOffset(last["end"])
    if policy is OutOfRange.FAIL:
        raise OffsetOutOfRangeError(
            f"topic {partition.topic} was re-created (its id was {was} and is {now}):"
            f" offset {last['end']} of {partition} belongs to a log that is gone."
            " Choose the out-of-range policy 'earliest' to go on with the new one from"
            " its start.",
            topic=partition.topic,
            partition=partition.partition,
            wanted=last["end"],
            log_start=bounds.log_start,
            log_end=bounds.end,
        )
    return CommittedOffset(bounds.log_start)
