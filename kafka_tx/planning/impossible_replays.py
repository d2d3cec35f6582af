"""The error for a batch that must be read again and cannot be, in every door."""

from __future__ import annotations

from kafka_tx.errors import ReplayImpossibleError
from kafka_tx.model import OffsetRange


def replay_impossible(
    problem: str,
    wanted: OffsetRange,
    *,
    txid: int | None = None,
    available: tuple[object, object] | None = None,
    advice: str = "",
) -> ReplayImpossibleError:
    """The error, with the rule that it keeps.

    Args:
        problem: Which batch, which records, and what is wrong: a whole sentence.
        wanted: What must be read again.
        txid: Of the batch; None where a task does not know it.
        available: First offset and end of what is there; None: nothing.
        advice: What to do, in whole sentences.
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
