"""Finds the end of damaged records, so that an error names no more than is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.kafka.clients import addresses, new_consumer
from kafka_tx.kafka.errors import ErrorWatch
from kafka_tx.kafka.range_fetch import UNREADABLE
from kafka_tx.logs import event_log
from kafka_tx.model import TopicPartition

_log = event_log(__name__)

_SEARCH_S = 15.0
"""Longest search for the end of the damage."""
_CORRUPT = ClientError.INVALID_MSG
_IN_VAIN, _LEAST_COUNTS = 4, 3
"""After more answers than these, in more statistics, a record that did not come is
damaged."""
_SLICE_S = 0.1
_OWN = {
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "statistics.interval.ms": "100",
    "queued.min.messages": "1",
    "fetch.message.max.bytes": "65536",
}
_SAMPLES = 32
"""How many offsets inside of the damage are tried for a batch that is whole."""


def end_of_damage(
    settings: Mapping[str, str], partition: TopicPartition, position: int
) -> int | None:
    """The first offset above ``position`` that can be read, or the log's end.

    None if that is not known after some seconds, or if ``position`` itself can be read
    now. Nothing is remembered: the next leader
    may have other records, and the end is what a user leaves out.
    """
    with closing(_Search(settings, partition)) as search:
        return search.end(position)


class _Search:
    """A consumer that begins to read one partition at several offsets.

    What comes first decides: after an error of a batch the client may go on anywhere.
    """

    def __init__(self, settings: Mapping[str, str], partition: TopicPartition) -> None:
        self._partition = partition
        self._until_s = time.monotonic() + _SEARCH_S
        self._answers: list[int] = []
        self._is_reported = False
        """Whether the client reported damage; if not, it only gave no record."""
        watch = ErrorWatch(addresses(settings))
        self._consumer = new_consumer({**settings, **_OWN}, watch, self._statistics)

    def close(self) -> None:
        """Release the consumer."""
        self._consumer.close()

    def end(self, position: int) -> int | None:
        """The first offset above ``position`` that can be read; None: not found."""
        try:
            return self._end(position)
        except (KafkaException, TimeoutError) as error:
            _log.info("no end of the damage at %s %d: %r", *self._partition, error)
        return None

    def _end(self, position: int) -> int | None:
        if self._is_readable(position):  # another leader has the record
            return None
        low, end = self._consumer.get_watermark_offsets(
            ClientPartition(*self._partition), timeout=_SEARCH_S
        )
        high = self._highest(position, end)
        if high < end or self._is_reported:
            return high
        # Perhaps the partition gives nothing now: then others cannot be read, either.
        others = (position - 1, low) if position > low else ()
        return high if any(map(self._is_readable, others)) else None

    def _highest(self, position: int, end: int) -> int:
        high = self._first(position, self._beyond(position, end))
        while (lower := self._between(position, high)) is not None:
            high = self._first(position, lower)
        return high

    def _beyond(self, position: int, end: int) -> int:
        """An offset above that can be read, not far above the first one, or the end."""
        step = 1
        while position + step < end:
            if self._is_readable(position + step):
                return position + step
            step *= 2
        return end

    def _first(self, low: int, high: int) -> int:
        """The first offset in (low, high] that can be read, if those before cannot."""
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_readable(middle):
                high = middle
            else:
                low = middle
        return high

    def _between(self, position: int, high: int) -> int | None:
        """An offset that can be read: of an intact batch among damaged ones."""
        step = -(-(high - position) // _SAMPLES)
        inside = range(position + step, high, step)
        return next((at for at in inside if self._is_readable(at)), None)

    def _is_readable(self, start: int) -> bool:
        """Whether reading that begins here begins with a record, or the log's end."""
        self._consumer.assign([ClientPartition(*self._partition, start)])
        self._answers = []
        while not self._has_answered_in_vain:
            if time.monotonic() > self._until_s:
                raise TimeoutError
            message = self._consumer.poll(_SLICE_S)
            error = None if message is None else message.error()
            if error is not None and error.code() in {*UNREADABLE, _CORRUPT}:
                self._is_reported = True
                return False
            if message is not None and (message.offset() or 0) >= start:
                return error is None or error.code() == ClientError._PARTITION_EOF
        return False

    @property
    def _has_answered_in_vain(self) -> bool:
        """Whether brokers have answered again and again, without a record.

        A broker that is slow or away has not.
        """
        counts = self._answers
        return len(counts) > _LEAST_COUNTS and counts[-1] > counts[0] + _IN_VAIN

    def _statistics(self, text: str) -> None:
        brokers = json.loads(text).get("brokers", {}).values()
        self._answers.append(sum(broker.get("rx", 0) for broker in brokers))
