"""Decides where a partition starts, and gives the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kafka_tx.model import (
    AtOffset,
    AtTime,
    CommittedOffset,
    Earliest,
    LogBounds,
    LogPosition,
    Position,
    TopicPartition,
)
from kafka_tx.offsets.discovery import is_another
from kafka_tx.offsets.loss import AT_LEAST_ONCE, LossReason, OutOfRange, Verdict, judge
from kafka_tx.offsets.position_checks import check_position
from kafka_tx.offsets.runs import RunList


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRules:
    """Rules for the start of partitions.

    Attributes:
        position: Start without a stored offset.
        topology_id: Id of this deployment; stored with every offset.
        ignore_stored_offsets: Start at ``position`` although an offset is stored, if
            *another* deployment stored it. A restart of the same one always resumes.
        max_offset_behind: A stored offset further than this below ``position`` is not
            used. No effect if ``position`` is the earliest. None: no limit.
        out_of_range: Policy for a start outside of the log.
    """

    position: Position = field(default_factory=Earliest)
    topology_id: str = ""
    ignore_stored_offsets: bool = False
    max_offset_behind: int | None = None
    out_of_range: OutOfRange = OutOfRange.EARLIEST

    def counts(self, stored: CommittedOffset) -> bool:
        """Whether a stored offset is one to go on from, not one to ignore."""
        return not self.ignore_stored_offsets or stored.topology_id == self.topology_id


@dataclass(frozen=True, slots=True)
class StartDecision:
    """The start of one partition.

    Attributes:
        committed: The next offset, completed offsets beyond it, and its topic.
        reason: One sentence to log: the offset and the rule.
        lost: Number of offsets lost for good, by reason. The number of records may be
            lower, since a log may have holes.
    """

    committed: CommittedOffset
    reason: str
    lost: dict[LossReason, int] = field(default_factory=dict)


def choose_start(
    partition: TopicPartition,
    rules: StartRules,
    *,
    stored: CommittedOffset | None,
    resolved: int,
    bounds: LogBounds,
) -> StartDecision:
    """Decide where a partition starts. Called once, when a task gets the partition.

    The first rule that applies wins: no stored offset; an offset of another deployment
    that is to be ignored; an offset too far behind; otherwise the stored offset. Last,
    the policy moves a start outside of the log.

    Args:
        partition: Named in the reason.
        rules: As configured.
        stored: The stored record; None: there is none.
        resolved: The offset that ``rules.position`` stands for.
        bounds: Of the log. Without a topic id, or if ``stored`` has none, the topic is
            assumed to be the same.

    Source: Storm, PartitionManager (deviates: offset 0 is legal, a record that cannot
    be read is an error of the store and no reason to start again).

    Raises:
        DataLossError: The start is not in the log and the policy is to fail.
    """
    lost: dict[LossReason, int] = {}
    if stored is not None and is_another(stored.topic_id or None, bounds.topic_id):
        anew = check_position(stored.reached, bounds)
        policy = rules.out_of_range
        begin = judge(partition, anew, policy, AT_LEAST_ONCE).next_offset
        chosen = CommittedOffset(begin)
        why = (
            "the topic was deleted and created again since offset"
            f" {stored.offset} was stored"
        )
    elif stored is None:
        chosen = CommittedOffset(resolved)
        why = f"no stored offset; start position is {_name(rules.position)}"
    elif not rules.counts(stored):
        chosen = CommittedOffset(resolved)
        why = (
            f"stored offset {stored.offset} of topology {stored.topology_id!r} is"
            f" ignored by {rules.topology_id!r}; start position is"
            f" {_name(rules.position)}"
        )
    elif _is_behind(stored.offset, resolved, rules.max_offset_behind):
        chosen = CommittedOffset(resolved)
        lost[LossReason.BEHIND] = _unfinished(stored, resolved)
        why = (
            f"stored offset {stored.offset} is {resolved - stored.offset} behind the"
            f" start position {_name(rules.position)}, more than"
            f" max_offset_behind={rules.max_offset_behind}"
        )
    else:
        chosen = stored
        why = f"stored offset{_written_by(stored, rules)}"
    return _judged(partition, rules.out_of_range, bounds, chosen, why, lost)


def _judged(
    partition: TopicPartition,
    policy: OutOfRange,
    bounds: LogBounds,
    chosen: CommittedOffset,
    why: str,
    lost: dict[LossReason, int],
) -> StartDecision:
    def verdict(offset: int) -> Verdict:
        check = check_position(LogPosition(offset, None), bounds)
        return judge(partition, check, policy, AT_LEAST_ONCE)

    reached = chosen.reached.offset
    top = verdict(reached)
    if top.reason is LossReason.CUT:
        # The record's offsets beyond the end belong to a log that is gone.
        chosen = cut_at(chosen, top.next_offset)
        lost[LossReason.CUT] = top.lost
        why += (
            f"; {reached} is above {bounds.end}, where the log ends or other records"
            " follow: the log lost its end, and what is left was read already"
        )
    low = verdict(chosen.offset)
    if low.reason is LossReason.TRIMMED:
        why += f"; {chosen.offset} was trimmed, the log starts at {bounds.log_start}"
        lost[LossReason.TRIMMED] = _unfinished(chosen, low.next_offset)
        chosen = skip_below(chosen, low.next_offset)
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

    Topics only get new partitions with higher numbers: a partition without an offset
    below one with an offset had an offset once, unless it could not be read so far (no
    leader, or not in ``StaticHosts``), which nobody knows. Partitions above may be new.
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
    """The same progress, with everything below ``offset`` marked as done."""
    done = RunList()
    done.add(-1, max(offset, committed.offset))  # -1: never empty, also at offset 0
    for start, end in committed.completed:
        done.add(start, end)
    (_, start), *beyond = done
    return replace(committed, offset=start, completed=tuple(beyond))


def cut_at(committed: CommittedOffset, end: int) -> CommittedOffset:
    """The same progress, without offsets at or above ``end``."""
    offset = min(committed.offset, end)
    done = [(s, min(e, end)) for s, e in committed.completed if s < end]
    failed = [(s, min(e, end), n) for s, e, n in committed.failures if s < end]
    return replace(
        committed, offset=offset, completed=tuple(done), failures=tuple(failed)
    )


def _unfinished(committed: CommittedOffset, end: int) -> int:
    """Number of offsets below ``end`` that are not done."""
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
