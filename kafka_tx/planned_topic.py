"""Checks that records come from the topic and the log of the plan; errors of reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from kafka_tx.errors import (
    DamagedRecordsError,
    FetchError,
    OffsetOutOfRangeError,
    OtherTopicError,
)
from kafka_tx.logs import event_log
from kafka_tx.model import OffsetRange, TopicPartition

_log = event_log(__name__)

_ANSWER_MS = 2_000
_NO_IDS = "A="
"""Brokers without topic ids report zeros."""


def of_planned_topic(
    batches: Iterator[pa.RecordBatch],
    wanted: OffsetRange,
    ask: Callable[[int], str | None],
    timeout_ms: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a range; fail if its topic was recreated since the plan.

    A range of one batch is checked once, after its last record and before the batch is
    given. Longer ranges are checked before the first batch, so that a recreated topic
    fails before any record is given, and again at the end. A topic that is gone by then
    was read while it existed. Without ``wanted.topic_id`` nothing is checked.

    ``ask`` asks for the topic's id with a time-out in ms, and ``timeout_ms`` is the
    longest time without an answer.

    Raises:
        OtherTopicError: The topic was recreated since the range was planned.
        FetchError: No broker reported the id in time.
    """
    if wanted.topic_id is None:
        yield from batches
        return
    is_first, is_sure = True, False
    for batch in batches:
        is_last = int(batch.column("offset")[batch.num_rows - 1].as_py()) + 1 >= (
            wanted.end
        )
        if is_first or is_last:
            _check(wanted, ask, timeout_ms)
        is_first, is_sure = False, is_last
        yield batch
    if not is_sure:
        _check(wanted, ask, timeout_ms)


def unread(
    wanted: OffsetRange, what: str, position: int, brokers: str, report: str
) -> FetchError:
    """The error for a range that could not be read beyond ``position``."""
    topic, partition = wanted.topic_partition
    return FetchError(
        f"range {wanted} could not be read: {what} at offset {position}, brokers at"
        f" {brokers}.{report}",
        topic=topic,
        partition=partition,
        start=wanted.start,
        end=wanted.end,
        position=position,
    )


class _Reader(Protocol):
    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]: ...


class ReaderAround:
    """A range reader around another one, without the offsets that are left out.

    Args:
        reader: The reader of what is left.
        left_out: Offsets that are never read.
        end_of: The first offset above a damaged one that can be read; None: unknown.
    """

    def __init__(
        self,
        reader: _Reader,
        left_out: tuple[OffsetRange, ...],
        end_of: Callable[[TopicPartition, int], int | None],
    ) -> None:
        self.reader = reader
        self._left_out = left_out
        self._end_of = end_of

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """As ``RangeReader.read``.

        Raises also:
            DamagedRecordsError: Records cannot be decoded, and are not left out. The
                text says how to go on.
        """
        for part in wanted.without(self._left_out):
            if part != wanted:
                _log.warning("%s is read in parts, without skipped offsets", wanted)
            try:
                yield from self.reader.read(part)
            except DamagedRecordsError as error:
                raise self._located(error) from error

    def _located(self, error: DamagedRecordsError) -> DamagedRecordsError:
        end, partition = error.next_offset, TopicPartition(error.topic, error.partition)
        if end is None:
            end = self._end_of(partition, error.position)
        way = _way_past(partition, error.position, end, error.topic_id)
        fields = {**error.fields, "next_offset": end}
        return DamagedRecordsError(f"{error.message} {way}", **fields)


def _way_past(
    partition: TopicPartition, position: int, end: int | None, topic_id: str | None
) -> str:
    if end is None:
        named = f"{partition}:{position}-END"
        found = (
            "END, the first offset above that can be read, was not found:"
            " kafka-dump-log.sh --files shows the batches of the log's segments."
        )
    else:
        named = OffsetRange(partition, position, end, topic_id).option
        found = f"The next offset that can be read is {end}."
    return (
        f"{found} If another replica has the records, let its broker lead the"
        f" partition. To go on without them, add '{named}' to the option skipOffsets"
        " (skip_offsets of an at-least-once spout) and start again: all other records"
        " are read."
    )


