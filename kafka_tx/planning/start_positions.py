"""Resolves start and end rules to positions, with one batched offset request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from kafka_tx.config import EndRule, FromCommitted, PerPartition, SourceConfig
from kafka_tx.errors import BrokerUnavailableError, OffsetsError, UnknownTopicError
from kafka_tx.model import (
    Assigned,
    AtTime,
    Earliest,
    Latest,
    OffsetRange,
    Position,
    TopicPartition,
    Topics,
    Unavailable,
)
from kafka_tx.offsets.discovery import Found, is_another
from kafka_tx.option_rows import as_date

Rule = Earliest | Latest | AtTime | PerPartition

_Answers = dict[TopicPartition, int | Unavailable | None]


class OffsetView(Protocol):
    """The part of a ``ClusterView`` that resolves positions."""

    def offsets(self, wanted: Mapping[TopicPartition, Position]) -> _Answers:
        """As ``ClusterView.offsets``."""


class StartAnswers:
    """An ``OffsetView`` that asks each partition once: the end of a log moves on.

    So a start that waits for one partition loses no records of the others. An answer
    counts until ``renew`` reports another topic, or ``forget``.
    """

    def __init__(self, view: OffsetView) -> None:
        self._view = view
        self._known: dict[TopicPartition, dict[Position, int]] = {}
        self._ids: dict[str, str | None] = {}

    def offsets(self, wanted: Mapping[TopicPartition, Position]) -> _Answers:
        """As ``ClusterView.offsets``."""
        known: _Answers = {
            p: self._known[p][at]
            for p, at in wanted.items()
            if at in self._known.get(p, ())
        }
        unknown = {p: at for p, at in wanted.items() if p not in known}
        for partition, offset in self._view.offsets(unknown).items() if unknown else ():
            known[partition] = offset
            if isinstance(offset, int):
                self._known.setdefault(partition, {})[unknown[partition]] = offset
        return known

    def renew(self, ids: Mapping[str, str | None]) -> set[TopicPartition]:
        """Drop the answers about topics that had another id; return the partitions."""
        gone = {
            p
            for p in self._known
            if is_another(self._ids.get(p.topic), ids.get(p.topic))
        }
        self.forget(gone)
        self._ids |= {name: id_ for name, id_ in ids.items() if id_ is not None}
        return gone

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the answers about these partitions."""
        for partition in list(partitions):
            self._known.pop(partition, None)


def assigned_partitions(config: SourceConfig, found: Found) -> list[TopicPartition]:
    """The partitions a new query begins with; raises UnknownTopicError."""
    wanted = config.subscription
    if isinstance(wanted, Topics):
        missing = [name for name in wanted.names if name not in found.topics]
    elif isinstance(wanted, Assigned):
        missing = [str(p) for p in wanted.partitions if not found.exists(p)]
    else:
        missing = []
    if missing:
        brokers = config.kafka.get("bootstrap.servers", "")
        raise UnknownTopicError(
            f"not found on {brokers}: {', '.join(missing)}. Create it first, or correct"
            " the option. (A topic without permission to describe it looks the same.)",
            missing=missing,
        )
    return list(found.partitions)


def resolve(
    config: SourceConfig,
    view: OffsetView,
    partitions: Iterable[TopicPartition],
    rule: EndRule,
    *,
    starting: bool,
) -> dict[TopicPartition, int]:
    """Resolve a rule to the next offset of every partition.

    Raises:
        OffsetsError: The rule names other partitions than the existing ones, or no
            record matches a start time.
        BrokerUnavailableError: A partition does not answer.
    """
    wanted = positions_of(list(partitions), rule, starting=starting)
    if starting and config.start_without_match == "error":
        answers = view.offsets(wanted)
        unmatched = [p for p, answer in answers.items() if answer is None]
        if unmatched:
            raise _unmatched(unmatched[0], wanted[unmatched[0]])
    else:
        answers = matched_or_ends(view, wanted)
    return {
        p: answer if isinstance(answer, int) else _unanswered(p, answer)
        for p, answer in answers.items()
    }


def matched_or_ends(
    view: OffsetView, wanted: Mapping[TopicPartition, Position]
) -> _Answers:
    """As ``view.offsets``, with the end of the log where no record matches a time.

    The ends are asked for first: a record that comes between two questions is read.
    """
    times = [p for p, at in wanted.items() if isinstance(at, AtTime)]
    ends = view.offsets(dict.fromkeys(times, Latest())) if times else {}
    answers = view.offsets(wanted)
    return {p: ends.get(p) if at is None else at for p, at in answers.items()}


