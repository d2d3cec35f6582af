"""Checks whether a stored batch can be read again, and how much of it is left."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import ReplayImpossibleError
from kafka_tx.model import (
    BatchMetadata,
    OffsetRange,
    QueryShape,
    TopicPartition,
    located,
)
from kafka_tx.offsets.leader_epochs import packed
from kafka_tx.offsets.loss import Losses, LossReason
from kafka_tx.offsets.position_checks import Finding, PositionCheck
from kafka_tx.planning.cluster_poller import ClusterState
from kafka_tx.planning.new_checkpoints import (
    BEGIN_ANEW,
    HALF_WRITTEN,
    lost_with_checkpoint,
)
from kafka_tx.planning.offset_json import MARK, nested

Parts = Mapping[str, BatchMetadata | None]
"""Parts of a joint batch by ``tx.id``; None: unknown, or not unfinished."""


_WAS_OPAQUE = (
    "It was planned with tx.mode=opaque before, and sinks that take opaque batches may"
    " have other records of it. If all sinks of the query take them, set tx.mode to"
    " 'opaque': the sinks replace what they have. If only some of them do, put store"
    " and sinks back from copies that were made together. If none does, go on like"
    " this."
)


def readable_batch(
    transactions: TransactionsConfig,
    batch: BatchMetadata,
    cluster: ClusterState,
    losses: Losses,
    *,
    is_committed: bool,
    query: QueryShape | None,
    others: Callable[[BatchMetadata], Parts],
) -> BatchMetadata:
    """The same batch if the log still has all of it; opaque: the part that is left.

    A partition that does not answer now keeps its range: its task waits for an answer.
    Only records that are known to be gone count as gone.

    ``query`` (the query's shape) and ``others`` (the other sources' parts of the batch)
    are for the text of the error.

    Raises:
        ReplayImpossibleError: The batch is transactional or committed, and the log
            lacks a part of a range.
    """
    ranges, logged = [], dict(batch.logged)
    position_checks = cluster.position_checks(batch.positions())
    for wanted in batch.ranges:
        partition = wanted.topic_partition
        left = _left(wanted, position_checks[partition])
        if left != wanted and (is_committed or transactions.mode == "transactional"):
            advice = (
                "It is committed, so the sink has its records: start with a new"
                " checkpointLocation."
                if is_committed
                else _advice(transactions, batch, cluster, query, others)
            )
            bounds = cluster.bounds.get(partition)
            raise replay_impossible(
                f"transaction {batch.txid} of '{transactions.id}' must read {wanted}"
                f" again, but {partition} {_now(position_checks[partition])}.",
                wanted,
                txid=batch.txid,
                available=(bounds.log_start, bounds.end) if bounds else None,
                advice=advice + lost_with_checkpoint(query),
            )
        losses.skipped(partition, wanted.start, left.start, LossReason.TRIMMED)
        if cluster.found.exists(partition):
            losses.skipped(partition, left.end, wanted.end, LossReason.CUT)
        if left.end < wanted.end:
            logged.setdefault(partition, wanted.end)
        ranges.append(left)
    return replace(batch, ranges=tuple(ranges), logged=logged)


def _left(wanted: OffsetRange, check: PositionCheck) -> OffsetRange:
    start, end = wanted.start, wanted.end
    if not len(wanted) or check.finding is Finding.UNANSWERED:
        return wanted
    if check.finding is Finding.DELETED:  # a hidden partition may come back
        return wanted.between(start, start)
    if check.finding is Finding.ANEW or check.bounds is None:
        return wanted.between(end, end)
    first = min(max(check.bounds.log_start, start), end)
    return wanted.between(first, max(first, min(end, check.end)))


def _advice(
    transactions: TransactionsConfig,
    batch: BatchMetadata,
    cluster: ClusterState,
    query: QueryShape | None,
    others: Callable[[BatchMetadata], Parts],
) -> str:
    begins = {transactions.id: _positions(batch.starts(), batch, cluster)}
    ends = {transactions.id: _positions(batch.ends(), batch, cluster)}
    unseen = sorted({p.topic for p in batch.ends()} - cluster.found.topics.keys())
    only = "Make sure that no other run of this query lives, and"
    if unseen:
        names = " and ".join(f"'{topic}'" for topic in unseen)
        only = (
            f"If {names} is not deleted, let this run subscribe to it and its user"
            f" DESCRIBE it, and start again. Otherwise make sure that no other run of"
            " this query lives, and"
        )
    forget = _forget(transactions.id, unseen)
    then = f"{forget}start with a new checkpointLocation; the txid is not used again."
    if batch.joint is None and query is not None and query.has_several_sources:
        return (
            f"{only} that the store did not go back to an older state (a copy, a"
            " failover) after this transaction was planned. If it did go back, a sink"
            " may have the batch: put checkpoint, store and sinks back from copies that"
            " were made together. If it did not, no sink has seen any of the batch, and"
            f" you can go on with what is left{_named(begins)}. Then {then}"
        )
    if batch.was_opaque:
        only = f"{_WAS_OPAQUE} {only}"
    seen, numbers = f"txid {batch.txid}", transactions.id
    if batch.joint is not None:
        numbers = batch.joint.numbers
        seen = f"txid {batch.joint.number} of '{numbers}'"
        for tx_id, part in others(batch).items():
            if part is None:
                return f"'{tx_id}' does not have its part of the batch.{BEGIN_ANEW}"
            begins[tx_id] = as_given(
                part.starts(), part.topic_ids, part.leader_epochs()
            )
            ends[tx_id] = as_given(part.ends(), part.topic_ids, part.leader_epochs())
    later = (
        " A later one there means that the store is older than the sink: put both back"
        " from copies that were made together."
    )
    return (
        f"{only} look whether the sink has {seen}.{later if numbers in begins else ''}"
        f" If it has, its records are there{_named(ends)}. If it has not, go on with"
        f" what is left{_named(begins)}. Either way {then}{HALF_WRITTEN}"
    )


def _named(offsets: Mapping[str, str]) -> str:
    """The commands of ``set_to`` behind a colon; nothing where no topic is left."""
    commands = set_to(offsets)
    return f": {commands}" if commands else ""


def _forget(tx_id: str, topics: Sequence[str]) -> str:
    """The command that forgets deleted topics, before the next step."""
    names = "".join(f" --topic {topic}" for topic in topics)
    command = f"`kafka-tx offsets forget --id {tx_id} --store <tx.store> --yes{names}`"
    return f"run {command}, and " if names else ""


def set_to(offsets: Mapping[str, str]) -> str:
    """The commands that set all these ids to these offsets, as of ``as_given``."""
    return " and ".join(
        f"`kafka-tx offsets set --id {tx_id} --store <tx.store>"
        " --bootstrap-servers <kafka.bootstrap.servers> --yes"
        f" --offsets '{given}'`"
        for tx_id, given in offsets.items()
        if given
    )


def as_given(
    positions: Mapping[TopicPartition, int],
    ids: Mapping[str, str],
    leader_epochs: Mapping[TopicPartition, int],
    gone: Collection[str] = (),
) -> str:
    """Positions in the command's form, with the known ids and epochs of the logs.

    ``gone``: deleted topics, whose positions are not among them.
    """
    given: dict[str, object] = dict(nested(positions))
    epochs = {p: epoch for p, epoch in leader_epochs.items() if p in positions}
    given[MARK] = {
        "topic_ids": {t: ids[t] for t in sorted(given) if t in ids},
        "leader_epochs": packed(epochs),
        **({"gone": sorted(gone)} if gone else {}),
    }
    return json.dumps(given)


def _now(check: PositionCheck) -> str:
    if check.finding is Finding.ANEW:
        return "belongs to another topic of that name now"
    if check.bounds is None:
        return "does not exist any more"
    holds = f"now holds [{check.bounds.log_start}, {check.bounds.end})"
    if check.is_certain:
        return f"{holds}, and from {check.end} on other records than then"
    return holds


def _positions(
    positions: Mapping[TopicPartition, int], batch: BatchMetadata, cluster: ClusterState
) -> str:
    """The positions to go on at: at most a log's end; a new topic's start.

    Includes the topic ids and leader epochs; unknown ones stay unchanged. Brokers
    refuse positions of deleted topics: these are left out. Empty: none is left.
    """
    at = located(positions, batch.topic_ids, batch.leader_epochs())
    position_checks = cluster.position_checks(at)
    anew = cluster.found.recreated(batch.topic_ids)
    there = {
        p: check.next_offset
        for p, check in position_checks.items()
        if cluster.found.exists(p)
    }
    if not there:
        return ""
    epochs = {p: e for p, e in batch.leader_epochs().items() if p.topic not in anew}
    for partition, check in position_checks.items():
        if check.bounds is not None and check.bounds.leader_epoch is not None:
            epochs[partition] = check.bounds.leader_epoch
    gone = {p.topic for p in positions.keys() - there}
    ids = {**batch.topic_ids, **cluster.found.topic_ids()}
    return as_given(there, ids, epochs, gone)


def replay_impossible(
    problem: str,
    wanted: OffsetRange,
    *,
    txid: int | None = None,
    available: tuple[object, object] | None = None,
    advice: str = "",
) -> ReplayImpossibleError:
    """The error for a batch that cannot be read again, with the reason for the rule.

    Args:
        problem: The batch, the records and the fault: a whole sentence.
        wanted: The range to read again.
        txid: None if a task does not know it.
        available: First offset and end of the available records; None: there are none.
        advice: Next steps, in whole sentences.
    """
    partition = wanted.topic_partition
    rule = (
        "A transactional batch, and each that is committed, holds the same records on"
        " every try or stops."
    )
    return ReplayImpossibleError(
        " ".join(filter(None, (problem, rule, advice))),
        txid=txid,
        topic=partition.topic,
        partition=partition.partition,
        wanted=(wanted.start, wanted.end),
        available=available,
    )
