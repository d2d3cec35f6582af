"""What a transactional topology left in its store, as tools look at it."""

from __future__ import annotations

from typing import Any

from kafka_tx.errors import ConfigError, StateError
from kafka_tx.model import BatchMetadata
from kafka_tx.protocols import Store
from kafka_tx.topology.kafka.kafka_reading import kafka_parts, partition_of, range_of
from kafka_tx.transactions import records
from kafka_tx.transactions.chain import Opened, read_chain
from kafka_tx.transactions.held import held_in
from kafka_tx.transactions.ledger import Committed, LedgerState
from kafka_tx.transactions.rotating import RecordCodec
from kafka_tx.transactions.txid_layout import CURRENT, METADATA, numbering_of


def stored_batches(store: Store) -> LedgerState:
    """Committed and unfinished batches of a topology.

    Offsets are those of a Kafka spout; other spouts have txids and no offsets here.
    Writes nothing.

    Raises:
        StateCorruptedError: A record cannot be read, or the txids have a hole.
        StateUnavailableError: The store does not answer.
    """
    epoch = store.epoch()  # first, as the ledger does
    return batches_in(Opened(epoch, store.read(), store.url, store.id))


def batches_in(opened: Opened) -> LedgerState:
    """The same of records that were read.

    Raises:
        StateCorruptedError: As of ``stored_batches``.
    """
    codec = RecordCodec[Any]("metadata", opened.store, opened.id)
    current, state = read_chain(codec, opened)
    planned = {txid: _batch(txid, state.state(txid)) for txid in state.txids()}
    last = planned.get(current - 1)
    offsets, ids = (last.ends(), last.topic_ids) if last else ({}, {})
    held = held_in(opened.values)
    times = {each.txid: each.committed_ms for each in held}
    committed_ms = times.get(current - 1, 0)
    epochs = last.leader_epochs() if last else {}
    committed = (
        Committed(current - 1, offsets, ids, committed_ms, leader_epochs=epochs)
        if current > 1
        else None
    )
    numbering = numbering_of(opened.values, opened.store, opened.id)
    name = numbering.name if numbering else ""
    return LedgerState(opened.epoch, committed, planned, name, held=held)


def without_topic(store: Store, topic: str) -> dict[str, str]:
    """The records with which a topology goes on as if it had never read a topic.

    Raises:
        ConfigError: Its last batch has no such topic.
        StateError: An unfinished batch has it, or the last batch has no other one.
        StateCorruptedError, StateUnavailableError: As of ``stored_batches``.
    """
    opened = Opened(store.epoch(), store.read(), store.url, store.id)
    codec = RecordCodec[Any]("metadata", opened.store, opened.id)
    current, state = read_chain(codec, opened)
    topics = {
        txid: {p.topic for p in kafka_parts(state.state(txid))}
        for txid in state.txids()
    }
    known = topics.get(current - 1, set())
    if topic not in known:
        names = ", ".join(sorted(known)) or "none"
        raise ConfigError.illegal("--topic", topic, f"a topic of '{store.id}': {names}")
    unfinished = [n for n, found in topics.items() if n >= current and topic in found]
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
    last = state.state(current - 1) or {}
    kept = {n: part for n, part in last.items() if partition_of(n).topic != topic}
    return {f"{METADATA}{current - 1}": codec.encode(kept)}


def skipping(store: Store, txid: int) -> tuple[dict[str, str], list[str]]:
    """Records to put, and paths to delete, so that a topology takes a txid for done.

    Raises:
        StateError: It is not the first one in line, or nothing of it is stored.
        StateCorruptedError, StateUnavailableError: As of ``stored_batches``.
    """
    opened = Opened(store.epoch(), store.read(), store.url, store.id)
    codec = RecordCodec[Any]("metadata", opened.store, opened.id)
    current, state = read_chain(codec, opened)
    if txid != current or txid not in state.txids():
        raise not_first(store, txid, current if current in state.txids() else None)
    former = [f"{METADATA}{current - 1}"] if current > 1 else []
    return {CURRENT: records.encode(CURRENT, current + 1)}, former


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


def _batch(txid: int, metadata: object) -> BatchMetadata:
    parts = kafka_parts(metadata)
    ranges = (range_of(p, part) for p, part in parts.items())
    ids = {p.topic: part["id"] for p, part in parts.items() if "id" in part}
    return BatchMetadata(txid, tuple(ranges), ids)
