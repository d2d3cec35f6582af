"""Reading the committed offsets of a consumer group without joining it.

Through a consumer, because the admin client's requests to a group's coordinator, for
reading and for writing, end the process with a segmentation fault or a failed assertion
when the coordinator is not ready or goes away, as on a new cluster or when a broker
goes down (librdkafka 2.16 and before, its issues 3663, 4605 and 5040).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.kafka.admin import Deadline
from kafka_tx.kafka.clients import addresses, new_consumer
from kafka_tx.kafka.errors import (
    ErrorWatch,
    client_error,
    is_absent,
    is_refused,
    is_unreachable,
    translated,
    unreachable,
)

LATER = {
    ClientError._WAIT_COORD,
    ClientError.COORDINATOR_LOAD_IN_PROGRESS,
    ClientError.COORDINATOR_NOT_AVAILABLE,
    ClientError.NOT_COORDINATOR,
}
"""Brokers are creating Kafka's own topic of offsets, or loading it after a failover."""
_FIRST_POLL_S = 0.5
_PAUSE_MS = 100


def read_group(
    settings: Mapping[str, str],
    group: str,
    partitions: list[ClientPartition],
    timeout_ms: int,
) -> list[ClientPartition]:
    """The group's next offsets with their metadata, for partitions that have one.

    Raises:
        BrokerUnavailableError: No broker answered in time.
        AuthenticationError: Credentials, permission (DESCRIBE of the group) or TLS.
        KafkaError: A broker answered with another error.
    """
    watch = ErrorWatch(addresses(settings))
    named = {**settings, "group.id": group, "enable.auto.commit": "false"}
    with closing(new_consumer(named, watch)) as consumer:
        found = committed(consumer, watch, group, partitions, Deadline(timeout_ms))
    for position in found:
        if position.error is not None and not is_absent(position.error):
            where = f"group '{group}', {position.topic}-{position.partition}"
            raise translated(position.error, where, watch)
    return [p for p in found if p.error is None and p.offset >= 0]


def committed(
    consumer: Consumer,
    watch: ErrorWatch,
    group: str,
    partitions: list[ClientPartition],
    deadline: Deadline,
) -> list[ClientPartition]:
    """Repeat until a broker answers. The client's call ignores refusals."""
    slice_s = _FIRST_POLL_S
    while True:
        try:
            found: list[ClientPartition] = consumer.committed(
                partitions, timeout=min(slice_s, deadline.rest_s())
            )
        except KafkaException as exception:
            error = client_error(exception)
            reported = consumer.poll(0)  # hands the client's reports to ``watch``
            watch.raise_refusal()
            # only this reports a refused group; the call itself times out
            refusal = None if reported is None else reported.error()
            if refusal is not None and is_refused(refusal):
                what = f"READ or DESCRIBE on group '{group}'"
                raise translated(refusal, what, watch) from None
            if not is_unreachable(error) and error.code() not in LATER:
                raise translated(error, f"group '{group}'", watch) from None
            if deadline.is_over() or not deadline.pause(_PAUSE_MS):
                what = f"group '{group}'"
                raise unreachable(what, deadline.timeout_ms, watch) from None
            slice_s *= 2
        else:
            return found
