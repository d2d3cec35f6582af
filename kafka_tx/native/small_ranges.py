"""Which ranges one fetch brings whole: their clients can be used again.

A client that is to be used again should not fetch beyond its range: a fetch that waits
at the end of the log holds up the next range. For ranges of several fetches such stop
and go would cost more than a client.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from kafka_tx.model import OffsetRange

_FETCH_BYTES = 512 << 10
_UNKNOWN_RECORD_BYTES = 500
_TOPICS_AT_MOST = 1_000

_WAIT_AT_MOST_MS = 100

SETTINGS = {
    "fetch.message.max.bytes": str(_FETCH_BYTES),
    # Nothing is fetched while so many are queued. librdkafka counts what it queues
    # beside the records: the mark of a new start, and the end of the log.
    "queued.min.messages": "3",
}

_record_bytes: dict[str, float] = {}
"""By topic: the average of the last batches in this process, newer ones weigh more."""


def is_small(wanted: OffsetRange, settings: Mapping[str, str]) -> bool:
    """Whether one fetch will probably bring it, as far as its topic is known.

    Never where a fetch may wait for long: after the last record or two of a log one is
    on its way in spite of ``SETTINGS``. What is no number is for librdkafka to refuse.
    """
    topic = wanted.topic_partition.topic
    record_bytes = _record_bytes.get(topic, _UNKNOWN_RECORD_BYTES)
    waits_ms = str(settings.get("fetch.wait.max.ms", "500"))
    is_quick = waits_ms.isdecimal() and int(waits_ms) <= _WAIT_AT_MOST_MS
    return is_quick and len(wanted) * record_bytes <= _FETCH_BYTES


def learn(topic: str, batch: pa.RecordBatch) -> None:
    """Note how large the records of a topic are."""
    if topic not in _record_bytes and len(_record_bytes) >= _TOPICS_AT_MOST:
        _record_bytes.clear()
    found = batch.nbytes / batch.num_rows
    _record_bytes[topic] = (_record_bytes.get(topic, found) + found) / 2
