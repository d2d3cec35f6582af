"""Exact ranges of a partition as Arrow record batches, in native code."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from kafka_tx.config import POLL_TIMEOUT_MS
from kafka_tx.errors import (
    AuthenticationError,
    ConfigError,
    KafkaTxError,
    UnknownTopicError,
)
from kafka_tx.model import (
    AtOffset,
    Broker,
    Earliest,
    Latest,
    LogBounds,
    OffsetRange,
    Position,
    Retention,
    Subscription,
    TopicDescription,
    TopicPartition,
    Topics,
    Unavailable,
)
from kafka_tx.native.idle_clients import SharedClient, idle
from kafka_tx.native.library import load, refusal, text
from kafka_tx.planned_topic import (
    broken_records,
    damaged,
    known_id,
    not_in_log,
    of_planned_topic,
    replaced,
    unread,
)
from kafka_tx.protocols import ClusterView, Survey
from kafka_tx.record_schema import arrow_schema

if TYPE_CHECKING:
    from kafka_tx.native import _reader


_GRACE_MS, _LEAST_GRACE_MS = 5_000, 100
"""How long brokers may deny a partition or its end: a new leader needs time."""

_LARGEST_BATCH_BYTES = 1 << 30
_FIXED = {
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
}
_GROUP = re.compile(r"group\..*|session\.timeout\.ms|heartbeat\.interval\.ms")


class NativeRangeReader:
    """Reads ranges through librdkafka, without Python in between.

    A client is made for each range; those of small ranges are kept for the next one in
    this process (``idle_clients``). Picklable: it holds none itself. Use it if
    ``refusal(settings)`` is None. Memory: librdkafka's prefetched records
    (``queued.max.messages.kbytes``), the batch that is being filled and those that the
    caller still holds. A record without headers has null in their column; header keys
    that are not UTF-8 are repaired as Java does.

    Args:
        settings: Of a librdkafka consumer. A group is never joined or looked up, so its
            settings have no effect; nor is an offset ever reset or committed.
        include_headers: Whether the batches have the column ``headers``.
        timeout_ms: The longest time without progress. Between two batches the clock
            stands still, so a slow user of the iterator is no time-out.
        batch_bytes: The largest sum of the columns' bytes in a batch, without the
            headers; a larger record is a batch of its own. From 1 to 1 GiB.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        include_headers: bool = False,
        timeout_ms: int = POLL_TIMEOUT_MS,
        batch_bytes: int = 4 << 20,
    ) -> None:
        if not 1 <= batch_bytes <= _LARGEST_BATCH_BYTES:
            raise ConfigError.illegal(
                "batch_bytes", batch_bytes, f"1 to {_LARGEST_BATCH_BYTES}"
            )
        self._settings = settings
        self._include_headers = include_headers
        self._timeout_ms = timeout_ms
        self._batch_bytes = batch_bytes

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """As ``RangeReader.read``. An empty range asks no broker.

        Raises also:
            UnknownTopicError: The topic or partition does not exist.
            FetchError: No progress within the time-out, or a record that cannot be
                decoded; or no broker reports which topic it was.
            ConfigError: librdkafka refuses a setting, or only Python can use it.
        """
        if not len(wanted):
            return
        extension = self._extension()
        left, waited_ms = wanted, 0
        try:
            if _is_small(wanted, self._settings):
                left, waited_ms = yield from self._read_small(extension, wanted)
            if len(left):
                settings = self._client_settings(is_small=False)
                client = extension.Client(settings=settings)
                grace_ms = max(_LEAST_GRACE_MS, _GRACE_MS - waited_ms)
                yield from self._read_with(
                    *(extension, client, left, self._timeout_ms), grace_ms
                )
        except extension.ReadError as error:
            raise translated(error, wanted, self._settings, self._timeout_ms) from None

    def client(self) -> _reader.Client:
        """A client for log bounds, and then for a small range; raises ConfigError."""
        extension = self._extension()
        settings = self._client_settings(is_small=True)
        shared = idle.take(settings)
        if shared is not None:
            return shared.client
        try:
            made: _reader.Client = extension.Client(settings=settings)
        except extension.ReadError as error:
            nothing = OffsetRange(TopicPartition("", 0), 0, 0)
            raise translated(error, nothing, self._settings, self._timeout_ms) from None
        return made

    def keep(self, client: _reader.Client) -> None:
        """Keep a client of ``client()`` for the next small range."""
        idle.keep(self._client_settings(is_small=True), SharedClient(client))

    def _extension(self) -> ModuleType:
        extension, _ = load()
        why_not = refusal(self._settings)
        if extension is None or why_not is not None:
            raise ConfigError(f"the native reader cannot be used: {why_not}")
        return extension

    def _client_settings(self, *, is_small: bool) -> tuple[str, ...]:
        given = {k: text(v) for k, v in self._settings.items() if not _GROUP.match(k)}
        for name, value in given.items():
            if "\0" in name + value:
                raise ConfigError(f"Kafka setting '{name}' has a NUL character")
        chosen = (_SMALL_RANGES if is_small else {}) | given | _FIXED
        if is_small and (_waits_ms(given) or 0) > _SMALL_WAIT_MS:
            chosen["fetch.wait.max.ms"] = str(_SMALL_WAIT_MS)
        return tuple(chain.from_iterable(chosen.items()))

    def _read_small(
        self, extension: ModuleType, wanted: OffsetRange
    ) -> Generator[pa.RecordBatch, None, tuple[OffsetRange, int]]:
        """Read with a client that is kept.

        Returns:
            What another one must read, and for how many ms nothing of it came.
        """
        settings = self._client_settings(is_small=True)
        shared = idle.take(settings)
        if shared is None:
            shared = SharedClient(extension.Client(settings=settings))
        timeout_ms = min(self._timeout_ms, _SMALL_TIMEOUT_MS)
        since_s = time.monotonic()
        try:
            for batch in self._read_with(
                *(extension, shared.client, wanted, timeout_ms), _GRACE_MS
            ):
                yield batch
                since_s = time.monotonic()
        except extension.ReadError as error:
            kind, _, _, position, *_ = error.args
            if kind not in _MAY_PASS:
                raise
            waited_ms = int((time.monotonic() - since_s) * 1_000)
            return wanted.between(position, wanted.end), waited_ms
        idle.keep(settings, shared)
        return wanted.between(wanted.end, wanted.end), 0

    def _read_with(
        self,
        extension: ModuleType,
        client: _reader.Client,
        wanted: OffsetRange,
        timeout_ms: int,
        grace_ms: int,
    ) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._include_headers)
        topic, partition = wanted.topic_partition
        batches = extension.Range(
            client=client,
            topic=topic,
            partition=partition,
            start=wanted.start,
            end=wanted.end,
            leader_epoch=-1 if wanted.leader_epoch is None else wanted.leader_epoch,
            has_headers=self._include_headers,
            batch_bytes=self._batch_bytes,
            timeout_ms=timeout_ms,
            grace_ms=grace_ms,
        )
        found = iter(batches.next, None)
        exported = (pa.record_batch(_Exported(schema, array)) for array in found)
        ask = partial(client.topic_id, topic)
        try:
            for batch in of_planned_topic(exported, wanted, ask, self._timeout_ms):
                _learn(topic, batch)
                yield batch
        finally:
            batches.close()


