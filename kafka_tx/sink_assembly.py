"""Wires the parts of Kafka sinks together, as ``assembly`` does all others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from kafka_tx.config import SinkConfig
from kafka_tx.errors import ConfigError, UnknownTopicError
from kafka_tx.kafka.client_settings import ClientSettings, client_settings
from kafka_tx.model import LogBounds, TopicPartition, Topics

if TYPE_CHECKING:
    from kafka_tx.kafka.letter_log import LetterLog
    from kafka_tx.kafka.marker_log import MarkerLog
    from kafka_tx.kafka.part_transaction import PartTransaction, PlanKeeper
    from kafka_tx.kafka.sender import Sender
    from kafka_tx.kafka.transaction import Transaction
    from kafka_tx.schemas.writing import AvroColumn
    from kafka_tx.sinks.letter_topic import TopicFacts
    from kafka_tx.sinks.sink_memory import Memory
    from kafka_tx.sinks.sink_parts import Part

_ANSWERS_WITHIN_S = 10.0
_OF_PARTS = ("parts", "life", "compares", "run", "reads_all_markers")
_HANDED = 65_536
"""Most characters that are sent with every task; beyond, tasks read the markers."""


def check_topic(config: SinkConfig) -> None:
    """As ``topics.check_written``; the question makes no topic."""
    from kafka_tx.kafka.topics import check_written

    assert config.topic is not None
    check_written(config.topic, _for_what_exists(config), _ANSWERS_WITHIN_S)


def _for_what_exists(config: SinkConfig) -> ClientSettings:
    kafka = {**config.kafka, "allow.auto.create.topics": "false"}
    return client_settings(kafka, purpose="producer")


def avro_columns(config: SinkConfig) -> dict[str, AvroColumn]:
    """What encodes the columns that are written with a schema (executor)."""
    if not config.formats:
        return {}
    from kafka_tx.schemas.writing import AvroColumn

    return {
        each.side: AvroColumn(each.side, each.reader)
        for each in config.formats
        if each.reader is not None
    }


def topic_facts(config: SinkConfig) -> TopicFacts:
    """What the topic takes; raises as ``topic_facts.facts_of``."""
    from kafka_tx.kafka.topic_facts import facts_of

    assert config.topic is not None
    return facts_of(config.topic, client_settings(config.kafka, purpose="admin"))


def topic_ids(config: SinkConfig, topics: Iterable[str]) -> dict[str, str]:
    """The ids of topics, as far as brokers report them.

    Raises: as ``holds_readers_up``.
    """
    from kafka_tx.kafka.cluster import KafkaClusterView

    settings = client_settings(config.kafka, purpose="consumer")
    with closing(KafkaClusterView(settings)) as view:
        return {t: i for t, i in view.topic_ids(set(topics)).items() if i is not None}


def check_letter_topic(option: str, config: SinkConfig) -> TopicFacts:
    """Check, before a dead letter is needed, whether the topic takes dead letters.

    Brokers that do not report something about the topic refuse nothing here.

    Raises:
        ConfigError: The topic does not exist, or would refuse or remove dead letters.
        KafkaError: The brokers refuse the user, or do not answer.
    """
    from kafka_tx.sinks.letter_topic import unfit

    try:
        check_topic(config)
    except UnknownTopicError as error:
        legal = "a topic that exists. Create it: a dead letter would stop the job"
        raise ConfigError.illegal(option, config.topic, legal, error.message) from None
    facts = topic_facts(config)
    problem = unfit(facts)
    if problem is not None:
        legal = f"a topic that takes dead letters. This one does not: {problem}"
        raise ConfigError.illegal(option, config.topic, legal, "Nothing was written.")
    return facts


def largest_batch(config: SinkConfig) -> int | None:
    """Bytes that the topic takes as one batch; None if brokers do not report it."""
    from kafka_tx.kafka.topic_limits import sizes_for

    assert config.topic is not None
    settings = client_settings(config.kafka, purpose="producer")
    return sizes_for(settings).of(config.topic).limit


def sender(config: SinkConfig) -> Sender:
    """The writer of records at least once into a topic that was checked (executor)."""
    from kafka_tx.kafka.sender import Sender

    return Sender(_for_what_exists(config))


def borrow_sender(config: SinkConfig, *, is_awaited: bool = True) -> Sender:
    """As ``sender``, or an idle one; ``Sender.give_back`` returns it (executor)."""
    from kafka_tx.kafka.sender import borrow

    settings = client_settings(config.kafka, purpose="producer")
    return borrow(settings, is_awaited=is_awaited)


def part_transaction(config: SinkConfig, index: int) -> PartTransaction:
    """The writer of one part of a batch, exactly once (executor)."""
    from kafka_tx.kafka.part_transaction import PartTransaction
    from kafka_tx.sinks.sink_memory import Memory

    part = sink_part(config, index)
    settings = client_settings(config.kafka, purpose="producer")
    reading = client_settings(config.kafka, purpose="consumer")
    since = Memory.of_text(config.memory) if config.memory else None
    return PartTransaction(settings, part, marker_log(config), reading, since)


def sink_part(config: SinkConfig, index: int) -> Part:
    """One part of the batch that a sink writes."""
    from kafka_tx.sinks.sink_parts import Part

    assert config.id is not None
    assert config.attempt is not None
    named = {name: getattr(config, name) for name in _OF_PARTS}
    return Part(config.id, config.attempt, index, **named)


def marker_log(config: SinkConfig) -> MarkerLog:
    """The reader of exactly-once sinks' markers (driver and executor)."""
    from kafka_tx.kafka.marker_log import MarkerLog

    assert config.topic is not None
    reading = client_settings(config.kafka, purpose="consumer")
    writing = client_settings(config.kafka, purpose="producer")
    return MarkerLog(config.marker_topic, config.topic, reading, writing)


