"""Records to write as Arrow columns, as both kinds of producers take them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from kafka_tx.errors import ConfigError
from kafka_tx.kafka.out_record import OutRecord, checked_topic, no_header, no_topic
from kafka_tx.native import writer

_BYTES = {pa.binary(), pa.string(), pa.large_binary(), pa.large_string()}
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class OutBatch:
    """Records of some topics, in the order in which they are written.

    Attributes:
        topics: Names; each has records here, or there is only one. None: no records.
        columns: ``value`` and maybe ``key``, of text or bytes; ``topic``, the index of
            a name (int32), if there are several; ``partition`` (int32) and
            ``timestamp`` (int64, milliseconds), of which Kafka chooses the null ones;
            ``headers``, a list of structs of ``key`` and ``value``.
        compared: Numbers below 2³² by which a replay is compared, if the records
            depend on more than the rows that they are made of; None: they do not.
    """

    topics: tuple[str, ...]
    columns: pa.RecordBatch
    compared: pa.Array | None = None

    @classmethod
    def of(
        cls,
        topic: str | pa.Array,
        value: pa.Array,
        key: pa.Array | None = None,
        *,
        headers: pa.Array | None = None,
        partition: pa.Array | None = None,
        timestamp: pa.Array | None = None,
        zone: str | None = None,
        compared: pa.Array | None = None,
    ) -> Self:
        """Records from columns of any type that can be written.

        Args:
            topic: A name for all rows, or one for each.
            value: Text or bytes.
            key: Text or bytes.
            headers: Lists of structs of ``key`` and ``value``.
            partition: Whole numbers; null: chosen by the key.
            timestamp: Of the type timestamp; null: the time of writing.
            zone: Of times that have none.
            compared: As of the class.

        Raises:
            ConfigError: A topic has a NUL character or is not UTF-8; a partition is
                below 0; a header has no key, or one that is not UTF-8; a time is 0, or
                is without a zone, and ``zone`` is none that Python knows.
            TypeError: A key or value is neither text nor bytes.
        """
        names, columns = cls._topics_of(topic)
        columns["value"] = _bytes_of("value", value)
        if key is not None:
            columns["key"] = _bytes_of("key", key)
        if headers is not None and headers.null_count < len(headers):
            columns["headers"] = _checked_headers(headers)
        if partition is not None and partition.null_count < len(partition):
            columns["partition"] = _checked_partitions(partition)
        if timestamp is not None:
            columns["timestamp"] = _milliseconds(timestamp, zone)
        return cls(names, pa.record_batch(columns), compared)

    @staticmethod
    def _topics_of(topic: str | pa.Array) -> tuple[tuple[str, ...], dict[str, Any]]:
        if isinstance(topic, str):
            return (checked_topic(topic),), {}
        if pa.types.is_dictionary(topic.type):
            topic = topic.dictionary_decode()
        found = topic.dictionary_encode()
        try:
            names = tuple(found.dictionary.to_pylist())
        except UnicodeDecodeError as error:
            raise no_topic(error.object) from None
        for name in names:
            checked_topic(name)
        return names, {} if len(names) == 1 else {"topic": found.indices}

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def rest(self, start: int) -> OutBatch:
        """The records from row ``start`` on."""
        return OutBatch(self.topics, self.columns.slice(start))

    def only(self, topics: Collection[str]) -> OutBatch:
        """The records of some of the topics."""
        if len(topics) == len(self.topics):
            return self
        kept = [n for n, name in enumerate(self.topics) if name in topics]
        wanted = pa.array(kept, pa.int32())
        index = pc.index_in(self.columns["topic"], value_set=wanted)
        place = self.columns.schema.get_field_index("topic")
        columns = self.columns.set_column(place, "topic", index)
        names = tuple(self.topics[n] for n in kept)
        return OutBatch(names, columns.filter(index.is_valid()))

    def counted(self) -> tuple[int, int]:
        """How many, and the sum of their check sums."""
        if not len(self):  # it may have no topic
            return 0, 0
        total = writer.check_sums(self.columns, self.topics)
        if total is None:
            total = sum(record.counted()[1] for record in self.records())
        return len(self), total

    def sum_compared(self) -> int:
        """The sum of ``compared``; 0: there are none."""
        if self.compared is None:
            return 0
        total: int = pc.sum(self.compared, min_count=0).as_py()
        return total

    def record(self, row: int) -> OutRecord:
        """One of the records."""
        (found,) = OutBatch(self.topics, self.columns.slice(row, 1)).records()
        return found

    def records(self) -> Iterator[OutRecord]:
        """The same records, one by one."""
        nothing: list[Any] = [None] * len(self)
        columns = {
            name: _as_written(column).to_pylist()
            for name, column in zip(
                self.columns.schema.names, self.columns.columns, strict=True
            )
        }
        topics = columns.get("topic")
        rows = zip(
            [0] * len(self) if topics is None else topics,
            columns.get("key", nothing),
            columns["value"],
            columns.get("headers", nothing),
            columns.get("partition", nothing),
            columns.get("timestamp", nothing),
            strict=True,
        )
        for to, key, value, headers, partition, timestamp_ms in rows:
            yield OutRecord(
                self.topics[to],
                as_bytes("key", key),
                as_bytes("value", value),
                [(one["key"], one["value"]) for one in headers] if headers else None,
                partition,
                timestamp_ms,
            )


def _as_written(column: pa.Array) -> pa.Array:
    """Text as its bytes, which need not be UTF-8."""
    is_large = pa.types.is_large_string(column.type)
    is_text = is_large or pa.types.is_string(column.type)
    kind = pa.large_binary() if is_large else pa.binary()
    return column.cast(kind) if is_text else column


def _bytes_of(what: str, column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type in _BYTES:
        return column
    encoded = [as_bytes(what, value) for value in column.to_pylist()]
    return pa.array(encoded, pa.large_binary())


def as_bytes(what: str, value: object) -> bytes | None:
    """A key or value as it is written, text as UTF-8; raises TypeError for others."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    message = f"the {what} of a message is {value!r}; legal: text, bytes or None"
    raise TypeError(message)


