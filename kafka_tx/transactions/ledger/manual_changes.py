"""Changes that people make in a store: positions, topics, a batch to skip."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from kafka_tx.errors import ConfigError, StateError
from kafka_tx.model import TopicPartition, few
from kafka_tx.planning.new_checkpoints import HALF_WRITTEN
from kafka_tx.protocols import Store
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.batch_records import Committed, batch_record
from kafka_tx.transactions.layout.txid_layout import (
    CURRENT,
    goes_on_elsewhere,
    metadata_path,
)
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


def forgotten(state: LedgerState, topics: Collection[str], now_ms: int) -> Committed:
    """The position as if the topics were never read. Unfinished txids are dropped."""
    former = state.position
    offsets = {p: at for p, at in former.offsets.items() if p.topic not in topics}
    return replace(
        former,
        txid=state.newest,
        offsets=offsets,
        topic_ids={t: id_ for t, id_ in former.topic_ids.items() if t not in topics},
        completed_ms=now_ms,
        empty=0,
        leader_epochs=former.epochs_of(offsets),
    )


def beside_unfinished(
    store: Store,
    state: LedgerState,
    wanted: Committed,
    named: Collection[TopicPartition],
    *,
    may_stay: bool = True,
) -> Committed:
    """The position of ``moved`` or ``forgotten``, before unfinished txids that stay.

    ``named``: the partitions whose offsets change or go. Unfinished txids stay if they
    have no part of these topics: a new checkpoint replays them. Else they are dropped.

    Raises:
        StateError: A dropped txid has records of partitions that are not named. A sink
            that holds the txid would get these records again.
    """
    topics = {p.topic for p in named}
    planned = {p.topic for b in state.unfinished.values() for p in b.ends()}
    if may_stay and topics.isdisjoint(planned):
        return replace(wanted, txid=state.txid)
    for txid, batch in state.unfinished.items():
        left = [r for r in batch.ranges if len(r) and r.topic_partition not in named]
        if left:
            joint, seen = batch.joint, f"txid {txid}"
            if joint is not None:
                seen = f"txid {joint.number} of '{joint.numbers}'"
            raise StateError(
                f"id '{store.id}' in {store.url}: txid {txid} is not finished and has"
                f" {few(sorted(left))}. If it is dropped, these records get another"
                f" txid, and a sink that holds {seen} gets them twice. Nothing was"
                " changed. First start the query with its checkpoint, attach() and"
                " trigger(availableNow=True), which finishes the txid, and then repeat"
                " this command. If the query cannot run, name all these partitions in"
                f" one `kafka-tx offsets set`: if the sinks hold {seen}, with the ends"
                " of the ranges, and if they do not, with the starts."
                f"{HALF_WRITTEN}",
                store=store.url,
                id=store.id,
                txid=txid,
            )
    return wanted


def without_topics(store: Store, topics: Collection[str]) -> dict[str, str]:
    """The records of a topology after removing topics, as if never read.

    Raises:
        ConfigError: The topology's last batch lacks one of the topics.
        StateError: An unfinished batch has one of them, or the last batch no other; or
            the topology goes on in another store.
        StateCorruptedError, StateUnavailableError: As of ``stored_batches``.
    """
    state = _batches(store)
    read = {n: {p.topic for p in b.ends()} for n, b in state.planned.items()}
    known = read.get(state.txid, set())
    check_read(store.id, topics, known)
    names = " and ".join(f"'{topic}'" for topic in sorted(topics))
    unfinished = [n for n in state.unfinished if not read[n].isdisjoint(topics)]
    why = ""
    if unfinished:
        why = (
            f"txid {unfinished[0]} is not finished and has a part of topic {names},"
            " which its replays must have, too. Start the topology and end it with"
            " handle.stop(), which finishes its batches, then forget the topic"
        )
    elif known == {*topics}:
        why = (
            f"it reads no other topic than {names}, and without positions its next"
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
    left = tuple(r for r in last.ranges if r.topic_partition.topic not in topics)
    ids = {name: id_ for name, id_ in last.topic_ids.items() if name not in topics}
    kept = replace(last, ranges=left, topic_ids=ids)
    return {metadata_path(state.txid): batch_record(kept)}


def check_read(id_: str, topics: Collection[str], known: Collection[str]) -> None:
    """Refuse topics that an id has not read, by a ConfigError."""
    names = ", ".join(sorted(known)) or "none"
    for topic in topics:
        if topic not in known:
            raise ConfigError.illegal("--topic", topic, f"a topic of '{id_}': {names}")


def skipping(store: Store, txid: int) -> tuple[dict[str, str], list[str]]:
    """Records to put, and paths to delete, to mark a topology's txid as committed.

    Raises:
        StateError: The txid is not the next to commit, or has no stored metadata; or
            the topology goes on in another store.
        StateCorruptedError, StateUnavailableError: As of ``stored_batches``.
    """
    state = _batches(store)
    first = next(iter(state.unfinished), None)
    if txid != first:
        raise not_first(store, txid, first)
    former = [metadata_path(state.txid)] if state.txid else []
    return {CURRENT: records.encode(CURRENT, txid + 1)}, former


def _batches(store: Store) -> LedgerState:
    """As ``stored_batches``; StateError: the topology goes on in another store."""
    state = stored_batches(store)
    if state.moved_to:
        raise goes_on_elsewhere(store, state.moved_to)
    return state


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
