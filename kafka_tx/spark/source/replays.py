"""Whether a stored batch can be read again, and what is left of it."""

from __future__ import annotations

from dataclasses import replace

from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import ReplayImpossibleError
from kafka_tx.model import BatchMetadata, OffsetRange
from kafka_tx.spark.source.losses import Losses
from kafka_tx.spark.source.looks import Look


def readable_batch(
    transactions: TransactionsConfig, batch: BatchMetadata, look: Look, losses: Losses
) -> BatchMetadata:
    """The same batch if all of it is still in the log; opaque: what is left of it.

    A partition that does not answer now keeps its range: its task waits for it. Only
    what is known to be gone counts as gone.

    Raises:
        ReplayImpossibleError: Transactional, and part of a range is not in the log.
    """
    made_anew = look.found.recreated(batch.topic_ids)
    ranges = []
    for wanted in batch.ranges:
        first = _first_readable(
            wanted, look, anew=wanted.topic_partition.topic in made_anew
        )
        if first > wanted.start and transactions.mode == "transactional":
            raise _impossible(transactions, batch, wanted, look)
        if first > wanted.start:
            losses.skipped(wanted.topic_partition, wanted.start, first)
        ranges.append(OffsetRange(wanted.topic_partition, first, wanted.end))
    return replace(batch, ranges=tuple(ranges))


def _first_readable(wanted: OffsetRange, look: Look, *, anew: bool) -> int:
    """The first offset of the range that can still be had; its end when none can."""
    partition = wanted.topic_partition
    bounds = look.bounds.get(partition)
    if not len(wanted):
        return wanted.start
    if anew or not look.found.exists(partition):
        return wanted.end
    if bounds is None:
        return wanted.start
    if bounds.end < wanted.end:
        return wanted.end
    return min(max(bounds.log_start, wanted.start), wanted.end)


def _impossible(
    transactions: TransactionsConfig,
    batch: BatchMetadata,
    wanted: OffsetRange,
    look: Look,
) -> ReplayImpossibleError:
    partition = wanted.topic_partition
    bounds = look.bounds.get(partition)
    if bounds is None:
        now = "does not exist any more"
    else:
        now = f"now holds [{bounds.log_start}, {bounds.end})"
    return ReplayImpossibleError(
        f"transaction {batch.txid} of '{transactions.id}' must read {wanted} again, but"
        f" {partition} {now}. A transactional batch holds the same records on every try"
        " or stops. Check what the sink has of it; then run once with tx.mode=opaque,"
        " which reads what is left and counts the rest.",
        txid=batch.txid,
        topic=partition.topic,
        partition=partition.partition,
        wanted=(wanted.start, wanted.end),
        available=(bounds.log_start, bounds.end) if bounds else None,
    )
