"""Wires rooms together, from options to running parts; ``sink_assembly`` for sinks.

Each function makes its part in the process that calls it; nothing here is pickled.
What executors never use is imported where it is opened.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kafka_tx.clock import SystemClock as SystemClock
from kafka_tx.config import FromCommitted, SourceConfig, TransactionsConfig, check_id
from kafka_tx.errors import ConfigError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.model import LogPosition, TopicPartition
from kafka_tx.protocols import Clock, ClusterView, OffsetStore, RangeReader, Store
from kafka_tx.store_place import STORES, StoreKind, kind_of, make_default_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_tx.kafka.mirror import GroupMirror, MirrorThread
    from kafka_tx.kafka.reader import KafkaRangeReader
    from kafka_tx.native.reader import NativeRangeReader
    from kafka_tx.planned_topic import ReaderAround
    from kafka_tx.planning.byte_limit import ByteLimit
    from kafka_tx.topology.declare.spout_hosts import ZkHosts
    from kafka_tx.transactions.ledger.ledger import Ledger
    from kafka_tx.transactions.ownership.memory import StoredId
    from kafka_tx.zookeeper.brokers import ZooKeeperTopics

_SAMPLE_TIMEOUT_MS = 2_000


def open_store(url: str, id: str) -> Store:  # noqa: A002 - the word users know
    """The store that a URL names, for one id; ``memory:`` is of this process only.

    Raises:
        ConfigError: The URL or the id cannot be used.
        StateError: The store cannot be reached or written.
    """
    check_id(id)
    kind = kind_of(url)
    if kind is StoreKind.MEMORY:
        from kafka_tx.transactions.ownership.memory import MemoryStore

        return MemoryStore(url.removeprefix("memory:"), id)
    if kind is StoreKind.GROUP:
        raise ConfigError.illegal("tx.store", url, f"memory:, {STORES}")
    if kind is StoreKind.ZOOKEEPER:
        from kafka_tx.zookeeper.store import ZooKeeperStore

        return ZooKeeperStore(url, id)
    from kafka_tx.sql.store import SqlStore

    make_default_folder(url)
    return SqlStore(url, id)


def stored_ids(url: str) -> list[str]:
    """Every id that a store holds state of, ascending. Makes nothing, changes nothing.

    Raises:
        ConfigError: The URL cannot be used, or is ``memory:``, which other processes
            cannot read.
        StateError: The store does not exist, cannot be reached, or refuses.
    """
    return _room_of(url).stored_ids(url)


class _Room(Protocol):
    """Functions that read stores of one kind."""

    def stored_ids(self, url: str) -> list[str]: ...

    def stored_states(
        self, url: str, ids: Collection[str] = ()
    ) -> dict[str, StoredId]: ...


_UNREADABLE = {
    StoreKind.MEMORY: "State in memory: is seen by its own process only.",
    StoreKind.GROUP: "The offsets of kafka: are those of a consumer group: `kafka-tx"
    " lag --store kafka: --id GROUP --bootstrap-servers …` shows them. Once the"
    " topology is stopped, `kafka-consumer-groups --group GROUP --reset-offsets …` sets"
    " them.",
}


def _room_of(url: str) -> _Room:
    kind = kind_of(url, legal=STORES)
    if why := _UNREADABLE.get(kind):
        raise ConfigError.illegal("tx.store", url, STORES, why)
    if kind is StoreKind.ZOOKEEPER:
        from kafka_tx.zookeeper import store as in_zookeeper

        return in_zookeeper
    from kafka_tx.sql import store as in_sql

    return in_sql


def stored_states(url: str, ids: Collection[str] = ()) -> dict[str, StoredId]:
    """The state of these ids, or of all, ascending; raises as ``stored_ids``."""
    return _room_of(url).stored_states(url, ids)


def retrying_store(url: str, id: str) -> Store:  # noqa: A002 - the word users know
    """As ``open_store``; calls are retried for the URL's ``retry_for_ms``."""
    store = open_store(url, id)
    if not store.retry_ms:
        return store
    from kafka_tx.transactions.ownership.retry_policy import RetryingStore, RetryPolicy

    return RetryingStore(store, RetryPolicy(SystemClock(), store.retry_ms))


