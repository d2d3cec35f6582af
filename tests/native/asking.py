"""What the tests of both readers ask for, in short."""

from __future__ import annotations

from kafka_tx.kafka.settings import client_settings
from kafka_tx.model import OffsetRange, TopicPartition


def range_of(topic, start, end):
    return OffsetRange(TopicPartition(topic, 0), start, end)


def values_of(reader, wanted):
    return [v for batch in reader.read(wanted) for v in batch["value"].to_pylist()]


def for_consumer(**options):
    named = {name.replace("_", "."): value for name, value in options.items()}
    return client_settings(named, purpose="consumer")
