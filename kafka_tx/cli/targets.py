"""The target of ``kafka-tx offsets set``, checked against the logs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from kafka_tx.cli.kafka_logs import Logs
from kafka_tx.errors import ConfigError, KafkaError
from kafka_tx.model import (
    AtOffset,
    AtTime,
    Earliest,
    Latest,
    LogBounds,
    LogPosition,
    Position,
    TopicPartition,
    Unavailable,
    few,
    located,
)
from kafka_tx.offsets.leader_epochs import unpacked
from kafka_tx.offsets.position_checks import Finding, check_position
from kafka_tx.planning.log_bounds import Bounds
from kafka_tx.planning.offset_json import MARK, parse_positions
from kafka_tx.transactions.ledger.ledger import LedgerState

EXAMPLE = """'{"orders": {"0": 250, "1": 0}}'"""
_NAMES: Mapping[str, Position] = {"earliest": Earliest(), "latest": Latest()}


@dataclass(frozen=True, slots=True)
class Target:
    """The wanted offsets.

    Attributes:
        offsets: By partition; empty while only ``to`` is known.
        topic_ids: Ids of their topics, as far as known.
        leader_epochs: Of the leaders that held them, as far as known.
        gone: Topics that do not exist any more: their offsets need not be named.
        to: What brokers shall find for each partition that the id has read.
        topic: Only for partitions of this one; None: of all.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    gone: Collection[str] = ()
    to: Position | None = None
    topic: str | None = None


def target_of(
    offsets: str | None, to: str | None, topic: str | None, *, has_brokers: bool
) -> Target:
    """The target that the command line names.

    Raises:
        ConfigError: It names none, several, or an illegal one.
    """
    if (offsets is None) == (to is None) or (topic and not to):
        raise ConfigError(
            f"give either --offsets, JSON such as {EXAMPLE}, or --to"
            " earliest|latest|TIME with or without --topic",
            option="--offsets",
        )
    if offsets is not None:
        return _marked(_given(offsets), offsets)
    if not has_brokers:
        raise ConfigError(
            f"--to {to} asks brokers for the offsets: add --bootstrap-servers",
            option="--bootstrap-servers",
        )
    return Target(to=_position(str(to)), topic=topic)


def confirmed(target: Target, before: LedgerState, kafka: Mapping[str, str]) -> Target:
    """The same offsets, with ids and leader epochs from the brokers.

    Raises:
        ConfigError: The id has not read the topic, and the brokers do not know it.
        KafkaError: Brokers do not answer, or a log does not exist or go as far.
    """
    with closing(Logs(kafka)) as logs:
        if target.to is not None:
            target = replace(target, offsets=_resolved(target, before, logs))
        ids, epochs = target.topic_ids, target.leader_epochs
        positions = located(dict(sorted(target.offsets.items())), ids, epochs)
        found = logs.poll({"": positions})[""]
    _check(positions, found)
    ids, epochs = _logs_now(found, ids, epochs)
    return replace(target, topic_ids=ids, leader_epochs=epochs)


