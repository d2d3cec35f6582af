"""What a transactional topology left in its store, as tools look at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.protocols import Store
from kafka_tx.topology.kafka_reading import partition_of
from kafka_tx.transactions import records
from kafka_tx.transactions.ledger import Committed, LedgerState

COORDINATOR = "coordinator/"
_CURRENT = f"{COORDINATOR}currtx"
_METADATA = f"{COORDINATOR}meta/"


def stored_batches(store: Store) -> LedgerState | None:
    """Committed and unfinished batches of a topology; None where the id is of none.

    Offsets are those of a Kafka spout; other spouts have txids and no offsets here. A
    topology keeps no time of its commits. Writes nothing.

    Raises:
        StateCorruptedError: A record cannot be read.
        StateUnavailableError: The store does not answer.
    """
    epoch = store.epoch()
    texts = store.read(COORDINATOR)
    if not texts:
        return None
    where = {"store": store.url, "id": store.id}
    current = 1
    if _CURRENT in texts:
        path = _CURRENT
        current = records.decode_as("currtx", texts[path], int, path=path, **where)
    planned: dict[int, BatchMetadata] = {}
    for path, text in texts.items():
        if path.startswith(_METADATA):
            txid = int(path.removeprefix(_METADATA))
            payload = records.decode(text, "metadata", path=path, **where)
            planned[txid] = _batch(txid, payload)
    last = planned.get(current - 1)
    offsets, ids = (last.ends(), last.topic_ids) if last else ({}, {})
    committed = Committed(current - 1, offsets, ids) if current > 1 else None
    return LedgerState(epoch, committed, dict(sorted(planned.items())))


def _batch(txid: int, metadata: Any) -> BatchMetadata:  # noqa: ANN401 - any spout's
    parts = dict(_parts(metadata))
    ranges = (OffsetRange(p, part["start"], part["end"]) for p, part in parts.items())
    ids = {p.topic: part["id"] for p, part in parts.items() if "id" in part}
    return BatchMetadata(txid, tuple(ranges), ids)


def _parts(metadata: Any) -> Iterator[tuple[TopicPartition, Mapping[str, Any]]]:  # noqa: ANN401
    if not isinstance(metadata, Mapping):
        return
    for name, part in metadata.items():
        if isinstance(part, Mapping) and {"start", "end"} <= part.keys():
            yield partition_of(name), part
