"""Committed offsets as those of a Kafka consumer group, for tools that show groups."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin._config import ConfigResource

from kafka_tx.errors import (
    BrokerUnavailableError,
    GroupOccupiedError,
    KafkaError,
    KafkaTxError,
)
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.errors import is_absent, is_refused, is_unreachable
from kafka_tx.kafka.group_reader import read_group
from kafka_tx.logs import event_log, same_events
from kafka_tx.model import TopicPartition
from kafka_tx.offsets.retry import BackOff

_SOON = {
    ClientError.COORDINATOR_LOAD_IN_PROGRESS,
    ClientError.COORDINATOR_NOT_AVAILABLE,
    ClientError.NOT_COORDINATOR,
}
"""Brokers are creating Kafka's own topic of offsets, or loading it after a failover."""
_OCCUPIED = {
    ClientError.UNKNOWN_MEMBER_ID,
    ClientError.ILLEGAL_GENERATION,
    ClientError.REBALANCE_IN_PROGRESS,
    ClientError.NON_EMPTY_GROUP,
}
_PAUSE_MS = 200
_ABSENT_MS = 2_000
"""How long a topic may be unknown to a broker that was just made."""
_RETENTION = "offsets.retention.minutes"
_RETENTION_WITHIN_MS = 5_000

logger = event_log(__name__)


class GroupMirror:
    """Writes and reads the offsets of one group, without ever joining it.

    A group that another consumer is an active member of refuses the write. Picklable;
    for one thread at a time. ``settings`` are from ``client_settings(…,
    purpose="admin")``; ``timeout_ms`` is the longest time one call may take.
    """

    def __init__(
        self, settings: Mapping[str, str], group: str, *, timeout_ms: int = 30_000
    ) -> None:
        self._settings = settings
        self._admin = AdminConnection(settings)
        self._group = group
        self._timeout_ms = timeout_ms
        self._absent: frozenset[TopicPartition] = frozenset()

    def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the next offset of each partition, all in one request.

        Those of a topic that does not exist any more are left out: brokers keep none.

        Raises:
            BrokerUnavailableError: No broker answered in time; unknown whether it
                arrived. Doing it again is harmless.
            AuthenticationError: Credentials, permission (READ of the group) or TLS.
            GroupOccupiedError: It has members now.
            KafkaError: The group refused it; names the partitions.
        """
        self.store_positions(
            [
                ClientPartition(topic, partition, offset)
                for (topic, partition), offset in offsets.items()
            ]
        )

    def store_positions(
        self, positions: list[ClientPartition]
    ) -> frozenset[TopicPartition]:
        """As ``store``, with metadata; returns the partitions that do not exist."""
        if not positions:
            return frozenset()
        try:
            answer, absent = self._taken(positions)
        except BrokerUnavailableError:
            self._admin.close()  # an old client may not find the brokers again
            raise
        bad = [tp for tp in _refused(answer) if _partition(tp) not in absent]
        if bad:
            detail = ", ".join(
                f"{tp.topic}-{tp.partition}: {tp.error.str()}" for tp in bad[:3]
            )
            text = (
                f"group '{self._group}' did not take the offsets of {len(bad)} of"
                f" {len(positions)} partitions: {detail}."
            )
            if is_refused(bad[0].error):
                what = f"READ on group '{self._group}' and its topics"
                raise self._admin.failed(bad[0].error, what)
            if all(tp.error.code() in _OCCUPIED for tp in bad):
                raise GroupOccupiedError(
                    f"{text} A consumer is a member of the group: nothing can be"
                    " written from outside until it leaves. Look at offsets with tools"
                    " that do not join, or give the consumer another group.",
                    group=self._group,
                )
            raise KafkaError(text, group=self._group)
        return absent

    def _taken(
        self, positions: list[ClientPartition]
    ) -> tuple[Any, frozenset[TopicPartition]]:
        """The answer of the brokers, and the partitions that do not exist for good."""
        deadline = Deadline(min(_ABSENT_MS, self._timeout_ms))
        while True:
            answer = self._admin.renewed(lambda: self._answer(positions))
            refused = _refused(answer)
            absent = frozenset(_partition(tp) for tp in refused if is_absent(tp.error))
            new = absent - self._absent
            if not new or not deadline.pause(_PAUSE_MS):
                break
        if new:
            names = ", ".join(sorted({partition.topic for partition in new}))
            logger.warning(
                "group '%s' cannot store offsets of %s: it does not exist",
                self._group,
                names,
            )
        asked = {_partition(position) for position in positions}
        self._absent = (self._absent - asked) | absent
        return answer, absent

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's next offsets; partitions without one are left out.

        Raises: as ``read_group``.
        """
        return {
            TopicPartition(found.topic, found.partition): found.offset
            for found in self.load_positions(partitions)
        }

    def load_positions(
        self, partitions: Iterable[TopicPartition]
    ) -> list[ClientPartition]:
        """As ``load``, with the offsets' metadata."""
        asked = [ClientPartition(*partition) for partition in partitions]
        if not asked:
            return []
        return read_group(self._settings, self._group, asked, self._timeout_ms)

    def retention_ms(self) -> int | None:
        """How long brokers store an offset; None if they do not report it.

        Needs the permission DESCRIBE_CONFIGS of the cluster.
        """
        deadline = Deadline(min(self._timeout_ms, _RETENTION_WITHIN_MS))
        try:
            brokers = self._admin.metadata(deadline).brokers
            broker = ConfigResource(ConfigResource.Type.BROKER, str(min(brokers)))
            answer = self._admin.settings_of(broker, deadline)
            if isinstance(answer, ClientError):
                raise self._admin.failed(answer, _RETENTION)
            return int(answer[_RETENTION].value) * 60_000
        except (KafkaTxError, LookupError, TypeError, ValueError) as error:
            logger.info("the brokers do not report %s: %s", _RETENTION, error)
            return None

    def close(self) -> None:
        """Release the connections. Calling it twice is harmless."""
        self._admin.close()

    def _answer(self, positions: list[ClientPartition]) -> Any:  # noqa: ANN401 - client's
        """Send the offsets until the group's coordinator is ready to answer."""
        deadline = Deadline(self._timeout_ms)
        while True:
            (future,) = self._admin.client.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self._group, positions)],
                request_timeout=deadline.rest_s(),
            ).values()
            answer = self._admin.wait(future, deadline)
            errors = _errors(answer)
            is_early = bool(errors) and all(e.code() in _SOON for e in errors)
            if isinstance(answer, ClientError) and is_unreachable(answer):
                raise self._admin.unreachable(f"group '{self._group}'", deadline)
            if not is_early and isinstance(answer, ClientError):
                raise self._admin.failed(answer, f"group '{self._group}'")
            if not is_early:
                return answer
            if not deadline.pause(_PAUSE_MS):
                raise self._admin.unreachable(f"group '{self._group}'", deadline)


