"""Changes that people make in a store: positions, topics, a batch to skip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_tx.errors import ConfigError, StateError
from kafka_tx.model import TopicPartition
from kafka_tx.protocols import Store
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.batch_records import Committed, batch_record
from kafka_tx.transactions.layout.txid_layout import CURRENT, metadata_path
from kafka_tx.transactions.ledger.ledger_reading import LedgerState, stored_batches


def moved(
    state: LedgerState,
    given: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    now_ms: int,
    txid: int = 0,
    leader_epochs: Mapping[TopicPartition, int] | None = None,
) -> Committed:
    """The position with these offsets instead; partitions not given keep theirs.

    Unfinished txids, and those up to ``txid``, are dropped and never used again.
    ``txid``: the last one that a sink holds; 0: unknown, and a txid that a checkpoint
    decided stays marked as such.
    """
    former = state.position
    return replace(
        former.moved(given, topic_ids, leader_epochs or {}),
        txid=max(txid, state.newest),
        completed_ms=now_ms,
        by_checkpoint=former.by_checkpoint and not txid,
    )


def forgotten(state: LedgerState, topic: str, now_ms: int) -> Committed:
    """The position as if the topic were never read. Unfinished txids are dropped."""
    former = state.position
    offsets = {p: at for p, at in former.offsets.items() if p.topic != topic}
    return replace(
        former,
        txid=state.newest,
        offsets=offsets,
        topic_ids={t: id_ for t, id_ in former.topic_ids.items() if t != topic},
        completed_ms=now_ms,
        empty=0,
        leader_epochs=former.epochs_of(offsets),
    )


def without_topic(store: Store, topic: str) -> dict[str, str]:
    """The records of a topology after removing one topic, as if never read.

    Raises:
        ConfigError: The topology's last batch has no such topic.
        StateError: An unfinished batch has the topic, or the last batch has no other.
        StateCorruptedError, StateUnavailableError: As of ``stored_batches``.
    """
    state = stored_batches(store)
    topics = {n: {p.topic for p in b.ends()} for n, b in state.planned.items()}
    known = topics.get(state.txid, set())
    if topic not in known:
        names = ", ".join(sorted(known)) or "none"
        raise ConfigError.illegal("--topic", topic, f"a topic of '{store.id}': {names}")
    unfinished = [txid for txid in state.unfinished if topic in topics[txid]]
    why = ""
    if unfinished:
        why = (
            f"txid {unfinished[0]} is not finished and has a part of topic '{topic}',"
            " which its replays must have, too. Start the topology and end it with"
            " handle.stop(), which finishes its batches, then forget the topic"
        )
    elif known == {topic}:
        why = (
            f"it reads no other topic than '{topic}', and without positions its next"
            " batch would begin at the startingOffsets of its spout. Leave the topic in"
            " it: if it was deleted and is created again, its id tells that"
        )
    if why:
        raise StateError(
            f"id '{store.id}' in {store.url}: {why}. Nothing was changed",
            store=store.url,
            id=store.id,
        )
    last = state.planned[state.txid]
    left = tuple(r for r in last.ranges if r.topic_partition.topic != topic)
    ids = {name: id_ for name, id_ in last.topic_ids.items() if name != topic}
    kept = replace(last, ranges=left, topic_ids=ids)
    return {metadata_path(state.txid): batch_record(kept)}


def skipping(store: Store, txid: int) -> tuple[dict[str, str], list[str]]:
    """Records to put, and paths to delete, to mark a topology's txid as committed.

    Raises:
        StateError: The txid is not the next to commit, or has no stored metadata.
        StateCorruptedError, StateUnavailableError: As of ``stored_batches``.
    """
    state = stored_batches(store)
    first = next(iter(state.unfinished), None)
    if txid != first:
        raise not_first(store, txid, first)
    former = [metadata_path(state.txid)] if state.txid else []
    return {CURRENT: records.encode(CURRENT, txid + 1)}, former


def not_first(store: Store, txid: int, first: int | None) -> StateError:
    """The error for a txid that cannot be skipped."""
    legal = f"only txid {first}, the first in line," if first else "none"
    return StateError(
        f"txid {txid} of '{store.id}' in {store.url} cannot be skipped: {legal} can be."
        " Nothing was changed. `kafka-tx status` shows unfinished txids",
        store=store.url,
        id=store.id,
        txid=txid,
    )
