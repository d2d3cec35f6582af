"""Positions that a person decides: set, or forgotten."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_tx.model import TopicPartition
from kafka_tx.offsets.discovery import is_another
from kafka_tx.transactions.ledger import Committed, LedgerState


def moved(
    state: LedgerState,
    given: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    now_ms: int,
    txid: int = 0,
) -> Committed:
    """The position with these offsets instead; partitions not given keep theirs.

    Open txids, and those up to ``txid``, are given up and never used again. The offsets
    count for topics of these ids, or for whatever exists when they are used.
    """
    former = state.committed or Committed(0, {})
    topics = {partition.topic for partition in given}
    kept = {t: id_ for t, id_ in former.topic_ids.items() if t not in topics}
    return Committed(
        txid=max([txid, state.txid, *state.planned]),
        offsets={**_same(former, topic_ids), **given},
        topic_ids={**kept, **topic_ids},
        completed_ms=now_ms,
    )


def _same(former: Committed, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """Offsets of topics that have not become others."""
    ids = former.topic_ids
    return {
        p: at
        for p, at in former.offsets.items()
        if not is_another(ids.get(p.topic), topic_ids.get(p.topic))
    }


def forgotten(state: LedgerState, topic: str, now_ms: int) -> Committed:
    """The position as if the topic had never been read. Open txids are given up."""
    former = state.committed or Committed(0, {})
    return Committed(
        txid=max([state.txid, *state.planned]),
        offsets={p: at for p, at in former.offsets.items() if p.topic != topic},
        topic_ids={t: id_ for t, id_ in former.topic_ids.items() if t != topic},
        completed_ms=now_ms,
    )
