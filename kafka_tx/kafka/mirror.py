"""Committed offsets as those of a Kafka consumer group, for tools that show groups."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import GroupOccupiedError, KafkaError, KafkaTxError
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.errors import is_absent, is_refused
from kafka_tx.kafka.group_commits import (
    OCCUPIED,
    GroupWriter,
    as_commit,
    as_position,
    read_group,
)
from kafka_tx.kafka.group_kinds import advice, check_kind, foreign_kind
from kafka_tx.logs import event_log, same_events
from kafka_tx.model import LogPosition, Subscription, TopicPartition
from kafka_tx.offsets.discovery import subscribed
from kafka_tx.offsets.retry import BackOff

_PAUSE_MS = 200
_ABSENT_MS = 2_000
"""How long a topic may be unknown to a broker that was just made."""
_REQUEST_BYTES = 500_000
"""A broker keeps a request as one batch of its own topic: at most 1 MB by default."""
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
        self._writer = GroupWriter(settings, group)
        self._group = group
        self._timeout_ms = timeout_ms
        self._absent: frozenset[TopicPartition] = frozenset()

    def store(self, positions: Mapping[TopicPartition, LogPosition]) -> None:
        """Set the next offset of each partition and its leader epoch.

        Up to some thousand partitions are one request, which a broker takes whole or
        not. Those of a topic that does not exist any more are left out: brokers keep
        none.

        Raises:
            BrokerUnavailableError: No broker answered in time; unknown whether it
                arrived. Doing it again is harmless.
            AuthenticationError: Credentials, permission (READ of the group) or TLS.
            GroupOccupiedError: It has members now.
            KafkaError: The group refused it; names the partitions.
        """
        self.store_positions([as_commit(p, at) for p, at in positions.items()])

    def store_positions(
        self, positions: list[ClientPartition]
    ) -> frozenset[TopicPartition]:
        """As ``store``, with metadata; returns the partitions that do not exist."""
        refused: dict[TopicPartition, ClientError] = {}
        absent: frozenset[TopicPartition] = frozenset()
        for some in self._requests(positions):
            no, gone = self._refused(some)
            refused, absent = refused | no, absent | gone
        bad = {at: error for at, error in refused.items() if at not in absent}
        if bad:
            refusals = [f"{at.topic}-{at.partition}: {bad[at].str()}" for at in bad]
            detail = ", ".join(refusals[:3])
            text = (
                f"group '{self._group}' did not take the offsets of {len(bad)} of"
                f" {len(positions)} partitions: {detail}."
            )
            errors = list(bad.values())
            if is_refused(errors[0]):
                raise self._writer.failed(errors[0], self._writer.needs_rights())
            if all(e.code() == ClientError.GROUP_ID_NOT_FOUND for e in errors):
                # brokers make a group that is missing; so this one is there
                kind = foreign_kind(self._settings, self._group)
                what = kind or "of another kind than those of consumers"
                raise KafkaError(advice(self._group, what), group=self._group)
            if all(error.code() in OCCUPIED for error in errors):
                raise GroupOccupiedError(
                    f"{text} A consumer is a member of the group: nothing can be"
                    " written from outside until it leaves. Look at offsets with tools"
                    " that do not join, or give the consumer another group.",
                    group=self._group,
                )
            raise KafkaError(text, group=self._group)
        return absent

    def _requests(
        self, positions: list[ClientPartition]
    ) -> Iterator[list[ClientPartition]]:
        some: list[ClientPartition] = []
        size = 0
        for position in positions:
            names = len(self._group) + 2 * len(position.topic)
            bytes_ = 100 + names + len(position.metadata or "")
            if some and size + bytes_ > _REQUEST_BYTES:
                yield some
                some, size = [], 0
            some.append(position)
            size += bytes_
        if some:
            yield some

    def _refused(
        self, positions: list[ClientPartition]
    ) -> tuple[dict[TopicPartition, ClientError], frozenset[TopicPartition]]:
        """What the group refused, and the partitions that do not exist for good."""
        deadline = Deadline(min(_ABSENT_MS, self._timeout_ms))
        while True:
            refused = self._writer.renewed(
                lambda: self._writer.write(positions, Deadline(self._timeout_ms))
            )
            absent = frozenset(at for at in refused if is_absent(refused[at]))
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
        asked = {TopicPartition(at.topic, at.partition) for at in positions}
        self._absent = (self._absent - asked) | absent
        return refused, absent

    def check_kind(self, option: str) -> None:
        """Refuse a group that is none of consumers, before anything is written.

        ``option`` is what names the group. Brokers that do not answer refuse nothing.

        Raises:
            ConfigError: It is a share group, a group of Kafka Streams or another one.
        """
        check_kind(self._settings, self._group, option)

    def load(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogPosition]:
        """The group's next offsets; partitions without one are left out.

        Raises: as ``read_group``.
        """
        return {
            TopicPartition(found.topic, found.partition): as_position(found)
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
        admin = AdminConnection(self._settings)
        try:
            brokers = admin.metadata(deadline).brokers
            broker = str(min(brokers))
            answer = admin.settings_of([broker], deadline, of_brokers=True)[broker]
            if isinstance(answer, ClientError):
                raise admin.failed(answer, _RETENTION)
            return int(answer[_RETENTION] or "") * 60_000
        except (KafkaTxError, LookupError, TypeError, ValueError) as error:
            logger.info("the brokers do not report %s: %s", _RETENTION, error)
            return None
        finally:
            admin.close()

    def close(self) -> None:
        """Release the connections. Calling it twice is harmless."""
        self._writer.close()


_PAUSES = BackOff(initial_delay_ms=500, multiplier=2, max_delay_ms=10_000)
LAST_WITHIN_S = 5.0
"""How long the end waits for the last offsets to be sent."""

_REPEATED_AFTER_S = 5.0, 20.0
"""When the first offsets are sent again: an owner that was fenced during a try, or a
client that it gave up, may still send older ones so late."""
_RENEWED_AFTER_S = 3_600.0
"""When unchanged offsets are sent again: brokers expire them, also of idle topics."""

Positions = Mapping[TopicPartition, LogPosition]
Committed = Callable[[], Positions | None]
"""Reads the committed position anew; None: its owner has been fenced."""


class MirrorThread:
    """Copies the committed offsets of an id into a group, on a thread of its own.

    Before each try the thread reads from the store what to write, so that a late try
    sets nothing back, and it writes nothing for an owner that was fenced. Offsets that
    cannot be sent are sent again, with growing pauses. Offsets that do not change are
    sent again some seconds after the first time, and each hour. The first call starts
    the thread. Only this thread uses ``mirror``, and calls ``on_failure`` for every
    failed try. Positions of topics that ``wanted`` leaves out are not copied.
    """

    def __init__(
        self,
        mirror: GroupMirror,
        wanted: Subscription,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._mirror = mirror
        self._wanted = wanted
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._committed: Committed | None = None
        self._is_due = False
        self._first_sent_s: float | None = None
        self._repeat_at_s: float | None = None
        self._is_sending = False
        self._is_resting = False
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def __call__(self, committed: Committed) -> None:
        """Copy soon what ``committed`` reads then. Returns at once, never raises."""
        with self._changed:
            if self._is_closing:
                return
            self._committed, self._is_due, self._is_resting = committed, True, False
            self._changed.notify_all()
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
                lambda: not self._is_sending and not self._is_due, timeout_s
            )

    def rest(self) -> None:
        """The query has ended: one more try, then nothing until the next call."""
        with self._changed:
            self._is_resting = True
            self._changed.notify_all()

    def close(self, timeout_s: float = LAST_WITHIN_S) -> None:
        """Send the last offsets, for at most this time. A second call is harmless."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
            atexit.unregister(self.close)

    def _run(self) -> None:
        failures = 0
        while (committed := self._taken()) is not None:
            is_settled = self._sent(committed)
            failures = 0 if is_settled else failures + 1
            with self._changed:
                self._is_sending = False
                self._is_due |= not is_settled and not self._is_ending()
                self._changed.notify_all()
                if not is_settled and self._is_due:
                    pause_s = _PAUSES.delay_ms(failures) / 1000
                    self._changed.wait_for(self._is_ending, pause_s)
        self._mirror.close()

    def _is_ending(self) -> bool:
        return self._is_closing or self._is_resting

    def _taken(self) -> Committed | None:
        """What to send next; None at the end."""
        with self._changed:
            while not self._is_due and not self._is_closing:
                rest_s = None
                if self._repeat_at_s is not None and not self._is_resting:
                    rest_s = self._repeat_at_s - time.monotonic()
                self._is_due = rest_s is not None and rest_s <= 0
                if not self._is_due:
                    self._changed.wait(rest_s)
            taken = self._committed if self._is_due else None
            self._is_due, self._is_sending = False, taken is not None
            return taken

    def _sent(self, committed: Committed) -> bool:
        """Whether nothing is left to do; nothing is written for a fenced owner."""
        try:
            positions = committed()
            if positions is None:
                logger.info("a newer owner writes the group now")
                self._first_sent_s = self._repeat_at_s = None
            else:
                self._mirror.store(subscribed(self._wanted, positions))
                self._repeat_later()
        except KafkaTxError as error:
            logger.warning("group mirror failed: %s", error)
            self._on_failure()
            return False
        return True

    def _repeat_later(self) -> None:
        now_s = time.monotonic()
        if self._first_sent_s is None:
            self._first_sent_s = now_s
        again_s = (self._first_sent_s + after_s for after_s in _REPEATED_AFTER_S)
        later = (at_s for at_s in again_s if at_s > now_s)
        self._repeat_at_s = next(later, now_s + _RENEWED_AFTER_S)
