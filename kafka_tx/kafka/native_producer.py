"""A producer in native code: columns to records without Python in between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.kafka.clients import addresses, refused_settings
from kafka_tx.kafka.errors import ErrorWatch
from kafka_tx.kafka.out_batch import OutBatch
from kafka_tx.kafka.out_record import NOTHING, OutRecord
from kafka_tx.kafka.producer import (
    CONNECT_S,
    SUSPECT,
    TIMEOUT_MS,
    WAIT_S,
    Check,
    Deliveries,
    Delivery,
    ProducerClient,
    connects_first,
    delivery_error,
    refused_here,
    refused_record,
    with_defaults,
)
from kafka_tx.native import writer

_DEBUG_LINE = 7
_WAIT_MS = int(WAIT_S * 1000)


class NativeProducer:
    """As ``ProducerClient``, with a client of its own on the same librdkafka.

    Native code counts deliveries; Python gets failures only, and all records once a
    batch was refused. Raises ConfigError: librdkafka refuses a setting.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        deliveries: Deliveries,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self.watch = ErrorWatch(addresses(settings))
        """The reports of the producer."""
        given = with_defaults(settings, timeout_ms)
        self._deliveries = deliveries
        try:
            self._native = writer.producer(given, SUSPECT)
        except ValueError as error:
            raise refused_settings(str(error), given, self.watch) from None
        self._connects = connects_first(given)
        self._last: tuple[OutBatch, int] | OutRecord | None = None

    @property
    def last(self) -> OutRecord | None:
        """The record that was handed to the client last."""
        if isinstance(self._last, tuple):
            batch, row = self._last
            return batch.record(row)
        return self._last

    def write(self, batch: OutBatch, check: Check) -> int:
        """As ``ProducerClient.write``; fewer records also if there is no room."""
        self._connect(batch.topics[0])
        schema, array = batch.columns.__arrow_c_array__()
        row = 0
        while row < len(batch):
            row, code = self._native.send(schema, array, batch.topics, row, _WAIT_MS)
            self._last = (batch, row - 1) if row else self._last
            self._take_news()
            if code:
                raise refused_here(batch.record(row), ClientError(code))
            if self._deliveries.since_refusal:
                break
            check()
        return row

    def produce(self, record: OutRecord, check: Check) -> None:
        """Hand over one record; raises DeliveryError (the client itself refuses it)."""
        self._connect(record.topic)
        while code := self._native.produce(
            (record.topic,),
            record.key,
            record.value,
            record.headers,
            -1 if record.partition is None else record.partition,
            record.timestamp_ms or 0,
        ):
            if code != ClientError._QUEUE_FULL:
                raise refused_here(record, ClientError(code))
            self._native.poll(_WAIT_MS)
            self._take_news()
            check()
        self._last = record

    def flush(self, check: Check) -> None:
        """As ``ProducerClient.flush``."""
        while code := self._native.flush(_WAIT_MS):
            self._take_news()
            if code != ClientError._TIMED_OUT:
                raise refused_record(self.last or NOTHING, ClientError(code))
            check()
        self._take_news()

    def flush_for(self, seconds: float) -> None:
        """As ``ProducerClient.flush_for``."""
        self._native.flush(_in_ms(seconds))
        self._take_news()

    def poll(self) -> None:
        """As ``ProducerClient.poll``."""
        self._native.poll(0)
        self._take_news()

    def purge(self) -> None:
        """As ``ProducerClient.purge``."""
        self._native.purge()

    def __len__(self) -> int:
        """The number of in-flight records."""
        return len(self._native)

    # --- transactions: what raises is a ``KafkaException``, as of the client's own

    def init_transactions(self, seconds: float) -> None:
        """Fence an older producer of the transactional id."""
        _raise(self._native.init_transactions(_in_ms(seconds)))

    def begin_transaction(self) -> None:
        """Begin."""
        _raise(self._native.begin_transaction())

    def commit_transaction(self, seconds: float) -> None:
        """Commit."""
        _raise(self._native.commit_transaction(_in_ms(seconds)))

    def abort_transaction(self, seconds: float) -> None:
        """Abort."""
        _raise(self._native.abort_transaction(_in_ms(seconds)))

    def offset_sender(
        self, reading: Mapping[str, str]
    ) -> Callable[[ClientPartition, float], None]:
        """As ``ProducerClient.offset_sender``."""
        group = reading["group.id"]

        def send(offset: ClientPartition, seconds: float) -> None:
            place = (offset.topic, offset.partition, offset.offset, offset.metadata)
            _raise(self._native.send_offset(group, *place, _in_ms(seconds)))

        return send

    def _connect(self, topic: str) -> None:
        if self._connects:
            self._connects = False
            self._native.connect((topic,), _in_ms(CONNECT_S))

    def _take_news(self) -> None:
        news = self._native.news()
        if news is None:
            return
        reports, deliveries, worst = news
        for is_line, code, facility, text in reports:
            if is_line:
                level = logging.DEBUG if code >= _DEBUG_LINE else logging.INFO
                self.watch.log(level, "%s %s", facility, text)
            else:
                self.watch(ClientError(code, text))
        self._deliveries.since_refusal += map(_delivery, deliveries)
        for code, text, topic, _, _, key, _, size, _ in worst:
            error = ClientError(code, text)
            self._deliveries.fail(delivery_error(topic, key, size, error))


def _in_ms(seconds: float) -> int:
    return int(seconds * 1000)


def _raise(error: tuple[int, str, int, int, int] | None) -> None:
    if error is not None:
        code, text, *flags = error
        raise KafkaException(ClientError(code, text, *map(bool, flags)))


def _delivery(fields: tuple[Any, ...]) -> Delivery:
    code, text, topic, partition, timestamp_ms, key, value, _, headers = fields
    record = OutRecord(
        topic,
        key,
        value,
        headers or None,
        partition if partition >= 0 else None,
        timestamp_ms or None,
    )
    return Delivery(record, partition, ClientError(code, text) if code else None)


def new_client(
    settings: Mapping[str, str], deliveries: Deliveries, timeout_ms: int = TIMEOUT_MS
) -> NativeProducer | ProducerClient:
    """The quicker of the two kinds of producers that these settings allow."""
    is_native = writer.refusal(settings) is None
    kind = NativeProducer if is_native else ProducerClient
    return kind(settings, deliveries, timeout_ms)