@dataclass(frozen=True, slots=True)
class _Exported:
    """An array of the extension and its schema, as Arrow's PyCapsule interface asks."""

    schema: pa.Schema
    array: object

    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]:
        return self.schema.__arrow_c_schema__(), self.array


def chosen(settings: Mapping[str, str]) -> type[NativeRangeReader] | None:
    """The native reader where it can be used; None: that in Python.

    The environment variable ``KAFKA_TX_READER`` asks for ``python`` or ``native``.

    Raises:
        ConfigError: ``native`` was asked for and cannot be used; says why.
    """
    wish = os.environ.get("KAFKA_TX_READER", "")
    if wish not in ("", "python", "native"):
        raise ConfigError.illegal("KAFKA_TX_READER", wish, "python, native, or not set")
    if wish == "python":
        return None
    reason = refusal(settings)
    if reason is None:
        return NativeRangeReader
    if wish == "native":
        raise ConfigError(
            f"KAFKA_TX_READER is native, and it cannot be used: {reason}",
            option="KAFKA_TX_READER",
            value=wish,
        )
    return None


_FETCH_BYTES = 512 << 10
_UNKNOWN_RECORD_BYTES = 500
_TOPICS_AT_MOST = 1_000

_WAIT_AT_MOST_MS = 100

_SMALL_RANGES = {
    "fetch.message.max.bytes": str(_FETCH_BYTES),
    # Nothing is fetched while so many are queued. librdkafka counts what it queues
    # beside the records: the mark of a new start, and the end of the log.
    "queued.min.messages": "3",
}
_SMALL_WAIT_MS = 0
"""Longest wait of a broker at the end of a log, for small ranges: the next range and
other requests wait for the fetch. So a client that finds nothing there fetches without
a pause; after ``_SMALL_TIMEOUT_MS`` another one reads on."""