def ledger(transactions: TransactionsConfig, *, retries: bool = False) -> Ledger:
    """A query's ledger; ``retries``: it retries while the store is unavailable."""
    from kafka_tx.transactions.ledger.ledger import Ledger

    opened = retrying_store if retries else open_store
    return Ledger(
        opened(transactions.store, transactions.id),
        transactions.history,
        transactions.sink_batch_ids,
    )


def stored_offsets(config: SourceConfig) -> dict[TopicPartition, LogPosition]:
    """The committed positions of ``tx.id``; empty without one. Only reads."""
    if config.transactions is None:
        return {}
    with closing(ledger(config.transactions)) as found:
        committed = found.load().committed
    return {} if committed is None else committed.positions()


def offset_store(
    url: str,
    id: str,  # noqa: A002 - the word users know
    config: SourceConfig,
    *,
    by_topic: bool = False,
) -> OffsetStore:
    """The offset store of an at-least-once spout.

    ``memory:`` lasts as long as the topology, ``kafka:`` is the consumer group ``id``
    of the cluster that is read, and ``zookeeper://…/root`` has storm-kafka's paths,
    with the topic in them if ``by_topic``. All others are SQLAlchemy URLs.

    Raises: as ``open_store``.
    """
    check_id(id, "id")
    kind = kind_of(url, "store")
    if kind is StoreKind.MEMORY:
        from kafka_tx.transactions.ownership.memory import MemoryOffsetStore

        return MemoryOffsetStore()
    store: OffsetStore
    if kind is StoreKind.GROUP:
        from kafka_tx.kafka.group_offsets import KafkaGroupOffsetStore

        settings = client_settings(config.kafka, purpose="admin")
        store = KafkaGroupOffsetStore(settings, id)
    elif kind is StoreKind.ZOOKEEPER:
        from kafka_tx.zookeeper.offsets import ZooKeeperOffsetStore

        store = ZooKeeperOffsetStore(url, id, by_topic=by_topic)
    else:
        from kafka_tx.sql.offsets import SqlOffsetStore

        make_default_folder(url)
        store = SqlOffsetStore(url, id)
    from kafka_tx.transactions.ownership.retry_policy import (
        RetryingOffsetStore,
        RetryPolicy,
    )

    return RetryingOffsetStore(store, RetryPolicy(SystemClock(), store.retry_ms))


def zookeeper_topics(hosts: ZkHosts) -> ZooKeeperTopics:
    """A view of the cluster as registered in ZooKeeper."""
    from kafka_tx.zookeeper.brokers import ZooKeeperTopics

    return ZooKeeperTopics(hosts.connect, hosts.broker_zk_path)


def cluster_view(config: SourceConfig) -> ClusterView:
    """A view of the cluster (driver's machine)."""
    from kafka_tx.kafka.cluster import KafkaClusterView

    return KafkaClusterView(
        client_settings(config.kafka, purpose="admin"),
        num_retries=config.num_retries,
        retry_interval_ms=config.retry_interval_ms,
        timeout_ms=config.request_timeout_ms,
    )


def range_reader(config: SourceConfig) -> ReaderAround:
    """A reader of exact ranges (executor): the native one where it can be used.

    The environment variable ``KAFKA_TX_READER`` asks for ``python`` or ``native``.

    Raises:
        ConfigError: ``native`` was asked for and cannot be used; says why.
    """
    from kafka_tx.planned_topic import ReaderAround

    settings = client_settings(config.kafka, purpose="consumer")
    end_of = partial(_end_of_damage, settings)
    return ReaderAround(_whole_reader(config), config.skip_offsets, end_of)


def _end_of_damage(
    settings: Mapping[str, str], partition: TopicPartition, position: int
) -> int | None:
    from kafka_tx.kafka.damaged_records import end_of_damage

    return end_of_damage(settings, partition, position)


