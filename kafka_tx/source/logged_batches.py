"""Batches that Spark's log fixed in an earlier run: where they began, what is left."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_tx.config import FromCommitted, PerPartition
from kafka_tx.errors import OffsetsError
from kafka_tx.model import (
    AtOffset,
    AtTime,
    Earliest,
    Latest,
    OffsetRange,
    TopicPartition,
)
from kafka_tx.offsets.discovery import is_another
from kafka_tx.planning.cluster_poller import ClusterState, LeaderEpochs, Positions
from kafka_tx.planning.losses import Losses
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.planning.offset_json import SourceOffset, nested
from kafka_tx.planning.standing import Finding

Topics = Mapping[str, str]
"""Topic ids by name."""


def first_begins(
    rule: Earliest | Latest | AtTime | PerPartition | FromCommitted, ends: Positions
) -> dict[TopicPartition, int]:
    """Where a query's first batch began that was logged without saying so.

    Such a batch was planned by Spark's own source or an older version. Offsets that the
    rule names are what they were (and are left out), ``earliest`` was 0 as far as
    anybody can tell.

    Raises:
        OffsetsError: The rule means something else now than it did then.
    """
    if isinstance(rule, Earliest):
        return dict.fromkeys(ends, 0)
    rules = rule.positions.values() if isinstance(rule, PerPartition) else [rule]
    if all(isinstance(each, AtOffset | AtTime) for each in rules):
        return {}
    raise OffsetsError(
        "KAFKA_TX_START_NOT_KNOWN",
        "the first batch of this checkpoint was not finished, and the checkpoint does"
        " not say where it began; it ends at"
        f" {nested(ends)}. Set startingOffsets to the offsets where the query began,"
        " as JSON (Spark's own source keeps them in sources/0/0 of the checkpoint). If"
        " nobody knows them, start with a new checkpointLocation and"
        " startingOffsets=earliest: nothing of this one is finished, and with latest"
        f" the records that came since would be left out.{lost_with_checkpoint(None)}",
    )


def readable_ranges(
    begins: Mapping[TopicPartition, int],
    end: SourceOffset,
    look: ClusterState,
    losses: Losses,
) -> list[OffsetRange]:
    """What is left of a logged batch, every loss reported.

    Args:
        begins: Where it began; partitions that are not named were new in it.
        end: As logged. Of one with a mark, the store's batch says whether topics are
            others by now.
        look: Settled.
        losses: Told of what is gone.
    """
    losses.deleted(
        p
        for p, at in end.positions.items()
        if not look.found.exists(p) and begins.get(p) != at
    )
    return [
        _readable(
            begins.get(partition),
            OffsetRange(partition, 0, at, None, end.leader_epochs.get(partition)),
            look,
            end.noted_ids,
            losses,
        )
        for partition, at in sorted(end.positions.items())
        if look.found.exists(partition)
    ]


def _readable(
    begin: int | None,
    below: OffsetRange,
    look: ClusterState,
    ids: Topics,
    losses: Losses,
) -> OffsetRange:
    """What is left of one partition's part, which ends where ``below`` does."""
    partition, end = below.topic_partition, below.end
    bounds = look.bounds.get(partition)
    epoch = below.leader_epoch
    epochs = {} if epoch is None else {partition: epoch}
    standing = look.stand(partition, end, ids, epochs)
    if standing.finding is Finding.ANEW:
        losses.recreated(partition, end, bounds.end if bounds else 0)
        return below.between(end, end)
    if begin == end or (bounds is None and begin is not None):
        return below.between(min(begin, end), end)
    assert bounds is not None  # new in this batch: the caller made sure
    first = min(bounds.log_start, end)
    if begin is None and first > 0:
        losses.added_late(partition, first)
    elif begin is not None and begin > end:  # logged by an older version: made anew
        losses.recreated(partition, begin, bounds.end)
    elif begin is not None and first > begin:
        losses.trimmed(partition, begin, first)
    elif begin is not None:
        first = begin
    log_end = standing.end if standing.is_certain else bounds.end
    last = max(min(end, log_end), first)
    if log_end < end:
        losses.cut(partition, end, last)
    return below.between(first, last)


def begun(
    start: SourceOffset, end: SourceOffset
) -> tuple[Positions, Topics, LeaderEpochs]:
    """Where a logged batch began, of which topics, and which leaders held that.

    One that began elsewhere than the end before it says so itself, as the first of a
    checkpoint does: no log has its start.
    """
    said = {partition.topic for partition in (*_unseen_at(end), *end.begins)}
    former, ids = start.topic_ids, dict(end.topic_ids)
    gone = {t for t in said if is_another(former.get(t), ids.get(t))}
    before = {p: at for p, at in all_of(start).items() if p.topic not in gone}
    ids |= {t: known for t, known in former.items() if t not in gone}
    if start.mark is not None and start.mark.start:
        before = {p: at for p, at in before.items() if p in end.positions}
        ids = {**ids, **end.topic_ids}
    said_by_end = {**_unseen_at(end), **end.begins}
    epochs = {
        p: epoch
        for offset, positions in ((start, before), (end, said_by_end))
        for p, epoch in offset.leader_epochs.items()
        if p in positions and (offset is end or p not in said_by_end)
    }
    return {**before, **said_by_end}, ids, epochs


def all_of(offset: SourceOffset) -> dict[TopicPartition, int]:
    """Its positions, also of what was out of sight."""
    return {**_unseen_at(offset), **offset.positions}


def _unseen_at(offset: SourceOffset) -> Positions:
    return offset.mark.unseen if offset.mark else {}
