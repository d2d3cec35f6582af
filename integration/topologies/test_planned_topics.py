"""What tasks of topologies do where the topic was made anew since the plan."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from kafka_tx import assembly
from kafka_tx.errors import FailedException, ReplayImpossibleError
from kafka_tx.model import OffsetRange, TopicPartition, Topics
from kafka_tx.options.source import parse_source
from kafka_tx.running.at_least_once.reading import KafkaRecords, NumberedRange
from kafka_tx.running.task_reader import TaskReader
from kafka_tx.topology.kafka.spout import KafkaBatch
from kafka_tx.topology.rows.schemes import StringScheme


@pytest.fixture
def source(kafka):
    """The reader's side of a spout's options."""
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": "any"}
    return parse_source(options, streaming=True)


@pytest.fixture
def planned(kafka, source, topic, produce):
    """Ten records that were planned of a topic that has been made anew since."""
    name = topic(1)
    with closing(assembly.cluster_view(source)) as view:
        former = view.topics(Topics((name,)))[name].topic_id
    kafka.delete_topic(name)
    kafka.create_topic(name, 1)
    produce(name, ["new"] * 12)
    return OffsetRange(TopicPartition(name, 0), 0, 10, former)


@pytest.mark.parametrize(
    ("is_exact", "error"), [(True, ReplayImpossibleError), (False, FailedException)]
)
def test_an_attempt_of_numbered_batches_gives_no_row(source, planned, is_exact, error):
    batch = KafkaBatch(TaskReader(source), StringScheme(), 7, (planned,), is_exact)
    given: list[Any] = []

    with pytest.raises(error, match="deleted and created again"):
        given.extend(batch.read(0, 1, {}))

    assert given == []


def test_a_chunk_at_least_once_fails_the_records_and_gives_no_row(source, planned):
    ranges = (NumberedRange(planned, 100),)
    chunk = KafkaRecords(ranges, TaskReader(source), StringScheme())
    facts: dict = {}

    (records,) = chunk.read(0, 1, facts)

    assert (records.block, records.read.tolist()) == ([], list(range(100, 110)))
    assert "KAFKA_TX_OTHER_TOPIC" in records.error
    assert facts[str(planned.topic_partition)]["records"] == 0
