"""What the tests of the readers ask for, in short."""

from __future__ import annotations

from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.native.library import load


def range_of(topic, start, end):
    return OffsetRange(TopicPartition(topic, 0), start, end)


def values_of(reader, wanted):
    return [v for batch in reader.read(wanted) for v in batch["value"].to_pylist()]


def for_consumer(**options):
    named = {name.replace("_", "."): value for name, value in options.items()}
    return client_settings(named, purpose="consumer")


def count_clients(monkeypatch):
    """Gives the list of the native clients that are made from now on."""
    extension, reason = load()
    assert extension is not None, reason
    clients, made = extension.Client, []

    def make(**settings):
        made.append(settings)
        return clients(**settings)

    monkeypatch.setattr(extension, "Client", make)
    return made
