"""The largest batch that brokers take for a topic; each process asks now and then.

A missing answer stops nothing: users may lack the right DESCRIBE_CONFIGS. The limit is
then learnt from refused batches.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from kafka_tx.errors import KafkaTxError
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.librdkafka_names import COMMON
from kafka_tx.kafka.producer import Delivery, is_too_large
from kafka_tx.kafka.tokens import PROVIDER
from kafka_tx.kafka.topic_facts import largest_batch
from kafka_tx.logs import event_log
from kafka_tx.sinks.batch_sizes import BatchSize, Verdict

logger = event_log(__name__)

_TIMEOUT_MS = 2_000
_KNOWN_S, _UNKNOWN_S = 600.0, 60.0
"""How long an answer counts; a missing answer counts as long."""
_OWN = frozenset(
    {"delivery.timeout.ms", "message.timeout.ms", "transaction.timeout.ms"}
)


class TopicSizes:
    """The sizes of batches for every topic that one process writes with one client.

    Several threads may ask at once; at worst brokers are asked twice.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        kind = settings.get("compression.type") or settings.get("compression.codec")
        given = settings.get("batch.size", "")
        self._is_compressed = kind not in {None, "", "none"}
        self._given = int(given) if given.isdigit() else None
        common = COMMON | {PROVIDER}
        self._settings = {n: v for n, v in settings.items() if n in common}
        self._sizes: dict[str, BatchSize] = {}
        self._until: dict[str, float] = {}

    @property
    def largest(self) -> int:
        """The largest batch for a topic without a known limit."""
        return BatchSize(self._given).size

    def of(self, topic: str) -> BatchSize:
        """The size for a topic; asks its limit if the last answer is old."""
        size = self._sizes.get(topic)
        if size is None:
            made = BatchSize(self._given, is_compressed=self._is_compressed)
            size = self._sizes.setdefault(topic, made)
        if time.monotonic() > self._until.get(topic, 0.0):
            self._ask(topic, size)
        return size

    def settle(
        self, topic: str, deliveries: Sequence[Delivery], at: int
    ) -> tuple[BatchSize, Verdict]:
        """As ``BatchSize.settle``, for a topic; asks for its limit again."""
        is_size = any(one.error and is_too_large(one.error) for one in deliveries)
        if is_size:
            self._until.pop(topic, None)
        size = self.of(topic)
        verdict = size.settle(
            [one.sizes() for one in deliveries], at, remembers=is_size
        )
        logger.info(
            "%d of %d records for topic '%s' were refused in batches of %d bytes; %d"
            " are sent again in batches of %d",
            *(
                sum(one.error is not None for one in deliveries),
                len(deliveries),
                topic,
                at,
            ),
            *(len(verdict.again), verdict.size),
        )
        return size, verdict

    def _ask(self, topic: str, size: BatchSize) -> None:
        limit = _limit(self._settings, topic)
        size.set_limit(limit)
        lasts_s = _UNKNOWN_S if limit is None else _KNOWN_S
        self._until[topic] = time.monotonic() + lasts_s


def sizes_for(settings: Mapping[str, str]) -> TopicSizes:
    """The sizes that all clients with these settings share in this process."""
    key = frozenset((n, v) for n, v in settings.items() if n not in _OWN)
    found = _all.get(key)
    return _all.setdefault(key, TopicSizes(settings)) if found is None else found


_all: dict[frozenset[tuple[str, str]], TopicSizes] = {}


def _limit(settings: Mapping[str, str], topic: str) -> int | None:
    admin = AdminConnection(settings)
    deadline = Deadline(_TIMEOUT_MS)
    try:
        metadata = admin.client.list_topics(topic, timeout=deadline.rest_s())
        if metadata.controller_id not in metadata.brokers:  # nobody would answer
            return None
        answer = admin.settings_of([topic], deadline)[topic]
    except (KafkaTxError, KafkaException) as error:
        # The writer meets the same error, and raises it.
        logger.debug("the limits of topic '%s' cannot be asked: %s", topic, error)
        return None
    if isinstance(answer, ClientError):
        logger.debug(
            "brokers do not report the limits of topic '%s': %s", topic, answer
        )
        return None
    return largest_batch(answer)