def _partition(at: ClientPartition) -> TopicPartition:
    return TopicPartition(at.topic, at.partition)


def _refused(answer: Any) -> list[Any]:  # noqa: ANN401 - the client's partitions
    return [tp for tp in answer.topic_partitions if tp.error is not None]


def _errors(answer: Any) -> list[ClientError]:  # noqa: ANN401 - the client's
    if isinstance(answer, ClientError):
        return [answer]
    return [tp.error for tp in _refused(answer)]


_PAUSES = BackOff(initial_delay_ms=500, multiplier=2, max_delay_ms=10_000)
LAST_WITHIN_S = 5.0
"""How long the end waits for the last offsets to be sent."""

_Offsets = Mapping[TopicPartition, int]


class MirrorThread:
    """Copies committed offsets into a group, on a thread of its own; the newest win.

    Offsets that cannot be sent are sent again, unless newer offsets came, on new
    connections and with growing pauses. The first offsets start the thread. Only this
    thread uses ``mirror``, and calls ``on_failure`` for every failed try.
    """

    def __init__(
        self, mirror: GroupMirror, on_failure: Callable[[], None] = lambda: None
    ) -> None:
        self._mirror = mirror
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._next: _Offsets | None = None
        self._is_sending = False
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def __call__(self, offsets: _Offsets) -> None:
        """Send them soon. Returns at once, never raises."""
        with self._changed:
            if self._is_closing:
                return
            self._next = dict(offsets)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=same_events(self._run), name="kafka_tx-mirror", daemon=True
                )
                self._thread.start()
                atexit.register(self.close)

    def flush(self, timeout_s: float = LAST_WITHIN_S) -> bool:
        """Wait for at most this time until all is sent; whether it is.

        For the end of a bounded run, after which Spark ends the process.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._is_sending and self._next is None, timeout_s
            )

    def close(self, timeout_s: float = LAST_WITHIN_S) -> None:
        """Send the last offsets, for at most this time. A second call is harmless."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)
            atexit.unregister(self.close)

    def _run(self) -> None:
        failures = 0
        while (offsets := self._taken()) is not None:
            is_sent = self._sent(offsets)
            with self._changed:
                self._is_sending = False
                if not is_sent and self._next is None:
                    self._next = offsets
                self._changed.notify_all()
                if is_sent:
                    failures = 0
                    continue
                if self._is_closing:
                    break
                failures += 1
                pause_s = _PAUSES.delay_ms(failures) / 1000
                self._changed.wait_for(lambda: self._is_closing, pause_s)
        self._mirror.close()

    def _taken(self) -> _Offsets | None:
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None or self._is_closing)
            offsets, self._next = self._next, None
            self._is_sending = offsets is not None
            return offsets

    def _sent(self, offsets: _Offsets) -> bool:
        try:
            self._mirror.store(offsets)
        except KafkaTxError as error:
            logger.warning("group mirror failed: %s", error)
            self._on_failure()
            return False
        return True
