"""One range of a partition on its way from the brokers."""

from __future__ import annotations

import json
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import (
    DamagedRecordsError,
    FetchError,
    KafkaTxError,
)
from kafka_tx.kafka.clients import addresses, new_consumer
from kafka_tx.kafka.errors import ErrorWatch, is_absent, is_refused, translated
from kafka_tx.logs import event_log
from kafka_tx.model import OffsetRange
from kafka_tx.planned_topic import broken_records, damaged, not_in_log, replaced, unread

_log = event_log(__name__)

_WAIT_S = 0.1
_GRACE_S = 5.0
"""How long brokers may deny a partition or its end: a new leader learns it late."""

_QUESTION_S = 2.0
FRUITLESS = 3
"""So many answers without a record: the client cannot decode what comes."""

UNREADABLE = {
    ClientError._BAD_MSG,
    ClientError._BAD_COMPRESSION,
    ClientError._NOT_IMPLEMENTED,
    ClientError._UNDERFLOW,
    ClientError.MSG_SIZE_TOO_LARGE,
    ClientError.UNSUPPORTED_COMPRESSION_TYPE,
}
"""Errors of single records. The client goes on behind them; an exact range must not."""


class RangeFetch:
    """A consumer of one range, its position and its deadline. Not to be shared.

    1. A fresh consumer is assigned at the start of the range, without any group.
    2. ``take`` gives records that have arrived, or waits for the first one. The
       position follows the records and the client's end-of-log events, so that holes
       (compaction, markers, aborted records) at the end of the range are passed.
    3. ``is_done`` when the position has reached the end of the range.
    4. ``close`` releases the consumer, whatever happened.
    """

    def __init__(
        self, settings: Mapping[str, str], wanted: OffsetRange, timeout_ms: int
    ) -> None:
        self._settings = settings
        self._wanted = wanted
        self._timeout_s = timeout_ms / 1000
        self._watch = ErrorWatch(addresses(settings))
        self._position = wanted.start
        self._fetched_to = wanted.start
        self._at_log_end = False
        self._trouble = ""
        self._failure: KafkaTxError | None = None
        self._code = 0  # of the partition's last error
        self._partial = self._partial_then = 0  # batches not decoded; at last progress
        self._asked_at = 0.0
        self._consumer: Consumer = new_consumer(settings, self._watch, self._statistics)
        self.resume_clock()
        topic, partition = wanted.topic_partition
        self._consumer.assign([ClientPartition(topic, partition, wanted.start)])

    @property
    def is_done(self) -> bool:
        """Whether everything readable of the range was taken."""
        return self._position >= self._wanted.end

    def resume_clock(self) -> None:
        """Count the time without progress from now on."""
        self._has_progress()

    def close(self) -> None:
        """Release the consumer."""
        self._consumer.close()

    def take(self, count: int) -> list[Message]:
        """At most ``count`` records that are there now, or else the first to come.

        After an empty list, check ``is_done`` and call again. Waiting for ``count`` of
        them would wait at a hole for records that do not come.

        Raises:
            OffsetOutOfRangeError: The range is not, or not all, in the log.
            UnknownTopicError: The topic or partition does not exist.
            FetchError: No progress within the time-out, or a broken record; or nobody
                says what the log holds.
            AuthenticationError: Credentials, permission or TLS.
        """
        if self._failure is not None:
            raise self._failure
        count = min(count, self._wanted.end - self._position)
        fetched = self._consumer.consume(count, 0)
        if not fetched:
            fetched = self._consumer.consume(1, _WAIT_S)
        if not fetched:
            self._check_stall()
            return fetched
        self._code, self._trouble = 0, ""  # of before: the broker answers
        if any(map(Message.error, fetched)):
            fetched = self._without_events(fetched)
        if not fetched:
            self._check_stall()  # an error of the partition may come again and again
            return fetched
        self._has_progress()
        return self._cut(fetched)

    def unreadable(self, offset: int, why: str) -> DamagedRecordsError:
        """The error for a record that was taken and cannot become a row."""
        self._position = offset
        what = f"a record cannot be put into columns ({why})"
        return self._damaged(what, offset + 1)

    def _has_progress(self) -> None:
        self._progress_at, self._partial_then = time.monotonic(), self._partial

    # --- what came ------------------------------------------------------------------

    def _without_events(self, fetched: list[Message]) -> list[Message]:
        records = []
        for message in fetched:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == ClientError._PARTITION_EOF:
                self._at_log_end = True
                self._has_progress()
                self._position = max(self._position, offset_of(message))
            else:
                try:
                    self._handle(error, message.offset() or 0)
                except KafkaTxError as failure:
                    if not records:
                        raise
                    self._failure = failure  # once the records before it are given
                    break
        return records

    def _needing(self) -> str:
        topic = self._wanted.topic_partition.topic
        return f"reading {self._wanted}, which needs READ on topic '{topic}'"

    def _handle(self, error: ClientError, offset: int) -> None:
        """Raise what cannot get better; remember the rest for the time-out's text."""
        code = self._code = error.code()
        if code == ClientError.GROUP_AUTHORIZATION_FAILED:
            return  # no group is used
        if code in (ClientError.OFFSET_OUT_OF_RANGE, ClientError._AUTO_OFFSET_RESET):
            raise self._out_of_range(self._watermarks())
        if is_refused(error) or is_absent(error):
            raise translated(error, self._needing(), self._watch)
        self._trouble = f" Last error of the partition: {error.str()}."
        if code in UNREADABLE:
            self._position = max(self._position, offset)
            if self._position >= self._wanted.end:
                return  # damage of another range: the rest of this one is a hole
            is_packed = code == ClientError._BAD_COMPRESSION
            raise self._damaged(broken_records(self._settings, is_packed=is_packed))
        _log.debug("%s at %d: %s", self._wanted, self._position, error.str())

    def _cut(self, records: list[Message]) -> list[Message]:
        """The records below the end; moves the position behind the last one."""
        last = offset_of(records[-1])
        self._position = max(self._position, last + 1)
        end = self._wanted.end
        if last >= end:
            records = records[: bisect_left(records, end, key=offset_of)]
        epoch = self._wanted.leader_epoch
        if epoch is not None and records and _epoch(records[-1]) > epoch:
            other = records[bisect_right(records, epoch, key=_epoch)]
            raise replaced(self._wanted, offset_of(other))
        return records

    def _statistics(self, text: str) -> None:
        """Take the client's own figures: passing over aborted records is progress."""
        topic, partition = self._wanted.topic_partition
        told = json.loads(text)
        self._partial = undecoded(told)
        topics = told.get("topics", {})
        figures = topics.get(topic, {}).get("partitions", {}).get(str(partition), {})
        next_offset = figures.get("next_offset", -1)
        if next_offset > self._fetched_to:
            self._fetched_to = next_offset
            self._has_progress()

    # --- nothing came ---------------------------------------------------------------

    def _check_stall(self) -> None:
        self._watch.raise_refusal()
        now = time.monotonic()
        waited_s = now - self._progress_at
        if now - max(self._progress_at, self._asked_at) > self._patience_s:
            self._ask_why()
            self._asked_at = time.monotonic()
        is_undecoded = self._partial >= self._partial_then + FRUITLESS
        is_corrupt = self._code == ClientError.INVALID_MSG or is_undecoded
        if waited_s > self._patience_s and is_corrupt:
            raise self._damaged(broken_records(self._settings, is_packed=False))
        if waited_s > self._timeout_s:
            raise self._fetch_error(f"no progress for {self._timeout_s:g} s")

    def _ask_why(self) -> None:
        """Ask a broker whether the partition exists, may be read and holds the range.

        The client does not report this by itself.
        """
        topic, partition = self._wanted.topic_partition
        what = self._needing()
        try:
            found = self._consumer.list_topics(topic, timeout=self._question_s)
        except KafkaException:
            return
        described = found.topics[topic]
        if described.error is not None:
            if is_refused(described.error) or is_absent(described.error):
                raise translated(described.error, what, self._watch)
            self._trouble = f" The topic: {described.error.str()}."
        elif partition not in described.partitions:
            absent = ClientError(ClientError._UNKNOWN_PARTITION)
            raise translated(absent, what, self._watch)
        elif described.partitions[partition].leader < 0:
            self._trouble = " The partition has no leader."
        elif self._at_log_end:
            log = self._watermarks()
            if 0 <= log[1] < self._wanted.end:
                raise self._out_of_range(log)

    @property
    def _patience_s(self) -> float:
        return min(_GRACE_S, self._timeout_s)

    @property
    def _question_s(self) -> float:
        return min(_QUESTION_S, self._timeout_s)

    def _watermarks(self) -> tuple[int, int]:
        try:
            return self._consumer.get_watermark_offsets(
                ClientPartition(*self._wanted.topic_partition), timeout=self._question_s
            )
        except KafkaException:
            return -1, -1

    def _damaged(self, why: str, next_offset: int | None = None) -> DamagedRecordsError:
        report = f"{self._trouble}{self._watch.reason()}"
        where = self._position, self._watch.addresses
        return damaged(self._wanted, why, *where, report, next_offset)

    def _fetch_error(self, what: str) -> FetchError:
        report = f"{self._trouble}{self._watch.reason()}"
        return unread(self._wanted, what, self._position, self._watch.addresses, report)

    def _out_of_range(self, log: tuple[int, int]) -> KafkaTxError:
        brokers = self._watch.addresses
        return not_in_log(self._wanted, self._position, log, brokers)


def undecoded(statistics: Mapping[str, Any]) -> int:
    """How many batches a client could not decode to their ends, by its statistics."""
    brokers = statistics.get("brokers", {}).values()
    return sum(broker.get("rxpartial", 0) for broker in brokers)


def _epoch(message: Message) -> int:
    """The epoch of the leader that wrote it: never less than that of one before it."""
    epoch = message.leader_epoch()
    return -1 if epoch is None else epoch


def offset_of(message: Message) -> int:
    """The offset of a record or an end-of-log event; other events have none."""
    offset = message.offset()
    assert offset is not None
    return offset