def damaged(
    wanted: OffsetRange,
    why: str,
    position: int,
    brokers: str,
    report: str,
    next_offset: int | None = None,
) -> DamagedRecordsError:
    """The error for a range whose records at ``position`` arrive and cannot be read."""
    cause = unread(wanted, why, position, brokers, report)
    return DamagedRecordsError(
        cause.message,
        **cause.fields,
        next_offset=next_offset,
        topic_id=wanted.topic_id,
        brokers=brokers,
    )


def damaged_records(error: DamagedRecordsError) -> OffsetRange | None:
    """What cannot be read; None if its end is not known."""
    if error.next_offset is None:
        return None
    partition = TopicPartition(error.topic, error.partition)
    return OffsetRange(partition, error.position, error.next_offset, error.topic_id)


def broken_records(settings: Mapping[str, str], *, is_packed: bool) -> str:
    """Why records could not be read, for ``damaged``."""
    damage = "records are damaged where brokers keep them, or cannot be decoded,"
    if not is_packed:
        return damage
    largest = settings.get("receive.message.max.bytes", "its default")
    return (
        f"{damage} or unpack to more than 'kafka.receive.message.max.bytes' ({largest})"
        " lets them,"
    )


def not_in_log(
    wanted: OffsetRange,
    position: int,
    log: tuple[int, int],
    brokers: str,
    report: str = "",
) -> OffsetOutOfRangeError | FetchError:
    """The error for a range that its log, ``[start, end)``, does not hold.

    If no broker tells the end (-1), nobody knows what is lost: the range is read again.
    So it is if the log holds it: then a former leader has answered before.
    """
    topic, partition = wanted.topic_partition
    is_there = log[0] <= position and wanted.end <= log[1]
    if log[1] < 0 or is_there:
        known = "none says what the log holds"
        if is_there:
            known = f"the log holds [{log[0]}, {log[1]})"
        what = f"brokers lack the next record, and {known},"
        return unread(wanted, what, position, brokers, report and f" {report}.")
    return OffsetOutOfRangeError(
        f"range {wanted} is not in the log: it holds [{log[0]}, {log[1]}) now (position"
        f" {position}, brokers at {brokers}){report and f': {report}'}",
        topic=topic,
        partition=partition,
        wanted=position,
        log_start=log[0],
        log_end=log[1],
    )


def replaced(wanted: OffsetRange, offset: int) -> OffsetOutOfRangeError:
    """The error for a range with records of a later epoch from ``offset`` on."""
    topic, partition = wanted.topic_partition
    return OffsetOutOfRangeError(
        f"range {wanted} was planned under leader epoch {wanted.leader_epoch}, and from"
        f" offset {offset} on the log holds records that a later leader wrote: the"
        " end of the log was lost (an unclean leader election), and other records took"
        " its offsets",
        topic=topic,
        partition=partition,
        wanted=offset,
        log_start=wanted.start,
        log_end=offset,
    )


def known_id(found: str | None) -> str | None:
    """The id a broker named; None if the topic or its id does not exist."""
    return None if found is None or not found.strip(_NO_IDS) else found


def _check(
    wanted: OffsetRange, ask: Callable[[int], str | None], timeout_ms: int
) -> None:
    found = _asked_in_time(ask, timeout_ms)
    topic, partition = wanted.topic_partition
    if found is None:
        raise FetchError(
            f"range {wanted} was fetched, and no broker answered within"
            f" {timeout_ms / 1_000:g} s whether topic '{topic}' still has the id"
            f" {wanted.topic_id}, of which the range was planned. Check that the"
            " brokers have a controller",
            topic=topic,
            partition=partition,
            start=wanted.start,
            end=wanted.end,
            position=wanted.end,
        )
    if known_id(found) not in {None, wanted.topic_id}:
        raise OtherTopicError(
            f"{wanted} was planned of the topic with the id {wanted.topic_id}, and"
            f" topic '{topic}' has the id {found} now: it was deleted and created"
            " again",
            topic=topic,
            partition=partition,
            wanted=wanted.start,
            log_start=None,
            log_end=None,
            planned_id=wanted.topic_id,
            found_id=found,
        )


def _asked_in_time(ask: Callable[[int], str | None], timeout_ms: int) -> str | None:
    until = time.monotonic() + timeout_ms / 1_000
    found = ask(min(_ANSWER_MS, timeout_ms))
    while found is None and time.monotonic() < until:
        _log.warning("no broker reported the id of a topic; asking again")
        found = ask(_ANSWER_MS)
    return found
