"""What a transactional topology left in its store, as tools look at it."""

from __future__ import annotations

from typing import Any

from kafka_tx.model import BatchMetadata, OffsetRange
from kafka_tx.protocols import Store
from kafka_tx.topology.kafka.kafka_reading import kafka_parts
from kafka_tx.transactions.chain import Opened, read_chain
from kafka_tx.transactions.ledger import Committed, LedgerState
from kafka_tx.transactions.rotating import RecordCodec
from kafka_tx.transactions.txid_layout import numbering_of


def stored_batches(store: Store) -> LedgerState:
    """Committed and unfinished batches of a topology.

    Offsets are those of a Kafka spout; other spouts have txids and no offsets here. A
    topology keeps no time of its commits. Writes nothing.

    Raises:
        StateCorruptedError: A record cannot be read, or the txids have a hole.
        StateUnavailableError: The store does not answer.
    """
    epoch = store.epoch()  # first, as the ledger does
    opened = Opened(epoch, store.read(), store.url, store.id)
    codec = RecordCodec[Any]("metadata", store.url, store.id)
    current, state = read_chain(codec, opened)
    planned = {txid: _batch(txid, state.state(txid)) for txid in state.txids()}
    last = planned.get(current - 1)
    offsets, ids = (last.ends(), last.topic_ids) if last else ({}, {})
    committed = Committed(current - 1, offsets, ids) if current > 1 else None
    numbering = numbering_of(opened.values, store.url, store.id)
    name = numbering.name if numbering else ""
    return LedgerState(epoch, committed, planned, name)


def _batch(txid: int, metadata: object) -> BatchMetadata:
    parts = kafka_parts(metadata)
    ranges = (OffsetRange(p, part["start"], part["end"]) for p, part in parts.items())
    ids = {p.topic: part["id"] for p, part in parts.items() if "id" in part}
    return BatchMetadata(txid, tuple(ranges), ids)