_SMALL_TIMEOUT_MS = 1_000
_MAY_PASS = ("stale", "timed out", "out of range", "unknown topic")
"""After these failures of such a client, another one with more time reads on."""

_record_bytes: dict[str, float] = {}
"""By topic: the average of the last batches in this process, newer ones weigh more."""


def _is_small(wanted: OffsetRange, settings: Mapping[str, str]) -> bool:
    """Whether one fetch will probably bring it, as far as its topic is known.

    Never if a fetch may wait for long: after the last record or two of a log one is in
    flight in spite of ``_SMALL_RANGES``.
    """
    topic = wanted.topic_partition.topic
    record_bytes = _record_bytes.get(topic, _UNKNOWN_RECORD_BYTES)
    waits_ms = _waits_ms(settings)
    is_quick = waits_ms is not None and waits_ms <= _WAIT_AT_MOST_MS
    return is_quick and len(wanted) * record_bytes <= _FETCH_BYTES


def _waits_ms(settings: Mapping[str, object]) -> int | None:
    """How long a broker may hold back a fetch; None: librdkafka refuses the value."""
    given = str(settings.get("fetch.wait.max.ms", "500"))
    return int(given) if given.isdecimal() else None


def _learn(topic: str, batch: pa.RecordBatch) -> None:
    if topic not in _record_bytes and len(_record_bytes) >= _TOPICS_AT_MOST:
        _record_bytes.clear()
    found = batch.nbytes / batch.num_rows
    _record_bytes[topic] = (_record_bytes.get(topic, found) + found) / 2


_SECRET = re.compile(
    r"password|passphrase|secret|key\.pem|oauthbearer\.(config|extensions)", re.I
)


def translated(
    failure: Exception,
    wanted: OffsetRange,
    settings: Mapping[str, str],
    timeout_ms: int,
) -> KafkaTxError:
    """The error of the tree for a ``ReadError`` of the extension."""
    kind, _, name, position, log_start, log_end, text = failure.args
    where = settings.get("bootstrap.servers") or settings.get("metadata.broker.list")
    where, topic = str(where), wanted.topic_partition.topic
    detail = f"{text} ({name})" if name else text
    match kind:
        case "settings":
            return ConfigError(
                f"the Kafka client cannot be made: {_without_secrets(text, settings)}."
                f" Brokers: {where}.",
                option="kafka",
            )
        case "out of range":
            return not_in_log(wanted, position, (log_start, log_end), where, detail)
        case "replaced":
            return replaced(wanted, log_end)
        case "denied":
            return AuthenticationError(
                f"the brokers at {where} refused this client reading {wanted}"
                f"{_needing(name, topic)}: {detail}. Check"
                " 'kafka.security.protocol', 'kafka.sasl.*' and"
                " 'kafka.ssl.*', and the permissions (ACLs) of the user.",
                addresses=where,
            )
        case "unknown topic":
            return UnknownTopicError(
                f"reading {wanted}: {detail}. It does not exist at {where}."
            )
        case _:
            last = f" Last report of the client: {detail}." if text else ""
            place = position, where, last
            is_silent = kind == "timed out" and name not in _CORRUPT
            what = _what(kind, name, settings)
            if is_silent:
                what = f"no progress for {timeout_ms / 1000:g} s"
            end = position + 1 if kind == "record" else None
            made = unread if is_silent else partial(damaged, next_offset=end)
            return made(wanted, what, *place)


