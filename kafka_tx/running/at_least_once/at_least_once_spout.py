"""The at-least-once Kafka spout, and how its parts on the driver are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kafka_tx import assembly
from kafka_tx.config import SourceConfig, check_kind
from kafka_tx.errors import BrokerUnavailableError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    Assigned,
    Earliest,
    Subscription,
    TopicDescription,
    TopicPartition,
)
from kafka_tx.offsets.coordinators import RefreshingCoordinator
from kafka_tx.offsets.discovery import Discovery, FixedPartitions
from kafka_tx.protocols import Clock, ClusterView
from kafka_tx.running.at_least_once.chunk_reads import ChunkRecords
from kafka_tx.running.at_least_once.dead_letters import DeadLetters
from kafka_tx.running.at_least_once.offset_keeper import OffsetKeeper
from kafka_tx.running.at_least_once.poller_parts import ManagingCoordinator, PollerParts
from kafka_tx.running.at_least_once.spout_managers import SpoutManagers
from kafka_tx.running.task_reader import TaskReader
from kafka_tx.store_place import default_store
from kafka_tx.topology.declare.spout_config import SpoutConfig
from kafka_tx.topology.declare.spout_hosts import StaticHosts, ZkHosts
from kafka_tx.topology.rows.fields import Fields
from kafka_tx.topology.tracked.records import RecordSource


@dataclass(frozen=True)
class Deployment:
    """Which topology a spout is opened for.

    Attributes:
        topology: Its id; names the offsets' owner.
        name: This start of it: offsets of another one may be ignored, by
            ``ignore_stored_offsets``.
        store: URL of the offset store where the spout names none.
        registry: Takes the metrics.
        clock: The machine's.
        spouts: How many spouts the topology has.
    """

    topology: str
    name: str
    registry: MetricsRegistry
    clock: Clock
    store: str = field(default_factory=default_store)
    spouts: int = 1


class KafkaSpout:
    """Reads Kafka's records for a ``TopologyBuilder``; each is retried on its own.

    1. It becomes the owner of its id in the offset store: a former owner that still
       lives ends with ``FencedError`` when it next stores offsets (a Kafka group as
       store cannot tell owners apart).
    2. A partition coordinator (static, ZooKeeper, brokers: by the kind of ``hosts``)
       finds the partitions; each begins where the store says, else at
       ``start_offset_time``.
    3. Records are emitted in chunks, partition after partition; failed ones whose retry
       is due go first.
    4. Offsets are stored every ``state_update_interval_ms``, up to the first record
       that is not completed. A failed record is retried as configured; after its last
       try it becomes a dead letter, or is skipped.

    Source: Storm, KafkaSpout of storm-kafka.
    """

    def __init__(self, config: SpoutConfig) -> None:
        check_kind("config", config, SpoutConfig, "a SpoutConfig")
        self.config = config

    @property
    def fields(self) -> Fields:
        """Those of the scheme."""
        return self.config.scheme.fields

    def empty_chunk(self) -> RecordSource:
        """A chunk of nothing."""
        reader = TaskReader(self._source("nowhere:9092"))
        return ChunkRecords((), reader, self.config.scheme)

    def poller(self, component: str, deployment: Deployment) -> PollerParts:
        """Make what the driver needs; looks at the cluster and the store once.

        Raises:
            ConfigError: The store, the dead-letter topic or a Kafka setting cannot be
                used.
            KafkaError: The cluster cannot be looked at.
            StateError: The store cannot be reached, or an offset in it not be read.
        """
        config, clock = self.config, deployment.clock
        source = self._source(self._servers())
        keeper_id = config.id or (
            deployment.topology
            if deployment.spouts == 1
            else f"{deployment.topology}.{component}"
        )
        store = assembly.offset_store(
            config.store_url or deployment.store,
            keeper_id,
            source,
            by_topic=config.is_pattern,
        )
        keeper = OffsetKeeper(keeper_id, store, deployment.registry, clock)
        view = assembly.cluster_view(source)
        managers = SpoutManagers(
            config.partition_rules(deployment.topology, deployment.name),
            config.start_rules(deployment.name),
            view,
            keeper,
            deployment.registry,
        )
        topic = config.dead_letter_topic
        with_headers = replace(source, include_headers=True)
        letters = None if topic is None else DeadLetters(topic, with_headers)
        try:
            keeper.acquire(config.task_index, config.total_tasks)
            coordinator, close = self._coordinator(view, managers, clock)
            coordinator.my_managed_partitions()
            if letters is not None:
                letters.check()
        except BaseException:
            keeper.close(1.0)
            view.close()
            raise
        return PollerParts(
            name=component,
            coordinator=coordinator,
            cluster=assembly.cluster_view(source),
            keeper=keeper,
            reader=TaskReader(source),
            scheme=config.scheme,
            dead_letters=letters,
            commit_interval_ms=config.state_update_interval_ms,
            registry=deployment.registry,
            clock=clock,
            closing=(view.close, close),
        )

    def _coordinator(
        self, view: ClusterView, managers: SpoutManagers, clock: Clock
    ) -> tuple[ManagingCoordinator, Callable[[], None]]:
        """The coordinator for the kind of hosts, and what releases its look."""
        config, hosts = self.config, self.config.hosts
        share = (config.task_index, config.total_tasks)
        look: Callable[[Subscription], Mapping[str, TopicDescription]] = view.topics
        close = view.close
        if isinstance(hosts, StaticHosts):
            look = FixedPartitions(hosts.leaders(config.topic), look).describe
        if isinstance(hosts, ZkHosts):
            registered = assembly.zookeeper_topics(hosts)
            look, close = registered.topics, registered.close
        coordinator = RefreshingCoordinator(
            Discovery(look, config.subscription),
            *share,
            refresh_interval_ms=config.refresh_interval_ms,
            clock=clock,
            managers=managers,
        )
        return coordinator, close

    def _servers(self) -> str:
        """Where clients connect first.

        Raises:
            BrokerUnavailableError: ZooKeeper shows no leader of the topics.
        """
        hosts = self.config.hosts
        if hosts.bootstrap_servers:
            return hosts.bootstrap_servers
        assert isinstance(hosts, ZkHosts)
        topics = assembly.zookeeper_topics(hosts)
        try:
            found = Discovery(topics.topics, self.config.subscription).look()
        finally:
            topics.close()
        leaders = {leader for p in found.partitions if (leader := found.leader(p))}
        if not leaders:
            shown = hosts.connect.partition("?")[0]
            raise BrokerUnavailableError(
                f"ZooKeeper {shown} shows no leader of {self.config.topic!r};"
                " create the topic, or give ZkHosts its bootstrap_servers"
            )
        return ",".join(sorted(map(str, leaders)))

    def _source(self, servers: str) -> SourceConfig:
        config = self.config
        kafka = {"bootstrap.servers": servers, **config.client_options()}
        return SourceConfig(
            subscription=Assigned((TopicPartition(config.topic, 0),)),
            kafka=kafka,
            start=Earliest(),
            poll_timeout_ms=config.socket_timeout_ms,
            num_retries=1,
            retry_interval_ms=200,
        )