def _whole_reader(config: SourceConfig) -> RangeReader:
    settings = client_settings(config.kafka, purpose="consumer")
    from kafka_tx.native.reader import chosen

    settings.setdefault("group.id", f"{config.group_id_prefix}-{uuid.uuid4()}")
    kind: type[NativeRangeReader | KafkaRangeReader] | None = chosen(settings)
    if kind is None:
        from kafka_tx.kafka.reader import KafkaRangeReader

        kind = KafkaRangeReader
    return kind(
        settings,
        include_headers=config.include_headers or _needs_headers(config),
        timeout_ms=config.poll_timeout_ms,
    )


def _needs_headers(config: SourceConfig) -> bool:
    """Whether records are read with their headers, which may name their schemas."""
    return any(each.registry for each in config.formats)


def typed_batches(
    config: SourceConfig, planned: Mapping[str, str]
) -> Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]:
    """What types the keys and values of a task's batches (executor).

    ``planned``: by side the schemas of the batch's plan; see ``TypedBatches``.
    """
    if not config.formats:
        return lambda batch: (batch,)
    from kafka_tx.schemas.typed_batches import TypedBatches

    return TypedBatches(config.formats, config.include_headers, planned).pieces


def byte_limit(config: SourceConfig, clock: Clock) -> ByteLimit | None:
    """What bounds the bytes of the source's batches (driver); None: nothing does."""
    if config.limits.max_bytes is None:
        return None
    from kafka_tx.planning.byte_limit import ByteLimit

    timeout_ms = min(config.poll_timeout_ms, _SAMPLE_TIMEOUT_MS)
    of_samples = replace(config, poll_timeout_ms=timeout_ms, include_headers=False)
    return ByteLimit(config.limits.max_bytes, lambda: _whole_reader(of_samples), clock)


def log_view(config: SourceConfig) -> ClusterView:
    """A task's view of the partition that it reads (executor)."""
    reader = _whole_reader(config)
    from kafka_tx.native.reader import NativeRangeReader

    if not isinstance(reader, NativeRangeReader):
        return cluster_view(config)
    from kafka_tx.native.reader import NativeClusterView

    return NativeClusterView(reader, lambda: cluster_view(config))


def group_mirror(
    config: SourceConfig, on_failure: Callable[[], None] = lambda: None
) -> MirrorThread | None:
    """The copier of committed offsets to ``tx.commitGroupId``; None if not set."""
    transactions = config.transactions
    if transactions is None or transactions.commit_group_id is None:
        return None
    from kafka_tx.kafka.mirror import MirrorThread

    mirror = _group(config, transactions.commit_group_id, timeout_ms=10_000)
    return MirrorThread(mirror, config.subscription, on_failure)


def check_group(config: SourceConfig) -> None:
    """Refuse a ``tx.commitGroupId`` that takes no offsets; raises ConfigError."""
    transactions = config.transactions
    if transactions is not None and transactions.commit_group_id is not None:
        _group(config, transactions.commit_group_id).check_kind("tx.commitGroupId")


def group_offsets(
    config: SourceConfig,
) -> Callable[[list[TopicPartition]], dict[TopicPartition, LogPosition]] | None:
    """The reader of a group's positions for ``startingOffsets=committed``, if set.

    The group is ``tx.commitGroupId``, else ``kafka.group.id``. Reading raises
    ConfigError for a group that has no offsets of consumers.
    """
    transactions = config.transactions
    group = transactions.commit_group_id if transactions else None
    option = "tx.commitGroupId" if group else "kafka.group.id"
    group = group or config.kafka.get("group.id")
    if group is None or not isinstance(config.start, FromCommitted):
        return None
    mirror = _group(config, group)

    def load(partitions: list[TopicPartition]) -> dict[TopicPartition, LogPosition]:
        mirror.check_kind(option)
        return mirror.load(partitions)

    return load


def _group(config: SourceConfig, group: str, timeout_ms: int = 30_000) -> GroupMirror:
    from kafka_tx.kafka.mirror import GroupMirror

    settings = client_settings(config.kafka, purpose="admin")
    return GroupMirror(settings, group, timeout_ms=timeout_ms)