_CORRUPT = ("INVALID_MSG", "_UNDERFLOW")
"""Reasons of silence: the broker's, and that records cannot be decoded."""


def _what(kind: str, name: str, settings: Mapping[str, str]) -> str:
    if kind == "record":
        return "a record cannot be put into columns"
    return broken_records(settings, is_packed=name == "_BAD_COMPRESSION")


def _needing(name: str, topic: str) -> str:
    is_right = name == "TOPIC_AUTHORIZATION_FAILED"
    return f", which needs READ on topic '{topic}'" if is_right else ""


def _without_secrets(text: str, settings: Mapping[str, str]) -> str:
    for name, value in settings.items():
        if value and _SECRET.search(name):
            text = text.replace(str(value), "***")
    return text


_ANSWER_MS = 1_500
"""After it, the other view asks, which gets the reason at once."""


class NativeClusterView:
    """A ``ClusterView`` for one task; ``thorough`` makes another one after a failure.

    The client of ``reader`` is used, and then kept for its next range.
    """

    def __init__(
        self, reader: NativeRangeReader, thorough: Callable[[], ClusterView]
    ) -> None:
        self._client = reader.client()
        self._reader = reader
        self._make = thorough
        self._thorough: ClusterView | None = None
        self._bounds: dict[TopicPartition, LogBounds] = {}

    def topics(self, wanted: Subscription) -> dict[str, TopicDescription]:
        """The topics that exist now; see ``protocols.ClusterView``."""
        if isinstance(wanted, Topics):
            found = {name: self._described(name) for name in wanted.names}
            described = {name: topic for name, topic in found.items() if topic}
            if len(described) == len(found):
                return described
        return self._other().topics(wanted)

    def _described(self, name: str) -> TopicDescription | None:
        leaders = self._client.leaders(name, _ANSWER_MS)
        if leaders is None:
            return None
        return TopicDescription(
            name,
            {
                partition: None if leader < 0 else Broker("", node_id=leader)
                for partition, leader in leaders.items()
            },
            known_id(self._client.topic_id(name, _ANSWER_MS)),
        )

    def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogBounds | Unavailable]:
        """Log starts and ends; each partition is asked once."""
        asked = list(partitions)
        for partition in asked:
            if partition not in self._bounds:
                found = self._client.bounds(*partition, _ANSWER_MS)
                if found is None:
                    return self._other().bounds(asked)
                self._bounds[partition] = LogBounds(*found)
        return {partition: self._bounds[partition] for partition in asked}

    def survey(
        self, wanted: Subscription, partitions: Collection[TopicPartition]
    ) -> Survey:
        """Topics and bounds; bounds come without ids."""
        return self.topics(wanted), self.bounds(partitions)

    def topic_ids(self, names: Iterable[str]) -> dict[str, str | None]:
        """Ids of topics by name; asked of the other view."""
        return self._other().topic_ids(names)

    def offsets(
        self, wanted: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Positions as next offsets; times are for the other view."""
        found: dict[TopicPartition, int | Unavailable | None] = {}
        for partition, position in wanted.items():
            if isinstance(position, AtOffset):
                found[partition] = position.offset
                continue
            if not isinstance(position, Earliest | Latest):
                return self._other().offsets(wanted)
            (bounds,) = self.bounds([partition]).values()
            if isinstance(bounds, Unavailable):
                return self._other().offsets(wanted)
            is_start = isinstance(position, Earliest)
            found[partition] = bounds.log_start if is_start else bounds.end
        return found

    def ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, int | None]]:
        """Where logs end, and under which leader; asked of the other view."""
        return self._other().ends(partitions)

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Where leader epochs ended; tasks have no positions of former leaders."""
        return self._other().epoch_ends(wanted)

    def retentions(self, names: Iterable[str]) -> Mapping[str, Retention]:
        """What limits the logs of topics; asked of the other view."""
        return self._other().retentions(names)

    def _other(self) -> ClusterView:
        if self._thorough is None:
            self._thorough = self._make()
        return self._thorough

    def close(self) -> None:
        """Leave the client to the reader."""
        self._reader.keep(self._client)
        if self._thorough is not None:
            self._thorough.close()
