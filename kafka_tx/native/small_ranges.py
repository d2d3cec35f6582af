"""Which ranges one fetch brings whole: their clients can be used again.

A client that is to be used again must not fetch beyond its range: a fetch that waits
at the end of the log would hold up the next range. For ranges of several fetches that
would cost more than a client.
"""

from __future__ import annotations

import pyarrow as pa

from kafka_tx.model import OffsetRange

_FETCH_BYTES = 512 << 10
_UNKNOWN_RECORD_BYTES = 500
_TOPICS_AT_MOST = 1_000

SETTINGS = {
    "fetch.message.max.bytes": str(_FETCH_BYTES),
    "queued.min.messages": "3",  # librdkafka counts up to two marks of its own
}

_record_bytes: dict[str, float] = {}
"""By topic: the average of the last batches in this process, newer ones weigh more."""


def is_small(wanted: OffsetRange) -> bool:
    """Whether one fetch will probably bring it, as far as its topic is known."""
    topic = wanted.topic_partition.topic
    record_bytes = _record_bytes.get(topic, _UNKNOWN_RECORD_BYTES)
    return len(wanted) * record_bytes <= _FETCH_BYTES


def learn(topic: str, batch: pa.RecordBatch) -> None:
    """Note how large the records of a topic are."""
    if topic not in _record_bytes and len(_record_bytes) >= _TOPICS_AT_MOST:
        _record_bytes.clear()
    found = batch.nbytes / batch.num_rows
    _record_bytes[topic] = (_record_bytes.get(topic, found) + found) / 2