def check_whole(target: Target, before: LedgerState) -> None:
    """Refuse a part of a topic whose id brokers have not confirmed, by a ConfigError.

    The other partitions would lose the id that tells a topic from its successor.
    """
    for topic, known in before.position.topic_ids.items():
        of_topic = {p for p in before.partitions if p.topic == topic}
        left = sorted(of_topic - target.offsets.keys())
        if left and len(left) < len(of_topic) and target.topic_ids.get(topic) != known:
            raise ConfigError(
                f"--offsets does not name {few(left)}: without brokers, nobody knows"
                f" whether '{topic}' is still the topic of which their offsets are"
                " stored. Name all partitions of the topic, or give"
                " --bootstrap-servers",
                option="--offsets",
            )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _position(to: str) -> Position:
    if to in _NAMES:
        return _NAMES[to]
    time = None
    if not to.isdigit():  # Python takes some numbers for dates
        with suppress(ValueError):
            time = datetime.fromisoformat(to)
    if time is None:
        legal = "earliest, latest, or a time such as 2026-01-31T12:00:00+00:00"
        raise ConfigError.illegal("--to", to, legal)
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    if aware > datetime.now(UTC):
        legal = "a time that has passed, or latest for the end"
        raise ConfigError.illegal("--to", to, legal, "Nothing was changed.")
    return AtTime(max(0, (aware - _EPOCH) // timedelta(milliseconds=1)))


def _resolved(
    target: Target, before: LedgerState, logs: Logs
) -> dict[TopicPartition, int]:
    known, topic = before.partitions, target.topic
    wanted = sorted(p for p in known if topic in (None, p.topic))
    if topic is not None and not wanted:
        wanted = logs.partitions([topic]).get(topic, [])
    if not wanted:
        names = ", ".join(sorted({p.topic for p in known})) or "none"
        raise ConfigError.illegal(
            "--topic",
            topic,
            f"a topic that the id has read or planned: {names}; or another one of the"
            " brokers",
        )
    assert target.to is not None
    found = logs.resolve(dict.fromkeys(wanted, target.to))
    wrong = [f"{p}: {at.reason}" for p, at in found.items() if not isinstance(at, int)]
    if wrong:
        raise _refused(wrong)
    return {p: at for p, at in found.items() if isinstance(at, int)}


def _given(text: str) -> dict[TopicPartition, int]:
    positions = parse_positions("--offsets", text)
    numbers = {p: at.offset for p, at in positions.items() if isinstance(at, AtOffset)}
    if not numbers or len(numbers) != len(positions):
        raise ConfigError.illegal(
            "--offsets", text, f"offsets of 0 and more, as in {EXAMPLE}"
        )
    return numbers


def _marked(given: Mapping[TopicPartition, int], text: str) -> Target:
    """The given offsets, with what the mark of a copied offset says of their logs."""
    topics = {p.topic for p in given}
    try:
        mark = json.loads(text).get(MARK, {})
        ids = {t: str(i) for t, i in mark.get("topic_ids", {}).items() if t in topics}
        epochs = unpacked(mark.get("leader_epochs", {}))
        gone = [str(topic) for topic in mark.get("gone", ())]
    except (AttributeError, TypeError, ValueError):
        raise ConfigError.illegal(
            "--offsets", text, f"'{MARK}' as in the offset that you copy, or without it"
        ) from None
    epochs = {p: epoch for p, epoch in epochs.items() if p in given}
    return Target(given, ids, epochs, gone)


def _check(positions: Mapping[TopicPartition, LogPosition], found: Bounds) -> None:
    wrong = []
    for partition, position in positions.items():
        bounds = found.get(partition, Unavailable("the brokers do not know it"))
        if isinstance(bounds, Unavailable):
            wrong.append(f"{partition}: {bounds.reason}")
        elif reason := _why_not(position, bounds):
            wrong.append(f"{partition}: {reason}")
    if wrong:
        raise _refused(wrong)


def _refused(wrong: list[str]) -> KafkaError:
    return KafkaError(
        f"these offsets cannot be set. {'; '.join(wrong)}. Nothing was changed"
    )


def _logs_now(
    found: Bounds, ids: Mapping[str, str], epochs: Mapping[TopicPartition, int]
) -> tuple[dict[str, str], dict[TopicPartition, int]]:
    """Ids and leader epochs from the brokers, otherwise as given."""
    logs = {p: log for p, log in found.items() if isinstance(log, LogBounds)}
    ids_now = {p.topic: log.topic_id for p, log in logs.items() if log.topic_id}
    epochs_now = {
        p: e for p, log in logs.items() if (e := log.leader_epoch) is not None
    }
    return {**ids, **ids_now}, {**epochs, **epochs_now}


def _why_not(position: LogPosition, bounds: LogBounds) -> str:
    check = check_position(position, bounds)
    match check.finding:
        case Finding.WITHIN:
            return ""
        case Finding.ANEW:
            return (
                f"offset {position.offset} belongs to the deleted topic with the id"
                f" {position.topic_id}; the present topic has the id {bounds.topic_id}"
            )
        case Finding.UNANSWERED:
            return (
                f"no broker confirms that its topic has the id {position.topic_id}, or"
                f" where the log of leader epoch {position.leader_epoch} ends"
            )
        case Finding.CUT if check.is_certain:
            return (
                f"offset {position.offset} is above {check.reached}, where the log"
                f" of leader epoch {position.leader_epoch} ends and other records"
                " follow (an unclean leader election)"
            )
        case _:
            return (
                f"offset {position.offset} is outside of the log, which holds"
                f" {bounds.log_start} to {bounds.end}"
            )
