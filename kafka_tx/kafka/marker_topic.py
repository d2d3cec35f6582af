"""The marker topic as a log: created, checked, and read between two offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.cimpl import NewTopic

from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ConfigError,
    DamagedRecordsError,
    FetchError,
    OffsetOutOfRangeError,
)
from kafka_tx.kafka.admin import AdminConnection, Deadline, Settings, replicas_of
from kafka_tx.kafka.clients import addresses
from kafka_tx.kafka.cluster import KafkaClusterView
from kafka_tx.kafka.errors import is_refused
from kafka_tx.kafka.reader import KafkaRangeReader
from kafka_tx.logs import event_log
from kafka_tx.model import LogBounds, OffsetRange, TopicPartition, Topics
from kafka_tx.native.reader import chosen
from kafka_tx.protocols import RangeReader

logger = event_log(__name__)

COMMITTED, ALL = "read_committed", "read_uncommitted"
_PARTITION = 0
"""The only partition in use: records of one partition are ordered."""
_POLICY = "cleanup.policy"
_IN_SYNC = "min.insync.replicas"
_REPLICAS = "default.replication.factor"
_TOPIC = {
    _POLICY: "compact",
    "segment.ms": "3600000",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
}
_TIMEOUT_MS = 30_000
_ASK_MS = 5_000
_OFFSETS_PER_MS = 50
"""A fifth of the measured speed of reading ends of transactions."""
_PAUSE_MS = 50
_unchecked: set[str] = set()  # topics whose policy is unknown


class Kept(NamedTuple):
    """A record of the topic."""

    offset: int
    key: bytes
    value: bytes | None


class MarkerTopic:
    """Partition 0 of the topic (driver and executor); for one thread.

    ``settings`` are from ``client_settings(…, purpose="consumer")``. If it is created,
    it is as safe as ``model``, the topic whose markers it keeps.
    """

    def __init__(self, name: str, settings: Mapping[str, str], model: str) -> None:
        self.name = name
        self._model = model
        self.addresses = addresses(settings)
        self._settings = settings
        self._checks = settings.get("check.crcs") != "false"

    def bounds(self) -> tuple[LogBounds, int]:
        """The whole log, and where its settled part ended a moment later.

        Creates the topic if it is absent. Raises: as ``MarkerLog.recall``.
        """
        with closing(self._view(ALL)) as view:
            if not self._exists(view):
                self._make()
            log = self._ask(view)
        return log, self.stable_end()

    def exists(self) -> bool:
        """Whether the topic is there. Raises: as ``MarkerLog.recall``."""
        with closing(self._view(ALL)) as view:
            return self._exists(view)

    def stable_end(self) -> int:
        """The offset of the oldest open transaction; the log's end if none is open."""
        with closing(self._view(COMMITTED)) as view:
            return self._ask(view).end

    def check_policy(self) -> None:
        """Raise ConfigError if the topic expires records; warn if that is unknown."""
        policy = self.policy()
        if policy == "compact":
            return
        if policy is not None:
            raise ConfigError(
                f"the topic '{self.name}', which keeps the markers of exactly-once"
                f" sinks, has cleanup.policy={policy}: it forgets markers, and a batch"
                " that comes again is then written twice. Legal: compact, and nothing"
                " else. Nothing was written. Set it: kafka-configs.sh --alter"
                f" --entity-type topics --entity-name {self.name} --add-config"
                f" cleanup.policy=compact --bootstrap-server {self.addresses}. What it"
                " has forgotten does not come back: if this sink has written before,"
                " compare its topic with the source first.",
                option="tx.markerTopic",
                value=self.name,
            )
        if self.name not in _unchecked:
            _unchecked.add(self.name)
            logger.warning(
                "the brokers do not tell the cleanup.policy of topic '%s', which keeps"
                " the markers of exactly-once sinks. Grant DESCRIBE_CONFIGS on it, or"
                " make sure that it is 'compact': with any other, a batch that is"
                " replayed late is written twice",
                self.name,
            )

    def read(
        self, bounds: LogBounds, level: str, starts: tuple[bytes, ...] = (b"",)
    ) -> Iterator[Kept]:
        """The records between two offsets, in order, whose keys start with ``starts``.

        ``level`` is ``ALL``, or ``COMMITTED`` if the end is settled.

        Raises:
            AuthenticationError, BrokerUnavailableError, KafkaError: It cannot be read.
            DamagedRecordsError: Records are damaged where brokers keep them.
        """
        start = bounds.log_start
        while start < bounds.end:
            wanted = OffsetRange(_partition(self.name), start, bounds.end)
            try:
                for batch in self._reader(level, wanted).read(wanted):
                    start = int(batch.column("offset")[-1].as_py()) + 1
                    yield from _kept(batch, starts)
            except DamagedRecordsError:
                if not self._checks or not self._is_mock():
                    raise
                self._checks = False
            except FetchError as error:
                raise self.silent(f"{error.message}.") from error
            except OffsetOutOfRangeError as error:
                start = self._moved_start(start, error)
            else:
                return

    def _reader(self, level: str, wanted: OffsetRange) -> RangeReader:
        checks = str(self._checks).lower()
        settings = {**self._settings, "isolation.level": level, "check.crcs": checks}
        # the client skips ends of transactions silently
        silent_ms = _TIMEOUT_MS + len(wanted) // _OFFSETS_PER_MS
        kind = chosen(settings) or KafkaRangeReader
        return kind(settings, timeout_ms=silent_ms)

    def _moved_start(self, start: int, error: OffsetOutOfRangeError) -> int:
        """The log's start, if records were deleted meanwhile; raises otherwise."""
        log_start = error.fields["log_start"]
        if isinstance(log_start, int) and log_start > start:
            return log_start
        raise self.silent(f"{error.message}.") from error

    def _is_mock(self) -> bool:
        """Whether it is librdkafka's mock cluster, whose transactions end without CRC.

        Its name begins so in every version.
        """
        admin = AdminConnection(self._settings)
        found = admin.metadata(Deadline(_ASK_MS)).cluster_id or ""
        return found.startswith("mockCluster")

    def silent(self, reason: str) -> BrokerUnavailableError:
        """The error for no answer in time."""
        return BrokerUnavailableError(
            f"the markers in topic '{self.name}' at {self.addresses}: {reason} Nothing"
            " was written; try again.",
            addresses=self.addresses,
        )

    # --- asking ---------------------------------------------------------------------

    def _exists(self, view: KafkaClusterView) -> bool:
        try:
            return self.name in view.topics(Topics((self.name,)))
        except AuthenticationError as error:
            if "authorization failed" not in error.message:
                raise
            raise self._forbidden() from error

    def _ask(self, view: KafkaClusterView) -> LogBounds:
        partition = _partition(self.name)
        deadline = Deadline(_TIMEOUT_MS)
        while True:
            found = view.bounds([partition])[partition]
            if isinstance(found, LogBounds):
                return found
            if not deadline.pause(_PAUSE_MS):
                raise self.silent(f"{found.reason}.")

    def _view(self, level: str) -> KafkaClusterView:
        settings = {**self._settings, "isolation.level": level}
        return KafkaClusterView(settings, retry_interval_ms=100)

    def policy(self) -> str | None:
        """The topic's ``cleanup.policy``; None if no broker reports it."""
        admin = AdminConnection(self._settings)
        deadline = Deadline(_ASK_MS)
        metadata = admin.metadata(deadline)
        if metadata.controller_id not in metadata.brokers:  # it would be asked
            return None
        return _setting(admin.settings_of([self.name], deadline)[self.name], _POLICY)

    # --- making it ------------------------------------------------------------------

    def _make(self) -> None:
        admin = AdminConnection(self._settings)
        deadline = Deadline(_TIMEOUT_MS)
        replicas, in_sync = self._safety(admin, deadline.within(_ASK_MS))
        config = {**_TOPIC, **in_sync}
        topic = NewTopic(self.name, 1, replicas, config=config)
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
        raise admin.failed(answer, f"making topic '{self.name}'")

    def _safety(
        self, admin: AdminConnection, deadline: Deadline
    ) -> tuple[int, dict[str, str]]:
        """How many replicas, and how many must be in sync; -1 is the brokers' default.

        Never fewer than by default. Where brokers do not tell it, it may be three.
        """
        metadata = admin.metadata(deadline, self._model)
        known = min(replicas_of(metadata, self._model), len(metadata.brokers))
        if known < 2 or metadata.controller_id not in metadata.brokers:
            return -1, {}
        broker = str(metadata.controller_id)
        default = admin.settings_of([broker], deadline, of_brokers=True)[broker]
        usual = min(3, len(metadata.brokers))
        replicas = max(known, int(_setting(default, _REPLICAS) or usual))
        answers = admin.settings_of([self._model], deadline)
        in_sync = _setting(answers[self._model], _IN_SYNC) or "0"
        if not int(_setting(default, _IN_SYNC) or 0) < int(in_sync) <= replicas:
            return replicas, {}
        return replicas, {_IN_SYNC: in_sync}

    def _forbidden(self) -> AuthenticationError:
        return AuthenticationError(
            f"the topic '{self.name}', which keeps the markers of exactly-once sinks,"
            " is absent or hidden, and this user may not CREATE it. Grant READ and"
            f" WRITE on topic '{self.name}' where it is there; else grant CREATE on"
            f" it, or make it: kafka-topics.sh --create --topic {self.name}"
            " --partitions 1 --config cleanup.policy=compact --bootstrap-server"
            f" {self.addresses}",
            addresses=self.addresses,
        )


def _setting(answer: Settings | ClientError, name: str) -> str | None:
    return None if isinstance(answer, ClientError) else answer.get(name)


def _partition(topic: str) -> TopicPartition:
    return TopicPartition(topic, _PARTITION)


def _kept(batch: pa.RecordBatch, starts: tuple[bytes, ...]) -> Iterator[Kept]:
    """The records whose keys start so; others never become objects of Python."""
    if b"" not in starts:
        keys = batch.column("key")
        wanted = [pc.starts_with(keys, pattern=start) for start in starts]
        batch = batch.filter(reduce(pc.or_, wanted))
    columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
    for offset, key, value in zip(*columns, strict=True):
        yield Kept(offset, key or b"", value)