def first_offsets(
    config: SourceConfig,
    view: OffsetView,
    partitions: list[TopicPartition],
    committed: Callable[[list[TopicPartition]], Mapping[TopicPartition, int]] | None,
) -> dict[TopicPartition, int]:
    """Apply ``startingOffsets`` to partitions that were never read.

    Args:
        config: With the rule.
        view: Asked for offsets.
        partitions: These partitions.
        committed: Fetches committed offsets, for the rule ``committed`` only; None:
            there are none.

    Raises:
        OffsetsError: The rule names other partitions than these, no record matches a
            start time, or a committed offset is unknown, and the rule requires all.
        BrokerUnavailableError: A partition does not answer.
    """
    rule = config.start
    if not isinstance(rule, FromCommitted):
        return resolve(config, view, partitions, rule, starting=True)
    known = {} if committed is None else committed(partitions)
    return committed_or(config, view, partitions, rule, known)


def committed_or(
    config: SourceConfig,
    view: OffsetView,
    partitions: Collection[TopicPartition],
    rule: FromCommitted,
    known: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Start rule ``committed``: the known offsets, otherwise the rule's fallback.

    Raises:
        OffsetsError: An offset is unknown, and the rule requires all.
        BrokerUnavailableError: A partition does not answer.
    """
    starts = {p: known[p] for p in partitions if p in known}
    missing = [p for p in partitions if p not in known]
    if missing:
        if rule.otherwise is None:
            raise OffsetsError(
                "KAFKA_TX_NO_COMMITTED_OFFSET",
                f"no committed offset in the store or the group for {_names(missing)}."
                " Set startingOffsets to committed:earliest or committed:latest for the"
                " first run.",
            )
        starts |= resolve(config, view, missing, rule.otherwise, starting=True)
    return starts


def ranges_between(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """The ranges of a batch read; raises OffsetsError for a start beyond its end."""
    for partition, start in starts.items():
        if start > ends[partition]:
            raise OffsetsError(
                "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
                f"The resolved start offset {start} is greater than the resolved end"
                f" offset {ends[partition]} for topic {partition.topic} partition"
                f" {partition.partition}. Lower startingOffsets or raise endingOffsets;"
                " a time may resolve to a later offset than an offset given as number.",
                topic=partition.topic,
                partition=partition.partition,
            )
    return [OffsetRange(p, start, ends[p]) for p, start in sorted(starts.items())]


def check_given(start: Rule, end: Rule) -> None:
    """Compare rules that name partitions, before any contact; raises OffsetsError."""
    if not (isinstance(start, PerPartition) and isinstance(end, PerPartition)):
        return
    if start.positions.keys() != end.positions.keys():
        raise OffsetsError(
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET",
            "The specified start offset and end offset should have the same"
            " topic-partitions. Topic-partitions for start offset:"
            f" {_names(start.positions)}, topic-partitions for end offset:"
            f" {_names(end.positions)}.",
        )
    for partition, position in start.positions.items():
        low = _comparable(position)
        high = _comparable(end.positions[partition])
        if low is not None and high is not None and low[0] == high[0] and low > high:
            raise OffsetsError(
                "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
                f"The specified start {low[0]} {low[1]} is greater than the end"
                f" {high[0]} {high[1]} for topic {partition.topic} partition"
                f" {partition.partition}.",
            )


def _comparable(position: Position) -> tuple[str, int] | None:
    if isinstance(position, AtTime):
        return "timestamp", position.timestamp_ms
    if isinstance(position, Earliest | Latest):
        return None
    return "offset", position.offset


def positions_of(
    partitions: list[TopicPartition], rule: EndRule, *, starting: bool
) -> dict[TopicPartition, Position]:
    """The rule's position for each partition; raises OffsetsError for other ones."""
    if not isinstance(rule, PerPartition):
        return dict.fromkeys(partitions, rule)
    if set(partitions) != set(rule.positions):
        times = any(isinstance(p, AtTime) for p in rule.positions.values())
        side = "start" if starting else "end"
        raise OffsetsError(
            "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"
            if times
            else "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
            f"Partitions specified for Kafka {side} offsets don't match what are"
            " assigned. Name every partition that exists and no other. Use -1 for"
            f" latest, -2 for earliest. Specified: {_names(rule.positions)} Assigned:"
            f" {_names(partitions)}",
        )
    return dict(rule.positions)


def _unmatched(partition: TopicPartition, position: Position) -> OffsetsError:
    shown: object = position
    if isinstance(position, AtTime):
        shown = f"{position.timestamp_ms} ({as_date(position.timestamp_ms)})"
    return OffsetsError(
        "KAFKA_TX_NO_OFFSET_FOR_TIMESTAMP",
        "No offset matched from request of topic-partition"
        f" {partition} and timestamp {shown}. If the time is right, the partition has"
        " no record of this time or later: set startingOffsetsByTimestampStrategy to"
        " latest to begin at the end there.",
        topic=partition.topic,
        partition=partition.partition,
    )


def _unanswered(partition: TopicPartition, answer: Unavailable | None) -> int:
    reason = answer.reason if answer else "no offset"
    raise BrokerUnavailableError(
        f"offset of {partition} is not available now: {reason}. Is its leader up?",
        topic=partition.topic,
        partition=partition.partition,
    )


def _names(partitions: Iterable[TopicPartition]) -> str:
    return "{" + ", ".join(str(partition) for partition in sorted(partitions)) + "}"