def remembered(config: SinkConfig) -> str:
    """The sink's markers for its tasks; read on the driver, before any task writes.

    Raises: as ``MarkerLog.recall``.
    """
    return handed(marker_log(config).recall(config.id or ""))


def handed(memory: Memory) -> str:
    """Markers as text; empty if they are too large to send."""
    text = memory.text
    return text if len(text) <= _HANDED else ""


def end_open_parts(config: SinkConfig, tasks: Collection[int]) -> None:
    """Abort what an earlier run left open in parts for which this one has no task.

    Called once in the first batch of a run; tasks of this run may be writing. Raises:
    as ``MarkerLog.recall``, ``holds_readers_up`` and ``PartTransaction.end_open``.
    """
    if not holds_readers_up(config):
        return
    memory = marker_log(config).recall(config.id or "", run=config.run)
    known = {marker.index for marker in memory.markers}
    for index in sorted(known.difference(tasks)):
        part_transaction(config, index).end_open()


def holds_readers_up(config: SinkConfig) -> bool:
    """Whether an open transaction hides records of the sink's topic from readers.

    Readers of committed records then see less of some partition than other readers.

    Raises:
        AuthenticationError, BrokerUnavailableError, KafkaError: No broker answers.
    """
    settings = client_settings(config.kafka, purpose="consumer")
    assert config.topic is not None
    return _ends(config.topic, settings, "read_committed") != _ends(
        config.topic, settings, "read_uncommitted"
    )


def _ends(
    topic: str, settings: Mapping[str, str], level: str
) -> dict[TopicPartition, int]:
    from kafka_tx.kafka.cluster import KafkaClusterView

    with closing(KafkaClusterView({**settings, "isolation.level": level})) as view:
        found = view.topics(Topics((topic,))).get(topic)
        if found is None:
            return {}
        answers = view.bounds(found.partitions)
        return {p: b.end for p, b in answers.items() if isinstance(b, LogBounds)}


def plan_keeper(config: SinkConfig) -> PlanKeeper:
    """Stores the number of parts of a sink's batches (driver)."""
    from kafka_tx.kafka.part_transaction import PlanKeeper

    settings = client_settings(config.kafka, purpose="producer")
    reading = client_settings(config.kafka, purpose="consumer")
    return PlanKeeper(settings, marker_log(config), reading)


def group_transaction(
    kafka: Mapping[str, str], group: str, what: str, topics: set[str]
) -> Transaction:
    """Moves records to topics in transactions that also commit the group's offsets.

    The group's name is the transactional id, too: a second mover fences the first.
    """
    from kafka_tx.kafka.transaction import Transaction

    writing = client_settings(kafka, purpose="producer")
    reading = client_settings(kafka, purpose="consumer")
    return Transaction(writing, group, what, reading, group, topics)


def letter_log(
    kafka: Mapping[str, str], topic: str, markers: str, group: str, timeout_ms: int
) -> LetterLog:
    """Which dead letters were sent back."""
    from kafka_tx.kafka.letter_log import LetterLog

    settings = client_settings(kafka, purpose="consumer")
    return LetterLog(topic, markers, group, settings, timeout_ms)
