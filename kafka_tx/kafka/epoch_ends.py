"""Asking the leaders of partitions where former leaders' epochs ended in their logs."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.kafka.admin import Deadline
from kafka_tx.kafka.clients import addresses, new_consumer
from kafka_tx.kafka.errors import ErrorWatch
from kafka_tx.model import TopicPartition

_log = logging.getLogger(__name__)

BEYOND = 1 << 62
"""Beyond every log."""

_END = re.compile(r"broker end offset is (-?\d+)")
_SETTINGS = {
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
}
_SLICE_S = 0.05


def epoch_ends(
    settings: Mapping[str, str], wanted: Mapping[TopicPartition, int], timeout_ms: int
) -> dict[TopicPartition, int]:
    """See ``ClusterView.epoch_ends``.

    The client has no such question. But where it is to read on after a leader epoch it
    asks by itself whether the log still goes so far, and tells in its error how far:
    so it is let begin beyond every log.

    Args:
        settings: From ``client_settings(…)``.
        wanted: The epoch in each partition.
        timeout_ms: Partitions that are not answered by then are left out.

    Raises:
        AuthenticationError: A broker refused the client.
        ConfigError: librdkafka refuses a setting.
    """
    watch, deadline = ErrorWatch(addresses(settings)), Deadline(timeout_ms)
    consumer = new_consumer({**settings, **_SETTINGS}, watch)
    found: dict[TopicPartition, int] = {}
    left = set(wanted)
    try:
        consumer.assign(
            [
                ClientPartition(*p, BEYOND, leader_epoch=epoch)
                for p, epoch in wanted.items()
            ]
        )
        while left and not deadline.is_over():
            for message in consumer.consume(len(left), _SLICE_S):
                error = message.error()
                if error and error.code() == ClientError._AUTO_OFFSET_RESET:
                    topic, number = message.topic(), message.partition()
                    assert topic is not None
                    assert number is not None
                    partition = TopicPartition(topic, number)
                    left.discard(partition)
                    found[partition] = told_end(partition, error.str())
            watch.raise_refusal()
    finally:
        consumer.close()
    return found


def told_end(partition: TopicPartition, text: str) -> int:
    """What the error says; of a leader that keeps no epochs (-1): beyond every log.

    Logs in message formats before Kafka 0.11 have none, and their leaders count epochs.
    """
    told = _END.search(text)
    if told is None or int(told[1]) < 0:
        _log.warning(
            "%s: nobody tells where a leader epoch ended, so records that a new leader"
            " has in place of others are only known where its log is shorter: %s",
            *(partition, text),
        )
        return BEYOND
    return int(told[1])
