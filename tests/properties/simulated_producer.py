"""Brokers that refuse batches, and a client that fills and sends them as librdkafka."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

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
