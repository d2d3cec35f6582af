"""Whether a stored batch can be read again, and what is left of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import ReplayImpossibleError
from kafka_tx.model import BatchMetadata, OffsetRange, QueryShape, TopicPartition
from kafka_tx.offsets.loss import LossReason
from kafka_tx.planning.cluster_poller import ClusterState
from kafka_tx.planning.impossible_replays import replay_impossible
from kafka_tx.planning.losses import Losses
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.planning.offset_json import MARK, nested
from kafka_tx.planning.standing import Finding


def readable_batch(
    transactions: TransactionsConfig,
    batch: BatchMetadata,
    look: ClusterState,
    losses: Losses,
    *,
    is_committed: bool,
    query: QueryShape | None,
) -> BatchMetadata:
    """The same batch if all of it is still in the log; opaque: what is left of it.

    A partition that does not answer now keeps its range: its task waits for it. Only
    what is known to be gone counts as gone.

    ``query``: what else the query keeps, for the text of the error.

    Raises:
        ReplayImpossibleError: Transactional or committed, and part of a range is
            not in the log.
    """
    ranges, logged = [], dict(batch.logged)
    for wanted in batch.ranges:
        left = _left(wanted, look, batch)
        if left != wanted and (is_committed or transactions.mode == "transactional"):
            advice = (
                "It is committed, so the sink has its records: start with a new"
                " checkpointLocation."
                if is_committed
                else _advice(transactions, batch, look)
            )
            advice += lost_with_checkpoint(query)
            raise _impossible(transactions, batch, wanted, look, advice)
        partition = wanted.topic_partition
        losses.skipped(partition, wanted.start, left.start, LossReason.TRIMMED)
        if look.found.exists(partition):
            losses.skipped(partition, left.end, wanted.end, LossReason.CUT)
        if left.end < wanted.end:
            logged.setdefault(partition, wanted.end)
        ranges.append(left)
    return replace(batch, ranges=tuple(ranges), logged=logged)


def _left(wanted: OffsetRange, look: ClusterState, batch: BatchMetadata) -> OffsetRange:
    """What can still be had of a range."""
    partition, start, end = wanted.topic_partition, wanted.start, wanted.end
    standing = look.stand(partition, end, batch.topic_ids)
    if not len(wanted) or standing.finding is Finding.UNANSWERED:
        return wanted
    if standing.finding is Finding.DELETED:  # or out of sight: it may come back
        return OffsetRange(partition, start, start)
    if standing.finding is Finding.ANEW or standing.bounds is None:
        return OffsetRange(partition, end, end)
    first = min(max(standing.bounds.log_start, start), end)
    return OffsetRange(partition, first, max(first, min(end, standing.bounds.end)))


def _impossible(
    transactions: TransactionsConfig,
    batch: BatchMetadata,
    wanted: OffsetRange,
    look: ClusterState,
    advice: str,
) -> ReplayImpossibleError:
    partition = wanted.topic_partition
    bounds = look.bounds.get(partition)
    return replay_impossible(
        f"transaction {batch.txid} of '{transactions.id}' must read {wanted} again, but"
        f" {partition} {_now(wanted, look, batch)}.",
        wanted,
        txid=batch.txid,
        available=(bounds.log_start, bounds.end) if bounds else None,
        advice=advice,
    )


def _advice(
    transactions: TransactionsConfig, batch: BatchMetadata, look: ClusterState
) -> str:
    begins = _positions(batch.starts(), batch, look)
    ends = _positions(batch.ends(), batch, look)
    command = (
        f"kafka-tx offsets set --id {transactions.id} --store <tx.store>"
        " --bootstrap-servers <kafka.bootstrap.servers> --yes"
    )
    seen, also = f"txid {batch.txid}", ""
    if batch.joint is not None:
        seen = f"txid {batch.joint.number} of '{batch.joint.numbers}'"
        also = " Do the same for the ids of the query's other sources."
    return (
        "Make sure that no other run of this query lives, and look whether the sink"
        f" has {seen}. If it has, its records are there: `{command}"
        f" --offsets '{ends}'`. If it has not, go on with what is left: `{command}"
        f" --offsets '{begins}'`.{also} Either way start with a new checkpointLocation"
        " then; the txid is not used again."
    )


def _now(wanted: OffsetRange, look: ClusterState, batch: BatchMetadata) -> str:
    standing = look.stand(wanted.topic_partition, wanted.end, batch.topic_ids)
    if standing.finding is Finding.ANEW:
        return "belongs to another topic of that name now"
    if standing.bounds is None:
        return "does not exist any more"
    return f"now holds [{standing.bounds.log_start}, {standing.bounds.end})"


def _positions(
    positions: Mapping[TopicPartition, int], batch: BatchMetadata, look: ClusterState
) -> str:
    """Where to go on, as JSON: no further than a log goes, from the start of another.

    With the ids of the topics that are meant; unknown ones stay what they were.
    """
    standings = look.standings(positions, batch.topic_ids)
    anew = look.found.recreated(batch.topic_ids)
    there = {
        p: standing.next_offset
        for p, standing in standings.items()
        if look.found.exists(p) or p.topic not in anew
    }
    given: dict[str, object] = dict(nested(there))
    ids = {**batch.topic_ids, **look.found.topic_ids()}
    given[MARK] = {"topic_ids": {t: ids[t] for t in sorted(given) if t in ids}}
    return json.dumps(given)