def _checked_headers(column: pa.Array) -> pa.Array:
    column = column.cast(_HEADERS)
    entries = column.flatten()
    if entries.null_count or entries.field("key").null_count:
        found = (one for one in entries.to_pylist() if not one or one["key"] is None)
        raise ConfigError.illegal(
            "headers", next(found), "headers with a key", "Kafka has none without one."
        )
    try:
        entries.field("key").validate(full=True)
    except pa.ArrowInvalid:
        names = entries.field("key").cast(pa.binary()).to_pylist()
        odd = (name for name in names if name.decode(errors="ignore").encode() != name)
        raise no_header(next(odd)) from None
    return column


def _checked_partitions(column: pa.Array) -> pa.Array:
    lowest = pc.min(column).as_py()
    if lowest < 0:
        raise ConfigError.illegal(
            "partition", lowest, "0 and above, or null: chosen by the key"
        )
    return column.cast(pa.int32())


def _milliseconds(column: pa.Array, zone: str | None) -> pa.Array:
    if column.type.tz is None:
        times = _zoned(column, zone)
    else:
        microseconds = column.cast(pa.timestamp("us", "UTC"), safe=False)
        times = pc.floor_temporal(microseconds, unit="millisecond")
        times = times.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    checked_ms(0 if pc.any(pc.equal(times, 0)).as_py() else None)
    return times


def checked_ms(time_ms: int | None) -> int | None:
    """The time, if it can be written; raises ConfigError for 0."""
    if time_ms == 0:
        raise ConfigError.illegal(
            "timestamp",
            "1970-01-01 00:00:00.000 UTC",
            "any other time, or null for the time of writing",
            "Kafka's client takes this one for none and would write the present time."
            " Leave such rows out, or give them another time, such as one millisecond"
            " later, and the true one in a header.",
        )
    return time_ms


def _zoned(column: pa.Array, zone: str | None) -> pa.Array:
    """Milliseconds of times without a zone, as Spark's cast to ``timestamp`` has them.

    A local time that comes twice is the earlier one; one that a change of the clock
    leaves out is as far behind the change as it says.
    """
    try:
        place = _place(zone or "")
        local = [
            None if us is None else _LOCAL_EPOCH + timedelta(microseconds=us)
            for us in column.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
        ]
    except (ValueError, OverflowError, ZoneInfoNotFoundError):
        raise ConfigError(
            "column 'timestamp' is timestamp_ntz: a time without a zone, and this task"
            f" knows {'no zone' if zone is None else f'no zone {zone!r}'} of the"
            " session, or a time is outside of the years 1 to 9999. Cast it in the"
            " query, where Spark knows the zone: timestamp::timestamp, or"
            " df.withColumn('timestamp', df.timestamp.cast('timestamp'))",
            option="timestamp",
            value=zone,
        ) from None
    times = (
        None
        if one is None
        else (one.replace(tzinfo=place) - _EPOCH) // timedelta(milliseconds=1)
        for one in local
    )
    return pa.array(times, pa.int64())


def _place(zone: str) -> tzinfo:
    """A zone as Spark writes it: a region, or an offset such as ``+8`` or ``UTC+8``."""
    found = _OFFSET.fullmatch(zone)
    if found is None:
        return ZoneInfo(zone)
    sign, hours, minutes, seconds = found.groups("0")
    away = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds))
    return timezone(-away if sign == "-" else away)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of times without a zone
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?|Z")
