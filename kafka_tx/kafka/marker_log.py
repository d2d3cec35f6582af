"""The compacted topic in which the markers of Kafka sinks do not expire.

A marker is also an offset of a group, which is one quick request; but brokers forget
offsets of groups after ``offsets.retention.minutes``, and those of a topic that is
deleted. So it is a record here too, in the same transaction as the part's records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.cimpl import NewTopic

from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    KafkaError,
    StateCorruptedError,
)
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.clients import addresses, new_consumer
from kafka_tx.kafka.cluster import KafkaClusterView
from kafka_tx.kafka.errors import ErrorWatch, client_error, is_refused, translated
from kafka_tx.kafka.producer import OutRecord
from kafka_tx.model import LogBounds, TopicPartition, Topics
from kafka_tx.transactions.sink_parts import Digest, Marker
from kafka_tx.transactions.sink_plan import SinkPlan

_PARTITION = 0
"""The only one that is used: what lies in one is in order."""
_TOPIC = {
    "cleanup.policy": "compact",
    "segment.ms": "3600000",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
}
_TIMEOUT_MS = 30_000
_OPEN_MS = 150_000
"""Longer than a transaction that nobody ends is kept open (two minutes)."""
_PATIENCE_MS = 2_000
"""Longer than one that gets on needs to commit its marker."""
_PAUSE_MS = 50
_AT_ONCE = 1000
_GROUP = ClientError.GROUP_AUTHORIZATION_FAILED
"""The client asks for a group's coordinator, which nobody here needs."""
_SLICE_S = 0.2


Fence: TypeAlias = Callable[[str, str], None]
"""Takes a transactional id, and of which run its writer is."""


class Memory:
    """All that is remembered of one sink: markers, the newest last, and its plan."""

    def __init__(self) -> None:
        self._markers: dict[tuple[str, int], Marker] = {}
        self.plan: SinkPlan | None = None

    @property
    def markers(self) -> list[Marker]:
        """The newest of each part and life, in the order in which they were written."""
        return list(self._markers.values())

    def own(self, life: str, index: int) -> Marker | None:
        """The marker of one part."""
        return self._markers.get((life, index))

    def take(self, key: list[Any], fields: dict[str, Any]) -> None:
        """Remember a record of the sink."""
        if key[0] == "plan":
            self.plan = SinkPlan.of_fields(fields)
            return
        life, index = key[2], key[3]
        self._markers.pop((life, index), None)  # so that it becomes the last
        self._markers[life, index] = Marker(
            index,
            fields["txid"],
            fields["parts"],
            Digest(fields["rows"], fields["sum"]),
            fields["run"],
            fields["epoch"],
            life,
            fields["owner"],
            fields.get("plan", ""),
        )


