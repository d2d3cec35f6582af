"""Builder, start and handle of topologies of numbered batches on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from kafka_tx import assembly
from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import ConfigError
from kafka_tx.metrics.endpoint import Endpoint, Guest
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.options.shown import shown
from kafka_tx.options.topology import TopologySettings, parse_settings
from kafka_tx.planning.other_topics import check_shared
from kafka_tx.protocols import Store
from kafka_tx.running.kafka_sink_bolt import KafkaBolt
from kafka_tx.running.lag_watch import SpoutLagWatch
from kafka_tx.running.last_run import show_committed, show_last_stop
from kafka_tx.running.serial_worker import SerialWorker
from kafka_tx.running.transactional.batch_progress import (
    BatchProgress,
    Journal,
    Listener,
    TerminalProgress,
)
from kafka_tx.running.transactional.kafka_spouts import KafkaSpoutFromOptions
from kafka_tx.running.transactional.spout_thread import SpoutThread
from kafka_tx.spark.topologies.engine import SparkEngine
from kafka_tx.spark.topologies.running import (
    END_WITHIN_S,
    AttemptEngine,
    RunningTopology,
)
from kafka_tx.spark.topologies.start import start_topology
from kafka_tx.spark.transactional.runner import TransactionalRunner
from kafka_tx.topology.builder import (
    BoltDeclarer,
    Builder,
    Draft,
    Topology,
    spout_component,
)
from kafka_tx.topology.declare.graph import Component, ComponentKind
from kafka_tx.topology.declare.spouts import Spout
from kafka_tx.topology.declare.templates import Dumps
from kafka_tx.topology.plan.physical import PhysicalPlan
from kafka_tx.transactions.coordinator.coordinator import TransactionCoordinator
from kafka_tx.transactions.layout.commit_stats import history_of
from kafka_tx.transactions.layout.txid_layout import Door, numbered
from kafka_tx.transactions.ledger.ledger_reading import LedgerReader
from kafka_tx.transactions.ownership.guarded_writes import take_over
from kafka_tx.transactions.ownership.takeover import DraftingStore, taken_over

if TYPE_CHECKING:
    from kafka_tx.kafka.mirror import MirrorThread


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """An in-flight batch.

    Attributes:
        txid: Its number.
        attempt_id: The number of its current attempt.
        phase: processing, processed, committing or recording.
    """

    txid: int
    attempt_id: int
    phase: str


@dataclass(frozen=True, slots=True)
class TopologyStatus:
    """The present state of a topology.

    Attributes:
        id: The topology's id.
        is_active: Whether it runs.
        committed_txid: The txid of the last committed batch; None before the first one.
        in_flight: In-flight batches, in txid order.
        replays: Number of attempts that were given up so far.
        lag: Records of the source that no committed batch holds; None if unknown, for
            example while a partition has no leader.
    """

    id: str
    is_active: bool
    committed_txid: int | None
    in_flight: tuple[BatchStatus, ...]
    replays: int
    lag: int | None


class TopologyHandle(RunningTopology[BatchProgress]):
    """A running topology of batches, used as Spark's ``StreamingQuery`` is.

    ``start`` of a built topology returns it. Safe in any thread.
    """

    def __init__(self, runner: TransactionalRunner, endpoint: Endpoint | Guest) -> None:
        super().__init__(runner, endpoint)
        self._runner = runner
        self._journal = runner.journal

    @property
    def status(self) -> TopologyStatus:
        """The topology's present state."""
        view = self._runner.view
        return TopologyStatus(
            id=self.id,
            is_active=self.isActive,
            committed_txid=view.committed_txid,
            in_flight=tuple(
                BatchStatus(attempt.txid, attempt.attempt_id, phase.value)
                for attempt, phase in view.phases.items()
            ),
            replays=self._journal.replays,
            lag=self.metrics.lag_of(self.id),
        )

    @property
    def recentProgress(self) -> list[BatchProgress]:
        """The last 100 batches that were committed since the start, oldest first."""
        return list(self._journal.recent)

    def stop(self, *, finish: bool = True, timeout_s: float | None = 60.0) -> None:
        """End the topology and wait for the end. Harmless if it has ended.

        Args:
            finish: True: commit in-flight batches first. False: cancel them, except a
                commit phase that has begun.
            timeout_s: Seconds until everything is cut off, as by a crash; a restart
                goes on from the recorded state.

        Raises:
            TransactionError: It was cut off.
        """
        self._end(finish=finish, timeout_s=timeout_s)


