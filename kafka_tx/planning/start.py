"""Where a partition starts, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kafka_tx.model import (
    AtOffset,
    AtTime,
    CommittedOffset,
    Earliest,
    LogBounds,
    Position,
    TopicPartition,
)
from kafka_tx.offsets.discovery import is_another
from kafka_tx.offsets.loss import LossReason, OutOfRange, out_of_range
from kafka_tx.offsets.runs import RunList


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRules:
    """What decides where partitions start.

    Attributes:
        position: Where to start without a stored offset.
        topology_id: This deployment; stored with every offset.
        ignore_stored_offsets: Start at ``position`` although an offset is stored, if
            *another* deployment stored it. A restart of the same one always resumes.
        max_offset_behind: A stored offset further than this below ``position`` is not
            used. Does nothing where ``position`` is the earliest. None: no bound.
        out_of_range: What to do with a start outside of the log.
    """

    position: Position = field(default_factory=Earliest)
    topology_id: str = ""
    ignore_stored_offsets: bool = False
    max_offset_behind: int | None = None
    out_of_range: OutOfRange = OutOfRange.EARLIEST


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Where one partition starts.

    Attributes:
        committed: The next offset, what is done beyond it, and the topic it is of.
        reason: One sentence to log: where, and by which rule.
        lost: How many offsets are skipped for good, by reason. An upper bound of the
            records, since a log may have holes.
    """

    committed: CommittedOffset
    reason: str
    lost: dict[LossReason, int] = field(default_factory=dict)


def choose_start(
    partition: TopicPartition,
    rules: StartRules,
    *,
    stored: CommittedOffset | None,
    resolved: int | None,
    bounds: LogBounds,
) -> StartDecision:
    """Decide where a partition starts. Called once, when a task gets the partition.

    The first rule that applies wins: no stored offset; one of another deployment that
    is to be ignored; one too far behind; else the stored one. 0 is an offset like any
    other. Last, a start outside of the log is moved by the policy.

    Args:
        partition: Named in the reason.
        rules: As configured.
        stored: The stored record; None when there is none.
        resolved: The offset that ``rules.position`` stands for; None when a start time
            is later than every record, which means the end.
        bounds: What the log holds now. If its id is not told, ``stored`` is of a topic
            that was not known either, or is taken for the same.

    Source: Storm, PartitionManager (deviates: offset 0 is legal, a record that cannot
    be read is an error of the store and not a reason to start anew).

    Raises:
        OffsetOutOfRangeError: The start is not in the log and the policy is to fail.
    """
    position = bounds.end if resolved is None else resolved
    lost: dict[LossReason, int] = {}
    if stored is not None and is_another(stored.topic_id or None, bounds.topic_id):
        return _anew(partition, rules.out_of_range, bounds, stored)
    if stored is None:
        chosen = CommittedOffset(position)
        why = f"no stored offset; start position is {_name(rules.position)}"
    elif rules.ignore_stored_offsets and stored.topology_id != rules.topology_id:
        chosen = CommittedOffset(position)
        why = (
            f"stored offset {stored.offset} of topology {stored.topology_id!r} is"
            f" ignored by {rules.topology_id!r}; start position is"
            f" {_name(rules.position)}"
        )
    elif _is_behind(stored.offset, position, rules.max_offset_behind):
        chosen = CommittedOffset(position)
        lost[LossReason.BEHIND] = _unfinished(stored, position)
        why = (
            f"stored offset {stored.offset} is {position - stored.offset} behind the"
            f" start position {_name(rules.position)}, more than"
            f" max_offset_behind={rules.max_offset_behind}"
        )
    else:
        chosen = stored
        why = f"stored offset{_written_by(stored, rules)}"
    return _within(partition, rules.out_of_range, bounds, chosen, why, lost)


