"""Brokers that refuse batches, and a client that fills and sends them as librdkafka."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from kafka_tx.kafka.out_batch import OutBatch

PARTITIONS = 2
_BATCH, _RECORD, _REQUEST = 61, 7, 100
_ALLOWED = 36
"""What librdkafka reserves for a record's lengths; the record needs fewer."""


class Sent(NamedTuple):
    """A record on its way, with the methods of the client's messages."""

    to: str
    of: bytes | None
    data: bytes | None
    at: int
    on_delivery: Callable[[ClientError | None, Any], None]

    def topic(self) -> str:
        return self.to

    def key(self) -> bytes | None:
        return self.of

    def value(self) -> bytes | None:
        return self.data

    def headers(self) -> None:
        return None

    def partition(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 0, -1

    @property
    def size(self) -> int:
        return len(self.of or b"") + len(self.data or b"")


class Brokers:
    """Topics with limits, which may change at any time.

    Args:
        limits: In bytes, by topic.
        part: What compression leaves of a batch.
        seed: Of when limits change and answers come.
        other: Limits that come in the middle, if any.
    """

    def __init__(
        self, limits: dict[str, int], part: float, seed: int, other: dict[str, int]
    ) -> None:
        self.limits, self.part, self.other = limits, part, other
        self.random = random.Random(seed)
        self.logs: defaultdict[tuple[str, int], list[Sent]] = defaultdict(list)
        self.refusals = 0

    def takes(self, topic: str, batch: list[Sent]) -> bool:
        if self.other and self.random.random() < 0.05:
            self.limits, self.other = self.other, {}
        size = _BATCH + sum(one.size + _RECORD for one in batch)
        return size * self.part <= self.limits[topic]


class SimulatedProducer:
    """Stands for ``confluent_kafka.Producer``; a transaction if it has such an id."""

    def __init__(self, brokers: Brokers, settings: dict[str, Any]) -> None:
        self._brokers = brokers
        self._size = int(settings["batch.size"])
        self._is_transaction = "transactional.id" in settings
        self._queues: defaultdict[tuple[str, int], deque[Sent]] = defaultdict(deque)
        self._answers: deque[tuple[list[Sent], int | None]] = deque()
        self._written: list[Sent] = []
        self._is_broken = False

    def __len__(self) -> int:
        return sum(map(len, self._queues.values())) + sum(
            len(batch) for batch, _ in self._answers
        )

    def list_topics(self, *_: object, **__: object) -> None:
        pass

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        on_delivery: Any,
        partition: int = -1,
    ) -> None:
        if self._is_broken:
            raise KafkaException(ClientError(ClientError._STATE))
        if partition < 0:
            partition = (key or b"\0")[0] % PARTITIONS
        sent = Sent(topic, key, value, partition, on_delivery)
        self._queues[topic, partition].append(sent)
        if self._brokers.random.random() < 0.02:
            self._exchange()

    def poll(self, _: float) -> None:
        self._exchange()
        for _ in range(self._brokers.random.randint(0, 3)):
            self._answer()

    def flush(self, _: float) -> int:
        while any(self._queues.values()):
            self._exchange()
        while self._answers:
            self._answer()
        return len(self)

    def purge(self) -> None:
        for queue in self._queues.values():
            queue.clear()
        self._answers.clear()

    # --- transactions

    def init_transactions(self, _: float) -> None:
        self._written = []

    begin_transaction = abort_transaction = lambda *_: None

    def commit_transaction(self, _: float) -> None:
        assert not self._is_broken
        for one in self._written:
            self._brokers.logs[one.to, one.at].append(one)

    # --- batches

    def _exchange(self) -> None:
        places = [place for place, queue in self._queues.items() if queue]
        self._brokers.random.shuffle(places)
        for place in places:
            batch = self._batch(self._queues[place])
            if self._is_broken:
                self._answers.append((batch, ClientError._PURGE_QUEUE))
            elif self._brokers.takes(place[0], batch):
                kept = self._written if self._is_transaction else None
                (self._brokers.logs[place] if kept is None else kept).extend(batch)
                self._answers.append((batch, None))
            else:
                self._brokers.refusals += 1
                self._is_broken = self._is_transaction
                self._answers.append((batch, ClientError.MSG_SIZE_TOO_LARGE))

    def _batch(self, queue: deque[Sent]) -> list[Sent]:
        """As librdkafka: the size counts from the second record on."""
        batch = [queue.popleft()]
        size = _REQUEST + _BATCH + batch[0].size + _ALLOWED
        while queue and size + queue[0].size + _ALLOWED <= self._size:
            size += queue[0].size + _ALLOWED
            batch.append(queue.popleft())
        return batch

    def _answer(self) -> None:
        if self._answers:
            batch, code = self._answers.popleft()
            for one in batch:
                one.on_delivery(None if code is None else ClientError(code), one)


class SimulatedNative(SimulatedProducer):
    """Stands for the extension's ``Producer``."""

    def __init__(
        self, brokers: Brokers, settings: dict[str, Any], suspect: tuple[int, ...]
    ) -> None:
        super().__init__(brokers, settings)
        self._suspect = suspect
        self._worst: list[tuple[Any, ...]] = []
        self._capsule: object = None
        self._noted: list[tuple[Any, ...]] = []
        self._is_noting = False

    def connect(self, *_: object) -> None:
        pass

    def send(
        self, schema: object, array: object, topics: tuple[str, ...], start: int, _: int
    ) -> tuple[int, int]:
        if array is not self._capsule:  # it can be imported only once
            rows = pa.RecordBatch._import_from_c_capsule(schema, array)
            self._capsule, self._rows = array, OutBatch(topics, rows)
        for row in range(start, len(self._rows)):
            one = self._rows.record(row)
            code = self._put(one.topic, one.key, one.value, one.partition)
            if code:
                return row, code
            if self._brokers.random.random() < 0.1:
                self.poll(0)
            if self._noted or self._brokers.random.random() < 0.02:
                return row + 1, 0
        return len(self._rows), 0

    def produce(  # type: ignore[override] # the extension's
        self,
        topic: tuple[str],
        key: Any,
        value: Any,
        _: object,
        partition: int,
        __: int,
    ) -> int:
        return self._put(topic[0], key, value, None if partition < 0 else partition)

    def _put(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int | None
    ) -> int:
        where = -1 if partition is None else partition
        try:
            super().produce(topic, value, key, self._delivered, where)
        except KafkaException as error:
            code: int = error.args[0].code()
            return code
        return 0

    def _delivered(self, error: ClientError | None, one: Sent) -> None:
        code = 0 if error is None else error.code()
        fields: tuple[Any, ...] = (
            code,
            "",
            one.to,
            one.at,
            0,
            one.of,
            one.data,
            one.size,
            [],
        )
        if code and code not in self._suspect:
            self._worst = [fields]
        elif code or self._is_noting:
            self._is_noting = True
            self._noted.append(fields)

    def flush(self, _: float) -> int:
        self._exchange()
        self._answer()
        return ClientError._TIMED_OUT if super().flush(0) else 0

    def news(self) -> tuple[list[Any], list[Any], list[Any]] | None:
        noted, self._noted = self._noted, []
        worst, self._worst = self._worst, []
        if not len(self):
            self._is_noting = False
        return ([], noted, worst) if noted or worst else None