class MarkerLog:
    """Reads and makes records of the topic (driver and executor); for one thread.

    Args:
        topic: Made, compacted, when it is first looked at and absent.
        settings: From ``client_settings(…, purpose="consumer")``.
    """

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self.topic = topic
        self._settings = {**settings, "isolation.level": "read_committed"}

    def marker(self, sink: str, marker: Marker) -> OutRecord:
        """The record that keeps a marker."""
        key = ["part", sink, marker.life, marker.index]
        fields = {
            "v": 1,
            "txid": marker.txid,
            "parts": marker.parts,
            "rows": marker.digest.rows,
            "sum": marker.digest.sum,
            "run": marker.run,
            "epoch": marker.epoch,
            "owner": marker.owner,
            "plan": marker.plan,
        }
        return self._record(key, fields)

    def plan(self, sink: str, plan: SinkPlan) -> OutRecord:
        """The record that keeps a plan."""
        return self._record(["plan", sink], {"v": 1, **plan.as_fields()})

    def recall(self, sink: str, fence: Fence | None = None) -> Memory:
        """All that was committed for the sink when the call began.

        What others have begun to commit is waited for.

        Args:
            sink: The id of the sink.
            fence: Called for what writers of this sink seem to have left open.

        Raises:
            AuthenticationError: Credentials, permission or TLS; or the topic is absent
                and may not be made.
            BrokerUnavailableError: No answer in time, or a transaction stays open.
            KafkaError: A broker answered with another error.
        """
        memory = Memory()
        bounds = self._bounds(lambda start, end: self._fence(sink, start, end, fence))
        for key, value in self._read(bounds) if bounds.end > bounds.log_start else ():
            try:
                name = json.loads(key)
                if name[1] == sink:
                    memory.take(name, json.loads(value))
            except (ValueError, LookupError, TypeError) as error:
                raise self._corrupted(key, error) from None
        return memory

    def _record(self, key: list[Any], fields: dict[str, Any]) -> OutRecord:
        return OutRecord(
            self.topic, _json(key), _json(fields), None, partition=_PARTITION
        )

    # --- where it ends --------------------------------------------------------------

    def _bounds(self, unlock: Callable[[int, int], None]) -> LogBounds:
        """What to read: the log as it is now, once its transactions are settled."""
        everything = self._view("read_uncommitted")
        settled = self._view("read_committed")
        with closing(everything), closing(settled):
            if not self._exists(everything):
                self._make()
            bounds = self._ask(everything, Deadline(_TIMEOUT_MS))
            deadline, patience = Deadline(_OPEN_MS), Deadline(_PATIENCE_MS)
            while (stable := self._ask(settled, deadline).end) < bounds.end:
                if patience.is_over():
                    unlock(stable, bounds.end)
                    patience = Deadline(_OPEN_MS)
                if not deadline.pause(_PAUSE_MS):
                    raise self._silent("a transaction in it stays open")
        return bounds

    def _fence(self, sink: str, start: int, end: int, fence: Fence | None) -> None:
        """Tell of each writer of the sink that has not settled what it began."""
        if fence is None:
            return
        for key, value in self._read(LogBounds(start, end), "read_uncommitted"):
            name = json.loads(key)
            if name[1] == sink:
                run = json.loads(value).get("run", "")
                fence(
                    f"kafka_tx.{sink}.{name[-1] if name[0] == 'part' else 'plan'}", run
                )

    def _exists(self, view: KafkaClusterView) -> bool:
        try:
            return self.topic in view.topics(Topics((self.topic,)))
        except AuthenticationError as error:
            if "authorization failed" not in error.message:
                raise
            raise self._forbidden() from error

    def _ask(self, view: KafkaClusterView, deadline: Deadline) -> LogBounds:
        partition = TopicPartition(self.topic, _PARTITION)
        while True:
            found = view.bounds([partition])[partition]
            if isinstance(found, LogBounds):
                return found
            if not deadline.pause(_PAUSE_MS):
                raise self._silent(found.reason)

    def _view(self, level: str) -> KafkaClusterView:
        settings = {**self._settings, "isolation.level": level}
        return KafkaClusterView(settings, retry_interval_ms=100)

    # --- reading --------------------------------------------------------------------

    def _read(
        self, bounds: LogBounds, level: str = "read_committed"
    ) -> Iterator[tuple[bytes, bytes]]:
        watch = ErrorWatch(addresses(self._settings))
        settings = {
            **self._settings,
            "isolation.level": level,
            "enable.partition.eof": "true",
            "auto.offset.reset": "earliest",  # compaction moves the start
            "check.crcs": "false",  # the mock cluster's ends of transactions have none
        }
        consumer = new_consumer(settings, watch)
        deadline = Deadline(_TIMEOUT_MS)
        with closing(consumer):
            consumer.assign([ClientPartition(self.topic, _PARTITION, bounds.log_start)])
            while True:
                is_end, records = self._some(consumer, watch, bounds.end)
                yield from records
                if is_end:
                    return
                watch.raise_refusal()
                if records:
                    deadline = Deadline(_TIMEOUT_MS)
                elif deadline.is_over():
                    raise self._silent(f"it cannot be read.{watch.reason()}")

    def _some(
        self, consumer: Consumer, watch: ErrorWatch, end: int
    ) -> tuple[bool, list[tuple[bytes, bytes]]]:
        is_end, records = False, []
        try:
            messages = consumer.consume(_AT_ONCE, _SLICE_S)
        except KafkaException as exception:
            raise self._failed(client_error(exception), watch) from exception
        for message in messages:
            error = message.error()
            if error is None:
                records.append((message.key() or b"null", message.value() or b"null"))
                is_end = is_end or (message.offset() or 0) + 1 >= end
            elif error.code() == ClientError._PARTITION_EOF:
                is_end = is_end or (message.offset() or 0) >= end
            elif is_refused(error) and error.code() != _GROUP:
                raise self._failed(error, watch)
        return is_end, records

    # --- making it ------------------------------------------------------------------

    def _make(self) -> None:
        admin = AdminConnection(self._settings)
        deadline = Deadline(_TIMEOUT_MS)
        topic = NewTopic(
            self.topic, num_partitions=1, replication_factor=-1, config=_TOPIC
        )
        (future,) = admin.client.create_topics(
            [topic], request_timeout=deadline.rest_s()
        ).values()
        answer = admin.wait(future, deadline)
        if not isinstance(answer, ClientError):
            return
        if answer.code() == ClientError.TOPIC_ALREADY_EXISTS:
            return
        if is_refused(answer):
            raise self._forbidden()
        raise admin.failed(answer, f"making topic '{self.topic}'")

    # --- errors ---------------------------------------------------------------------

    def _forbidden(self) -> AuthenticationError:
        return AuthenticationError(
            f"the topic '{self.topic}', which keeps the markers of exactly-once sinks,"
            " is absent or hidden, and this user may not CREATE it. Grant READ and"
            f" WRITE on topic '{self.topic}' where it is there; else grant CREATE on"
            f" it, or make it: kafka-topics.sh --create --topic {self.topic}"
            " --partitions 1 --config cleanup.policy=compact --bootstrap-server"
            f" {addresses(self._settings)}",
            addresses=addresses(self._settings),
        )

    def _failed(self, error: ClientError, watch: ErrorWatch) -> KafkaError:
        what = f"reading, which needs READ on topic '{self.topic}'"
        return translated(error, what, watch)

    def _silent(self, reason: str) -> BrokerUnavailableError:
        where = addresses(self._settings)
        return BrokerUnavailableError(
            f"the markers in topic '{self.topic}' at {where}: {reason}. Nothing was"
            " written; try again.",
            addresses=where,
        )

    def _corrupted(self, key: bytes, error: Exception) -> StateCorruptedError:
        return StateCorruptedError(
            f"topic '{self.topic}' holds a record that is no marker of ours (key"
            f" {key[:100]!r}: {error}). Give 'tx.markerTopic' a topic of its own.",
            store=self.topic,
            path=repr(key[:100]),
            reason=str(error),
        )


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