def _anew(
    partition: TopicPartition,
    policy: OutOfRange,
    bounds: LogBounds,
    stored: CommittedOffset,
) -> StartDecision:
    """The stored offset is of a topic that is gone: the new one is read whole."""
    if policy is OutOfRange.FAIL:
        raise out_of_range(partition, stored.offset, bounds, "of a deleted topic")
    reason = (
        f"{partition} starts at {bounds.log_start}: the topic was deleted and created"
        f" again since offset {stored.offset} was stored"
    )
    start = CommittedOffset(
        bounds.log_start,
        topic_id=bounds.topic_id or "",
        leader_epoch=bounds.leader_epoch,
    )
    return StartDecision(start, reason)


def _within(
    partition: TopicPartition,
    policy: OutOfRange,
    bounds: LogBounds,
    chosen: CommittedOffset,
    why: str,
    lost: dict[LossReason, int],
) -> StartDecision:
    """Move a start that lies outside of the log."""
    wanted, reached = chosen.offset, chosen.reached.offset
    if reached > bounds.end:
        # What the record tells of offsets there is of a log that is gone.
        chosen = cut_at(chosen, policy.next_offset(partition, reached, bounds))
        lost[LossReason.CUT] = reached - bounds.end
        why += (
            f"; {reached} is above {bounds.end}, where the log ends or other records"
            " follow: the log lost its end, and what is left was read already"
        )
    if wanted < bounds.log_start:
        start = policy.next_offset(partition, wanted, bounds)
        lost[LossReason.TRIMMED] = _unfinished(chosen, start)
        chosen = skip_below(chosen, start)
        why += f"; {wanted} was trimmed, the log starts at {bounds.log_start}"
    chosen = replace(
        chosen,
        topic_id=bounds.topic_id or chosen.topic_id,
        leader_epoch=bounds.leader_epoch,
    )
    reason = f"{partition} starts at {chosen.offset}: {why}"
    return StartDecision(chosen, reason, {k: n for k, n in lost.items() if n})


def vanished(
    wanted: Iterable[TopicPartition],
    stored: Mapping[TopicPartition, CommittedOffset],
) -> list[TopicPartition]:
    """Partitions whose stored offsets are gone, ascending.

    Topics only grow, at their end: a partition without an offset below one with an
    offset had one once. What lies above may be new.
    """
    highest: dict[str, int] = {}
    for topic, number in stored:
        highest[topic] = max(number, highest.get(topic, 0))
    return sorted(
        at
        for at in wanted
        if at not in stored and at.partition < highest.get(at.topic, 0)
    )


def skip_below(committed: CommittedOffset, offset: int) -> CommittedOffset:
    """The same progress, with everything below ``offset`` taken for done."""
    done = RunList()
    done.add(-1, max(offset, committed.offset))  # -1: never empty, also at offset 0
    for start, end in committed.completed:
        done.add(start, end)
    (_, start), *beyond = done
    return replace(committed, offset=start, completed=tuple(beyond))


def cut_at(committed: CommittedOffset, end: int) -> CommittedOffset:
    """The same progress, without what it tells of ``end`` and all above."""
    offset = min(committed.offset, end)
    done = [(s, min(e, end)) for s, e in committed.completed if s < end]
    failed = [(s, min(e, end), n) for s, e, n in committed.failures if s < end]
    return replace(
        committed, offset=offset, completed=tuple(done), failures=tuple(failed)
    )


def _unfinished(committed: CommittedOffset, end: int) -> int:
    """How many offsets below ``end`` are not done."""
    done = RunList()
    for run in committed.completed:
        done.add(*run)
    below = done.overlap(committed.offset, end)
    return end - committed.offset - sum(high - low for low, high in below)


def _is_behind(offset: int, position: int, max_offset_behind: int | None) -> bool:
    return max_offset_behind is not None and position - offset > max_offset_behind


def _written_by(stored: CommittedOffset, rules: StartRules) -> str:
    if not stored.topology_id:
        return ""
    if stored.topology_id == rules.topology_id:
        return " of this topology"
    return f" of topology {stored.topology_id!r}"


def _name(position: Position) -> str:
    match position:
        case AtOffset(offset):
            return f"offset {offset}"
        case AtTime(timestamp_ms):
            return f"time {timestamp_ms} ms"
        case _:
            return type(position).__name__.lower()
