"""At-least-once Kafka spouts, and how they open and close their partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from kafka_tx import assembly
from kafka_tx.config import SourceConfig, check_kind, offset_ranges
from kafka_tx.errors import BrokerUnavailableError, StateError
from kafka_tx.logs import event_log
from kafka_tx.metrics.catalogue import SKIPPED_OFFSETS
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    Assigned,
    AtOffset,
    Broker,
    CommittedOffset,
    Earliest,
    LogBounds,
    Subscription,
    TopicDescription,
    TopicPartition,
    Unavailable,
    few,
)
from kafka_tx.offsets.coordinators import RefreshingCoordinator
from kafka_tx.offsets.discovery import Discovery, FixedPartitions
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.position_checks import Settling, check_position
from kafka_tx.offsets.start import StartRules, choose_start, vanished
from kafka_tx.offsets.unfinished import PartitionRules
from kafka_tx.planning.deleted_topics import DeletedTopics
from kafka_tx.planning.log_bounds import EpochEnds
from kafka_tx.planning.start_positions import StartAnswers, matched_or_ends
from kafka_tx.protocols import Clock, ClusterView, Meter
from kafka_tx.running.at_least_once.dead_letters import DeadLetters
from kafka_tx.running.at_least_once.offset_keeper import OffsetKeeper
from kafka_tx.running.at_least_once.poller import PollerParts
from kafka_tx.running.at_least_once.reading import KafkaRecords
from kafka_tx.running.task_reader import TaskReader
from kafka_tx.store_place import StoreKind, default_store, kind_of
from kafka_tx.topology.at_least_once.records import AtLeastOnceSource
from kafka_tx.topology.declare.spout_config import SpoutConfig
from kafka_tx.topology.declare.spout_hosts import StaticHosts, ZkHosts
from kafka_tx.topology.rows.fields import Fields
from kafka_tx.topology.rows.schemes import reads_headers

logger = event_log(__name__)


@dataclass(frozen=True)
class Deployment:
    """The topology that a spout is opened for.

    Attributes:
        topology: Its id; names the offsets' owner.
        name: The name of this deployment: ``ignore_stored_offsets`` may ignore offsets
            of another one.
        store: URL of the offset store if the spout names none.
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

    1. The spout checks the offset store and the cluster first. If nothing stops the
       start, the spout becomes the owner of its id. A former owner that still runs
       stops with ``FencedError`` when it next stores offsets (a Kafka group as store
       cannot tell owners apart).
    2. A partition coordinator (static, ZooKeeper, brokers: by the kind of ``hosts``)
       finds the partitions. Each begins at its stored offset, or without one at
       ``start_offset_time``.
    3. Records are emitted in chunks, partition after partition. Failed records whose
       retry is due go first.
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
        """The fields of the scheme."""
        return self.config.scheme.fields

    def empty_chunk(self) -> AtLeastOnceSource:
        """A chunk without records."""
        reader = TaskReader(self._source("nowhere:9092"))
        return KafkaRecords((), reader, self.config.scheme)

    def judge(self, component: str, deployment: Deployment) -> None:
        """Raise the errors of ``poller`` early; fences no owner and writes nothing."""
        unseen = replace(deployment, registry=MetricsRegistry())
        self._opened(component, unseen, owns=False).discard()

    def poller(self, component: str, deployment: Deployment) -> PollerParts:
        """Make the parts for the driver; reads the cluster and the store once.

        Raises:
            ConfigError: The store, the dead-letter topic or a Kafka setting cannot be
                used.
            KafkaError: The brokers do not answer or refuse.
            OtherTopicsError: The id has offsets of other topics only.
            StateError: The store cannot be reached, or its offsets cannot be read.
        """
        return self._opened(component, deployment, owns=True)

    def _opened(
        self, component: str, deployment: Deployment, *, owns: bool
    ) -> PollerParts:
        config, clock = self.config, deployment.clock
        source = self._source(self._servers())
        own = "" if deployment.spouts == 1 else f".{component}"
        keeper_id = config.id or f"{deployment.topology}{own}"
        store = assembly.offset_store(
            config.store_url or deployment.store,
            keeper_id,
            source,
            by_topic=config.is_pattern,
        )
        with ExitStack() as opened:  # closed again unless all of it can be used
            keeper = OffsetKeeper(keeper_id, store, deployment.registry, clock)
            opened.callback(keeper.close, 1.0)
            view = assembly.cluster_view(source)
            opened.callback(view.close)
            managers = SpoutManagers(
                config.partition_rules(deployment.topology, deployment.name),
                config.start_rules(deployment.name),
                view,
                keeper,
                deployment.registry,
            )
            topic, dead_letters = config.dead_letter_topic, None
            if topic is not None:
                dead_letters = DeadLetters(topic, replace(source, include_headers=True))
                opened.callback(dead_letters.close, 1.0)
            keeper.check_topics(config.subscription)
            if owns:
                keeper.acquire(config.task_index, config.total_tasks)
            coordinator, close = self._coordinator(view, managers, clock)
            opened.callback(close)
            coordinator.my_managed_partitions()
            if dead_letters is not None:
                dead_letters.check()
            opened.pop_all()
        return PollerParts(
            name=component,
            coordinator=coordinator,
            cluster=assembly.cluster_view(source),
            keeper=keeper,
            reader=TaskReader(source),
            scheme=config.scheme,
            dead_letters=dead_letters,
            commit_interval_ms=config.state_update_interval_ms,
            registry=deployment.registry,
            clock=clock,
            closing=(view.close, close),
            skip=_skip_command(keeper_id, store.url, source),
        )

    def _coordinator(
        self, view: ClusterView, managers: SpoutManagers, clock: Clock
    ) -> tuple[RefreshingCoordinator, Callable[[], None]]:
        """The coordinator for the kind of hosts, and a function that closes it."""
        config, hosts = self.config, self.config.hosts
        share = (config.task_index, config.total_tasks)
        describe: Callable[[Subscription], Mapping[str, TopicDescription]] = view.topics
        close = view.close
        if isinstance(hosts, StaticHosts):
            describe = FixedPartitions(hosts.leaders(config.topic), describe).describe
        if isinstance(hosts, ZkHosts):
            registered = assembly.zookeeper_topics(hosts)
            describe, close = registered.topics, registered.close
        coordinator = RefreshingCoordinator(
            Discovery(describe, config.subscription),
            *share,
            refresh_interval_ms=config.refresh_interval_ms,
            clock=clock,
            deleted=DeletedTopics(view, clock).now,
            managers=managers,
        )
        return coordinator, close

    def _servers(self) -> str:
        """The bootstrap servers of clients; raises if ZooKeeper shows no leader."""
        hosts = self.config.hosts
        if hosts.bootstrap_servers:
            return hosts.bootstrap_servers
        assert isinstance(hosts, ZkHosts)
        with closing(assembly.zookeeper_topics(hosts)) as topics:
            found = Discovery(topics.topics, self.config.subscription).find()
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
            request_timeout_ms=config.socket_timeout_ms,
            num_retries=1,
            retry_interval_ms=200,
            skip_offsets=offset_ranges("skip_offsets", config.skip_offsets),
            include_headers=reads_headers(config.scheme),
        )


