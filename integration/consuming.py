"""What a topic holds, as a plain consumer of committed records sees it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from integration.cluster.waiting import NotReadyError, wait_until
from integration.log_ends import log_ends

WITHIN_S = 60.0


class Consumed(NamedTuple):
    """A record, with the names of the columns of a DataFrame."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: datetime
    headers: object

    @property
    def text(self) -> str:
        """Its value, which is not null."""
        assert self.value is not None
        return self.value.decode()


def committed_records(servers: str, topic: str) -> list[Consumed]:
    """All records that can be read now, by partition and offset.

    Brokers say that a transaction is committed a little before it can be read: that is
    waited for, but not for ever, as one may have been left open.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "committed-records",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        unfinished = set(consumer.list_topics(topic, WITHIN_S).topics[topic].partitions)
        with suppress(NotReadyError):
            wait_until(
                "no transaction is open",
                lambda: is_settled(servers, topic, len(unfinished)),
                timeout_s=WITHIN_S,
            )
        consumer.assign(
            [TopicPartition(topic, p, OFFSET_BEGINNING) for p in unfinished]
        )
        found = []
        while unfinished:
            message = consumer.poll(WITHIN_S)
            assert message is not None, f"nothing more of {topic}, {unfinished}"
            error = message.error()
            if error is None:
                found.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return sorted(found)


def is_settled(servers: str, topic: str, partitions: int) -> bool:
    """Whether readers of committed records get as far as all others."""
    committed = log_ends(servers, topic, partitions, "read_committed")
    return committed == log_ends(servers, topic, partitions)


def _record(message: Message) -> Consumed:
    _, at_ms = message.timestamp()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Consumed(
        partition,
        offset,
        message.key(),
        message.value(),
        datetime.fromtimestamp(at_ms / 1_000, UTC),
        message.headers(),
    )
