"""Builders of topologies that can be started on Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from kafka_tx import assembly
from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import ConfigError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.options.shown import shown
from kafka_tx.options.topology_options import TopologySettings, parse_settings
from kafka_tx.protocols import Store
from kafka_tx.running.ends import show_committed, show_last_stop
from kafka_tx.running.kafka_sink_bolt import KafkaBolt
from kafka_tx.running.lag_watch import SpoutLagWatch
from kafka_tx.running.transactional.batch_progress import (
    Journal,
    Listener,
    TerminalProgress,
    kafka_ranges,
)
from kafka_tx.running.transactional.drop_in_spouts import KafkaSpoutFromOptions
from kafka_tx.running.transactional.runner_parts import RunnerParts
from kafka_tx.spark.default_store import refuse_default_store
from kafka_tx.spark.topologies.engine import SparkEngine
from kafka_tx.spark.topologies.running import end_with_session, serve_metrics
from kafka_tx.spark.topologies.session import check_session
from kafka_tx.spark.transactional.transactional_handle import TopologyHandle
from kafka_tx.spark.transactional.transactional_runner import TransactionalRunner
from kafka_tx.topology import builder as topology_builder
from kafka_tx.topology.builder import TransactionalTopology
from kafka_tx.topology.declare.bolts import TOPOLOGY_ID
from kafka_tx.topology.declare.templates import Dumps
from kafka_tx.topology.kafka.stored_batches import batches_in
from kafka_tx.topology.plan.physical import PhysicalPlan
from kafka_tx.transactions.chain import Opened
from kafka_tx.transactions.coordinator import TransactionCoordinator
from kafka_tx.transactions.following import take_over
from kafka_tx.transactions.rehearsals import RehearsedStore, taken_over
from kafka_tx.transactions.rotating import RecordCodec
from kafka_tx.transactions.txid_layout import numbered

if TYPE_CHECKING:
    from kafka_tx.kafka.mirror import MirrorThread


def start_topology(
    topology: TransactionalTopology,
    spark: SparkSession,
    config: Mapping[str, Any] | None = None,
    *,
    listeners: Iterable[Listener] = (),
    registry: MetricsRegistry | None = None,
) -> TopologyHandle:
    """Run a topology; see ``StartableTopology.start``."""
    settings = parse_settings(config)
    plan = replace(topology.plan, settings={**(config or {}), TOPOLOGY_ID: topology.id})
    check_session(spark, plan, settings.pacing.max_pending)
    refuse_default_store(spark, config)
    registry = registry or MetricsRegistry(spark_version=spark.version)
    plan = replace(plan, settings={**plan.settings, **_sinks_memories(plan)})
    store = RehearsedStore(assembly.patient_store(settings.store, topology.id))
    endpoint = serve_metrics(registry, settings)
    try:  # the last thing that may be refused, so that no refused start fences
        parts = taken_over(
            store, lambda: open_parts(topology, settings, store, registry, listeners)
        )
    except BaseException:
        store.close()
        endpoint.close()
        raise
    given = shown(config or {}, store.url)
    registry.record_start(topology.id, "transactional topology", given)
    show_last_stop(registry, store)
    runner = TransactionalRunner(parts, SparkEngine(spark, plan), plan)
    runner.start()
    end_with_session(runner, spark.sparkContext)
    return TopologyHandle(runner, parts, endpoint)


def _sinks_memories(plan: PhysicalPlan) -> dict[str, str]:
    """What is known of the markers of Kafka sinks, as settings for their tasks."""
    found: dict[str, str] = {}
    for component in plan.graph.components:
        bolt = component.template.given if component.template else None
        if isinstance(bolt, KafkaBolt):
            found |= bolt.remembered()
    return found


def open_parts(
    topology: TransactionalTopology,
    settings: TopologySettings,
    store: Store,
    registry: MetricsRegistry,
    listeners: Iterable[Listener] = (),
) -> RunnerParts:
    """Become the owner of the topology's state, and make what its runner drives.

    Raises:
        ConfigError: A Kafka group is wanted and the spout reads no Kafka.
        StateError: The store cannot be reached, or a record of it not be read.
    """
    epoch = take_over(store)  # before reading: an older owner may still write
    opened = Opened(epoch, numbered(store, epoch), store.url, store.id)
    clock = assembly.SystemClock()
    coordinator = TransactionCoordinator[Any](
        topology.spout.mode,
        RecordCodec("metadata", store.url, store.id),
        settings.pacing,
        opened,
    )
    reported = list(listeners)
    if settings.shows_progress:
        reported.append(TerminalProgress(topology.id))
    stored = batches_in(opened)
    show_committed(registry, topology.id, stored)
    shown = frozenset(stored.committed.offsets if stored.committed else ())
    journal = Journal(topology.id, registry, clock, shown)
    return RunnerParts(
        spout=topology.spout,
        spout_name=topology.spout_name,
        store=store,
        coordinator=coordinator,
        journal=journal,
        clock=clock,
        listeners=reported,
        watch=SpoutLagWatch(
            getattr(topology.spout, "bounds", None), registry, topology.id, clock
        ),
        mirror=_mirror(topology, settings.commit_group_id, journal),
    )


def _mirror(
    topology: TransactionalTopology, group: str | None, journal: Journal
) -> GroupOfSpout | None:
    """What sends the ends of a batch's ranges to a Kafka group, if asked for."""
    if group is None:
        return None
    spout = topology.spout
    if not isinstance(spout, KafkaSpoutFromOptions):
        raise ConfigError.illegal(
            "tx.commitGroupId", group, "set only where the spout reads Kafka"
        )
    spout.commits_to(TransactionsConfig(id=topology.id, commit_group_id=group))

    def failed() -> None:
        journal.registry.add("kafka_tx_mirror_failures_total", id=journal.id)

    thread = assembly.group_mirror(spout.config, failed)
    assert thread is not None
    return GroupOfSpout(thread)