@dataclass(frozen=True)
class TransactionalTopology(Topology):
    """A checked topology of numbered batches that Spark can run; immutable.

    Attributes:
        spout: The user's spout; stays on the driver. Serves one run at a time.
    """

    spout: Spout

    def start(
        self,
        spark: SparkSession,
        config: Mapping[str, Any] | None = None,
        *,
        listeners: Iterable[Listener] = (),
        registry: MetricsRegistry | None = None,
    ) -> TopologyHandle:
        """Run the topology until it is stopped. It continues after its last commit.

        Args:
            spark: A classic session; must live as long as the topology.
            config: Settings, with our names (``tx.…``) or Storm's names.
            listeners: Called after each committed batch, in txid order, on a thread of
                their own.
            registry: Takes the metrics; a new one if None.

        Raises:
            ConfigError: A setting, the store's URL or the session cannot be used, or a
                running topology reads the spout object.
            StateError: The store cannot be reached, or its records cannot be read.
            Exception: The error that the spout raises when it is opened.
        """
        settings = parse_settings(config)

        def opened(
            plan: PhysicalPlan, registry: MetricsRegistry
        ) -> TransactionalRunner:
            plan = replace(plan, settings={**plan.settings, **_sinks_memories(plan)})
            engine = SparkEngine(spark, plan)
            store = DraftingStore(assembly.retrying_store(settings.store, self.id))

            def show() -> None:
                given = shown(config or {}, store.url)
                registry.record_start(
                    *(self.id, "transactional topology", given),
                    waits_ms=_waits_ms(self),
                )
                show_last_stop(registry, store)

            return open_runner(
                self, plan, engine, settings, store, registry, listeners, show
            )

        pending = settings.pacing.max_pending
        return TopologyHandle(
            *start_topology(self, spark, config, settings, pending, registry, opened)
        )


class TransactionalTopologyBuilder(Builder):
    """Declares a topology of numbered batches with one spout, to be run on Spark.

    Bolts and spouts may be defined anywhere, also in a notebook or in the main script.

    Args:
        topology_id: Names the stored txids and metadata: 1 to 200 of the characters
            ``A-Z a-z 0-9 . _ -``. Keep it the same over restarts.
        spout_name: The spout's component name.
        spout: A transactional, partitioned or opaque spout. Each topology that runs
            needs a spout object of its own.
        parallelism: Number of tasks that read the spout.

    Raises:
        ConfigError: Illegal id. ``build`` reports all other problems.

    Source: Storm, TransactionalTopologyBuilder.
    """

    _legal = (
        ComponentKind.BASIC,
        ComponentKind.BATCH,
        ComponentKind.COMMITTER,
        ComponentKind.DATAFRAME,
    )

    def __init__(
        self, topology_id: str, spout_name: str, spout: Spout, parallelism: int = 1
    ) -> None:
        super().__init__(topology_id)
        self._spout_name = spout_name
        self._spout = spout
        self._parallelism = parallelism

    def set_committer_bolt(
        self, name: str, bolt: object, parallelism: int | None = None
    ) -> BoltDeclarer:
        """Add a batch bolt whose ``finish_batch`` belongs to the commit phase.

        The same as ``set_bolt`` with a bolt that is marked as a committer. The default
        is one task.
        """
        return self._add(Draft(name, bolt, parallelism, as_committer=True))

    def build(self, dumps: Dumps = cloudpickle.dumps) -> TransactionalTopology:
        """Check and plan the topology; ``start`` of the result runs it.

        You can use the builder again.

        Args:
            dumps: Pickles user code, in a form that ``pickle.loads`` reads.

        Raises:
            ConfigError: Lists all problems, with the components' names.
        """
        spout, problems = self._spout_component(dumps)
        plan = self._plan([spout], problems, dumps)
        return TransactionalTopology(self._id, plan, self._spout)

    def _spout_component(self, dumps: Dumps) -> tuple[Component, list[str]]:
        name = self._spout_name
        spout: object = self._spout
        if not isinstance(spout, Spout):
            problem = (
                f"component '{name}': {spout!r} is no transactional spout; subclass"
                " TransactionalSpout, PartitionedTransactionalSpout or"
                " OpaquePartitionedTransactionalSpout."
            )
            return Component(name, ComponentKind.SPOUT, self._parallelism), [problem]
        return spout_component(
            name, spout.fields, self._parallelism, spout.empty_batch, dumps
        )