def _skip_command(id_: str, url: str, source: SourceConfig) -> str:
    """The command that marks records as done, to be followed by them; empty: none."""
    if kind_of(url) is not StoreKind.SQL:
        return ""
    servers = source.kafka["bootstrap.servers"]
    return (
        f"kafka-tx skip --store '{url}' --id {id_} --bootstrap-servers {servers} --yes"
        " --records"
    )


@dataclass(frozen=True, slots=True)
class _Found:
    stored: CommittedOffset | None
    bounds: LogBounds | Unavailable
    position: int | Unavailable


class SpoutManagers:
    """A coordinator's ``ManagerSource`` (driver).

    Offsets and logs of all partitions are fetched at once, before the first partition
    is opened, on another thread: the topology's thread does not wait for them. A
    partition that cannot be opened yet keeps the start that was found first.
    """

    def __init__(
        self,
        rules: PartitionRules,
        start: StartRules,
        cluster: ClusterView,
        keeper: OffsetKeeper,
        meter: Meter,
    ) -> None:
        self._rules = rules
        self._start = start
        self._cluster = cluster
        self._keeper = keeper
        self._meter = meter
        self._found: dict[TopicPartition, _Found] = {}
        self._starts = StartAnswers(cluster)
        self._settling = Settling()
        self._ends = EpochEnds(cluster)
        self._has_stored: dict[str, bool] = {}

    def prepare(
        self, partitions: Iterable[TopicPartition], share: Iterable[TopicPartition] = ()
    ) -> None:
        """See ``ManagerSource``.

        Raises:
            StateError: The stored offsets cannot be read, or some of them are gone.
            BrokerUnavailableError: The log bounds cannot be fetched now.
        """
        self._found = {}
        self._found = self._fetch(set(partitions), set(share))

    def open(
        self,
        partition: TopicPartition,
        leader: Broker | None,
        *,
        is_new: bool,
        is_awaited: bool = False,
    ) -> PartitionManager:
        """See ``ManagerSource``.

        Raises:
            DataLossError: The start is not in the log, and the policy is to fail.
            BrokerUnavailableError: The log's bounds or topic id are not known now, or
                its end lies below the stored offset and may be an old answer.
        """
        found = self._found.pop(partition, None)
        if found is None:
            raise BrokerUnavailableError(f"{partition} has not been polled yet")
        for answer in (found.bounds, found.position):
            if isinstance(answer, Unavailable):
                raise BrokerUnavailableError(f"{partition}: {answer.reason}")
        assert isinstance(found.bounds, LogBounds)
        assert not isinstance(found.position, Unavailable)
        log = self._settled(partition, found.stored, found.bounds)
        # No run has seen a partition that was added while the topology was stopped.
        is_new = is_new or self._has_stored.get(partition.topic, False)
        start, resolved = self._start, found.position
        if is_new and found.stored is None:
            resolved = log.log_start if is_awaited else 0
            start = replace(start, position=Earliest() if is_awaited else AtOffset(0))
        decision = choose_start(
            partition, start, stored=found.stored, resolved=resolved, bounds=log
        )
        logger.info("%s", decision.reason)
        for reason, count in decision.lost.items():
            self._meter.add(
                SKIPPED_OFFSETS.name,
                count,
                id=self._keeper.id,
                topic=partition.topic,
                partition=str(partition.partition),
                reason=reason,
            )
        self._starts.forget([partition])
        at = decision.committed
        return PartitionManager(
            partition, self._rules, at, stored=found.stored, leader=leader
        )

    def _settled(
        self,
        partition: TopicPartition,
        stored: CommittedOffset | None,
        bounds: LogBounds,
    ) -> LogBounds:
        """The log's bounds, if the log is the one of the stored offset."""
        if stored is None:
            return bounds
        check = check_position(stored.reached, bounds)
        if check.log is None:
            raise BrokerUnavailableError(
                f"{partition}: no broker tells whether its topic is still the one with"
                f" the id {stored.topic_id}, of which offset {stored.offset} is stored,"
                f" and its log that of leader epoch {stored.leader_epoch}"
            )
        if self._settling.believes(partition, check, self._keeper.now_ms()):
            self._settling.forget(partition)
            return check.log
        raise BrokerUnavailableError(
            f"{partition} is said to be {check.finding.value} at the stored offset"
            f" {stored.offset}: the next poll decides"
        )

    def _fetch(
        self, partitions: set[TopicPartition], share: set[TopicPartition]
    ) -> dict[TopicPartition, _Found]:
        beside = {p for p in share if p.topic not in self._has_stored}
        stored = self._keeper.load(partitions, beside)
        self._check_vanished(partitions, stored)
        positions: dict[TopicPartition, int | Unavailable | None] = {}
        is_earliest = isinstance(self._start.position, Earliest)
        if not is_earliest:  # before the ends, which move on
            wanted = dict.fromkeys(partitions, self._start.position)
            positions = matched_or_ends(self._starts, wanted)
        found = self._cluster.bounds(partitions)
        logs = {p: at for p, at in found.items() if isinstance(at, LogBounds)}
        ids = {p.topic: at.topic_id for p, at in logs.items()}
        for partition in self._starts.renew(ids) & partitions:
            positions[partition] = Unavailable("its topic was created anew meanwhile")
        stored = {
            p: _of_topic(offset, found.get(p))
            for p, offset in stored.items()
            if p in partitions
        }
        bounds = self._ends.completed(
            found, {partition: offset.reached for partition, offset in stored.items()}
        )
        if is_earliest:
            positions = {
                partition: at.log_start if isinstance(at, LogBounds) else at
                for partition, at in bounds.items()
            }
        nothing = Unavailable("the brokers did not tell")
        starts = {p: at for p, at in positions.items() if at is not None}
        return {
            p: _Found(stored.get(p), bounds.get(p, nothing), starts.get(p, nothing))
            for p in partitions
        }

    def _check_vanished(
        self,
        partitions: set[TopicPartition],
        stored: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        """Check for lost offsets, the first time that a topic is prepared.

        Later a partition without offset is new, or was never begun.
        """
        own = {p: o for p, o in stored.items() if self._start.counts(o)}
        first = {p for p in partitions if p.topic not in self._has_stored}
        topics = {partition.topic for partition in own}
        missing = first - stored.keys()
        gone = vanished(missing, own) if self._keeper.forgets else []
        if gone:
            raise StateError(
                f"'{self._keeper.id}' has offsets of {', '.join(sorted(topics))}, but"
                f" none of {few(gone)}: they expired (offsets.retention.minutes of the"
                " brokers), were deleted, or nothing was read there so far (no leader,"
                " or not in StaticHosts). Beginning anew could lose or repeat"
                " records, so nothing was begun. Decide with kafka-consumer-groups"
                f" --group {self._keeper.id} --reset-offsets --topic"
                f" {_named(gone)} --execute and --to-earliest (repeats what is left in"
                " their logs), --to-latest (leaves it out) or --to-offset",
                id=self._keeper.id,
            )
        self._has_stored |= {p.topic: p.topic in topics for p in first}

    def close(self, managers: Sequence[PartitionManager]) -> None:
        """Commit completed records; see ``ManagerSource``."""
        offers = {manager: manager.next_to_commit() for manager in managers}
        wanted = {m: offset for m, offset in offers.items() if offset is not None}
        if wanted:
            self._keeper.store_now(wanted)


def _named(partitions: Sequence[TopicPartition]) -> str:
    """Partitions for Kafka's tools: ``topic:1,3``, with --topic before each topic."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    parts = (f"{topic}:{','.join(map(str, ns))}" for topic, ns in topics.items())
    return " --topic ".join(parts)


def _of_topic(
    stored: CommittedOffset, found: LogBounds | Unavailable | None
) -> CommittedOffset:
    """The offset of another program in a group, which brokers drop with its topic."""
    if stored.topic_id or stored.leader_epoch is None or found is None:
        return stored
    return replace(stored, topic_id=found.topic_id or "")