class GroupOfSpout:
    """The ``Mirror`` into a Kafka group, for the ranges of a Kafka spout."""

    def __init__(self, thread: MirrorThread) -> None:
        self._thread = thread

    def __call__(self, metadata: Any) -> None:  # noqa: ANN401 - the spout's
        """Send where these ranges end."""
        self._thread({p: end for p, (_, end) in kafka_ranges(metadata).items()})

    def close(self) -> None:
        """Send what waits, within a bounded time."""
        self._thread.close()


@dataclass(frozen=True)
class StartableTopology(topology_builder.TransactionalTopology):
    """A checked topology that Spark can run; immutable."""

    def start(
        self,
        spark: SparkSession,
        config: Mapping[str, Any] | None = None,
        *,
        listeners: Iterable[Listener] = (),
        registry: MetricsRegistry | None = None,
    ) -> TopologyHandle:
        """Run it until it is stopped; it goes on where it committed.

        Args:
            spark: A classic session; must live as long as the topology.
            config: Settings, ours (``tx.…``) or by Storm's names.
            listeners: Called after each committed batch, in txid order, on a thread of
                their own.
            registry: Takes the metrics; a new one if None.

        Raises:
            ConfigError: A setting, the store's URL or the session cannot be used.
            StateError: The store cannot be reached, or a record of it not be read.
            Exception: What the spout raises when it is opened.
        """
        return start_topology(
            self, spark, config, listeners=listeners, registry=registry
        )


class TransactionalTopologyBuilder(topology_builder.TransactionalTopologyBuilder):
    """Declares a topology of numbered batches with one spout, to be run on Spark.

    See ``kafka_tx.topology.builder.TransactionalTopologyBuilder``. Bolts and spouts may
    be defined anywhere, also in a notebook or in the main script.
    """

    def build(self, dumps: Dumps = cloudpickle.dumps) -> StartableTopology:
        """Check everything and plan it; ``start`` of the result runs it.

        The builder may be used further.

        Raises:
            ConfigError: Lists all that is wrong, with the components' names.
        """
        built = super().build(dumps)
        return StartableTopology(built.id, built.plan, built.spout_name, built.spout)