def _waits_ms(topology: TransactionalTopology) -> int:
    """How long records may wait until there are enough for a batch."""
    spout = topology.spout
    if not isinstance(spout, KafkaSpoutFromOptions):
        return 0
    return spout.config.limits.waits_ms


def _sinks_memories(plan: PhysicalPlan) -> dict[str, str]:
    """The present markers of Kafka sinks, as settings for their tasks."""
    found: dict[str, str] = {}
    for component in plan.graph.components:
        bolt = component.template.given if component.template else None
        if isinstance(bolt, KafkaBolt):
            found |= bolt.remembered()
    return found


def open_runner(
    topology: TransactionalTopology,
    plan: PhysicalPlan,
    engine: AttemptEngine,
    settings: TopologySettings,
    store: DraftingStore,
    registry: MetricsRegistry,
    listeners: Iterable[Listener] = (),
    show: Callable[[], None] = lambda: None,
) -> TransactionalRunner:
    """Become the owner of the topology's state, show the start, and make the runner.

    Raises:
        ConfigError: Another running topology reads the spout object. Or
            ``tx.commitGroupId`` is set, but the spout does not read Kafka, or names a
            group that takes no offsets.
        StateError: The store cannot be reached, or its records cannot be read.
        Exception: The error that the spout raises when it is opened. After each error,
            the spout and the store are closed.
    """
    called = list(listeners)
    if settings.shows_progress:
        called.append(TerminalProgress(topology.id))
    with ExitStack() as opened:
        opened.callback(store.close)
        spout = _spout_thread(topology, registry)
        opened.callback(spout.close, END_WITHIN_S)
        # the last checks of a start: a refused start fences no owner
        spout.open(topology.id)
        mirror = _mirror(topology, settings.commit_group_id, registry)
        coordinator, journal = taken_over(
            store, lambda: _opened(topology, settings, store, registry)
        )
        show_committed(registry, topology.id, coordinator.state)
        show()
        runner = TransactionalRunner(
            *(plan, engine, spout, coordinator, journal, store),
            listeners=called,
            mirror=mirror,
        )
        opened.pop_all()
    return runner


def _spout_thread(
    topology: TransactionalTopology, registry: MetricsRegistry
) -> SpoutThread:
    spout, id_ = topology.spout, topology.id
    bounds, edges = getattr(spout, "bounds", None), getattr(spout, "edges", None)
    watch = SpoutLagWatch(bounds, registry, id_, assembly.SystemClock(), edges)
    worker = SerialWorker(f"kafka-tx {id_} spout")
    name = topology.plan.graph.components[0].name
    return SpoutThread(worker, spout, name, watch.poll)


def _opened(
    topology: TransactionalTopology,
    settings: TopologySettings,
    store: Store,
    registry: MetricsRegistry,
) -> tuple[TransactionCoordinator[Any], Journal]:
    epoch = take_over(store)  # before reading: an older owner may still write
    reader = LedgerReader(store.url, store.id, Door.TRANSACTIONAL)
    state = reader.read(numbered(store, epoch), epoch)
    spout = topology.spout
    if isinstance(spout, KafkaSpoutFromOptions):
        known = state.fixed_partitions if spout.mode == "opaque" else state.partitions
        check_shared(topology.id, store.url, spout.config.subscription, known)
    mode, pacing = spout.mode, settings.pacing
    coordinator = TransactionCoordinator[Any](mode, pacing, reader, state)
    journal = Journal(
        *(topology.id, registry, assembly.SystemClock()),
        shown=frozenset(state.position.offsets),
        history=history_of(store.url, settings.history),
    )
    return coordinator, journal


def _mirror(
    topology: TransactionalTopology, group: str | None, registry: MetricsRegistry
) -> MirrorThread | None:
    """The mirror into the Kafka group; None without ``tx.commitGroupId``."""
    spout = topology.spout
    if not isinstance(spout, KafkaSpoutFromOptions):
        if group is None:
            return None
        raise ConfigError.illegal(
            "tx.commitGroupId", group, "set only where the spout reads Kafka"
        )
    spout.commits_to(TransactionsConfig(id=topology.id, commit_group_id=group))
    assembly.check_group(spout.config)

    def failed() -> None:
        registry.add("kafka_tx_mirror_failures_total", id=topology.id)

    return assembly.group_mirror(spout.config, failed)
