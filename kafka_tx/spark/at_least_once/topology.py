"""Builder, start and handle of at-least-once topologies on Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from kafka_tx.assembly import SystemClock
from kafka_tx.errors import ConfigError
from kafka_tx.metrics.endpoint import Endpoint, Guest
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.options.shown import shown
from kafka_tx.options.topology import parse_at_least_once_settings
from kafka_tx.own_topics import add_letters
from kafka_tx.protocols import Store
from kafka_tx.running.at_least_once.hangs import HangListener
from kafka_tx.running.at_least_once.poller import PollerParts
from kafka_tx.running.at_least_once.spout import Deployment, KafkaSpout
from kafka_tx.running.last_run import open_stop_store, show_last_stop
from kafka_tx.running.task_reports import DriverAddress
from kafka_tx.spark.at_least_once.runner import AtLeastOnceRunner
from kafka_tx.spark.topologies.engine import SparkEngine
from kafka_tx.spark.topologies.running import END_WITHIN_S, RunningTopology
from kafka_tx.spark.topologies.start import start_topology
from kafka_tx.topology.at_least_once.records import AtLeastOnceSpout
from kafka_tx.topology.builder import Builder, Topology, spout_component
from kafka_tx.topology.declare.graph import ComponentKind
from kafka_tx.topology.declare.templates import Dumps
from kafka_tx.topology.plan.physical import PhysicalPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLeastOnceStatus:
    """The present state of an at-least-once topology, and its counts since the start.

    Attributes:
        id: The topology's id.
        is_active: Whether it runs.
        chunks: In-flight chunks, one job each.
        pending: Records emitted and not completed.
        waiting: Pending records that failed and wait for their retry.
        emitted: Records emitted for the first time.
        completed: Records completed, skipped ones and dead letters included.
        failed: Failures of records.
        retried: Records emitted again.
        lost: Records that the log deleted before they were completed.
        skipped: Records that ran out of retries and were dropped.
        dead_letters: Records that ran out of retries and were written as dead letters.
        lag: Records of the log that are not committed; None if unknown, for example
            while a partition has no leader.
    """

    id: str
    is_active: bool
    chunks: int = 0
    pending: int = 0
    waiting: int = 0
    emitted: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    lost: int = 0
    skipped: int = 0
    dead_letters: int = 0
    lag: int | None = None


_COUNTED = ("emitted", "completed", "failed", "retried", "lost")


class AtLeastOnceTopologyHandle(RunningTopology[AtLeastOnceStatus]):
    """A running at-least-once topology, used as Spark's ``StreamingQuery`` is.

    ``start`` of a built topology returns it. Safe in any thread.
    """

    def __init__(self, runner: AtLeastOnceRunner, endpoint: Endpoint | Guest) -> None:
        super().__init__(runner, endpoint)
        self._runner = runner

    @property
    def status(self) -> AtLeastOnceStatus:
        """The topology's state, at most two seconds old."""
        return replace(
            self._status(self._runner.view, self._runner.totals),
            is_active=self.isActive,
            lag=self._lag(),
        )

    @property
    def recentProgress(self) -> list[AtLeastOnceStatus]:
        """The last 100 counts that differ from the one before, oldest first; no lag.

        They are taken every two seconds.
        """
        return [self._status(*counted) for counted in list(self._runner.recent)]

    def _status(
        self, view: Mapping[str, int], totals: Mapping[str, int]
    ) -> AtLeastOnceStatus:
        words = (*_COUNTED, "skipped", "dead_letters")
        return AtLeastOnceStatus(
            id=self.id,
            is_active=True,
            **view,
            **{word: totals.get(word, 0) for word in words},
        )

    def _lag(self) -> int | None:
        pollers = [poller.parts for poller in self._runner.pollers.values()]
        if not all(parts.coordinator.is_complete for parts in pollers):
            return None
        lags = [self.metrics.lag_of(id_) for id_ in {p.keeper.id for p in pollers}]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known and len(known) == len(lags) else None

    def stop(self, *, finish: bool = True, timeout_s: float | None = 60.0) -> None:
        """Commit completed records, end the topology and wait for the end.

        Harmless if it has ended. Records that are not completed are emitted again
        after the next start.

        Args:
            finish: True: wait for in-flight jobs first. False: cancel them.
            timeout_s: Seconds until everything is cut off, as by a crash. None: jobs
                take their time; the last commit has 30 s after them.

        Raises:
            TransactionError: It was cut off.
        """
        self._runner.end_within(timeout_s)
        self._end(finish=finish, timeout_s=timeout_s)


@dataclass(frozen=True)
class AtLeastOnceTopology(Topology):
    """A checked topology that replays single records on Spark; immutable.

    Attributes:
        spouts: The user's spouts by component name; they stay on the driver.
    """

    spouts: Mapping[str, AtLeastOnceSpout]

    def start(
        self,
        spark: SparkSession,
        config: Mapping[str, Any] | None = None,
        *,
        registry: MetricsRegistry | None = None,
    ) -> AtLeastOnceTopologyHandle:
        """Run the topology until it is stopped. It continues at the stored offsets.

        Args:
            spark: A classic session; must live as long as the topology.
            config: Settings, with our names (``tx.…``) or Storm's names.
            registry: Takes the metrics; a new one if None.

        Raises:
            ConfigError: A setting, a store's URL or the session cannot be used.
            KafkaError: The brokers do not answer or refuse.
            StateError: The store cannot be reached, or its offsets cannot be read.
        """
        settings = parse_at_least_once_settings(config)
        store = settings.topology.store

        def opened(plan: PhysicalPlan, registry: MetricsRegistry) -> AtLeastOnceRunner:
            engine, clock = SparkEngine(spark, plan), SystemClock()
            driver = DriverAddress.of(spark.sparkContext.getConf().get)
            deployment = Deployment(
                topology=self.id,
                name=settings.deployment or self.id,
                store=store,
                registry=registry,
                clock=clock,
                spouts=len(self.spouts),
            )
            pollers = _pollers(self.spouts, deployment)
            for id_, task in _tasks(self, pollers).items():
                registry.record_start(
                    id_, "at least once", shown(config or {}), task=task
                )
            stop_store = _stop_store(self, store)
            if stop_store is not None:
                show_last_stop(registry, stop_store, self.id)
            return AtLeastOnceRunner(
                *(plan, engine, pollers, settings.limits, registry, clock, stop_store),
                listen=partial(HangListener, driver),
            )

        chunks = settings.limits.chunks
        return AtLeastOnceTopologyHandle(
            *start_topology(
                self, spark, config, settings.topology, chunks, registry, opened
            )
        )


class TopologyBuilder(Builder):
    """Declares an at-least-once topology: each record is replayed on its own.

    Bolts may be defined anywhere, also in a notebook or in the main script.

    Args:
        topology_id: Names the committed offsets: 1 to 200 of the characters
            ``A-Z a-z 0-9 . _ -``. Keep it the same over restarts.

    Raises:
        ConfigError: Illegal id. ``build`` reports all other problems.

    Source: Storm, TopologyBuilder (deviates: bolts are made anew for each chunk of
    records; an error of a bolt fails the row and does not end the worker).
    """

    _legal = (ComponentKind.BASIC, ComponentKind.RICH)

    def __init__(self, topology_id: str) -> None:
        super().__init__(topology_id)
        self._spouts: list[tuple[str, AtLeastOnceSpout, int]] = []

    def set_spout(
        self, name: str, spout: AtLeastOnceSpout, parallelism: int = 1
    ) -> None:
        """Add a spout; ``parallelism`` is the number of tasks that read it."""
        self._spouts.append((name, spout, parallelism))

    def build(self, dumps: Dumps = cloudpickle.dumps) -> AtLeastOnceTopology:
        """Check and plan the topology; ``start`` of the result runs it.

        You can use the builder again.

        Args:
            dumps: Pickles user code, in a form that ``pickle.loads`` reads.

        Raises:
            ConfigError: Lists all problems, with the components' names; or two spouts
                have the same id.
        """
        problems = [] if self._spouts else ["the topology has no spout."]
        components = []
        for name, spout, parallelism in self._spouts:
            component, found = spout_component(
                name, spout.fields, parallelism, spout.empty_chunk, dumps
            )
            components.append(component)
            problems += found
        plan = self._plan(components, problems, dumps)
        spouts = {name: spout for name, spout, _ in self._spouts}
        _check_ids(spouts)
        _check_letters(spouts)
        return AtLeastOnceTopology(self._id, plan, spouts)


def _stop_store(topology: AtLeastOnceTopology, url: str) -> Store | None:
    """The store for the reason of a stop; None if no spout stores its offsets there."""
    spouts = [s for s in topology.spouts.values() if isinstance(s, KafkaSpout)]
    is_used = any(not spout.config.store_url for spout in spouts)
    return open_stop_store(url, topology.id) if is_used else None


def _pollers(
    given: Mapping[str, AtLeastOnceSpout], deployment: Deployment
) -> dict[str, PollerParts]:
    """Check all spouts, then open their pollers; after an error none stays open."""
    spouts: dict[str, KafkaSpout] = {}
    for name, spout in given.items():
        if not isinstance(spout, KafkaSpout):
            raise ConfigError.illegal(f"spout '{name}'", spout, "a KafkaSpout")
        spouts[name] = spout
    for name, spout in spouts.items():
        spout.judge(name, deployment)
    pollers: dict[str, PollerParts] = {}
    try:
        for name, spout in spouts.items():
            pollers[name] = spout.poller(name, deployment)
    except BaseException:
        for poller in pollers.values():
            poller.release(lambda: END_WITHIN_S)
        raise
    return pollers


def _tasks(
    topology: AtLeastOnceTopology, pollers: Mapping[str, PollerParts]
) -> dict[str, str]:
    """Its id and those of its spouts: which of the jobs of each id this one is."""
    found: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for name, poller in pollers.items():
        spout = topology.spouts[name]
        assert isinstance(spout, KafkaSpout)  # a poller is of no other kind
        share = spout.config.task_index, spout.config.total_tasks
        for id_ in (topology.id, poller.keeper.id):
            found[id_] |= {share} if share != (0, 1) else set()
    return {
        id_: " of ".join(
            ", ".join(str(n) for n in sorted(set(numbers)))
            for numbers in zip(*shares, strict=True)
        )
        for id_, shares in found.items()
    }


def _check_ids(spouts: Mapping[str, object]) -> None:
    """Refuse two spouts that would store their offsets under one id.

    Raises:
        ConfigError: Two spouts have the same id, so they would fence each other.
    """
    owners: dict[tuple[str | None, str, int], str] = {}
    for name, spout in spouts.items():
        if not isinstance(spout, KafkaSpout) or not spout.config.id:
            continue
        config = spout.config
        owner = (config.store_url, config.id, config.task_index)
        other = owners.setdefault(owner, name)
        if other != name:
            raise ConfigError.illegal(
                "id",
                config.id,
                "an id of its own for each spout of a topology, or none",
                f"The spouts '{other}' and '{name}' have the same one, so neither could"
                " keep its offsets apart. Several share an id by task_index and"
                " total_tasks only.",
            )


def _check_letters(spouts: Mapping[str, object]) -> None:
    """Refuse a dead-letter topic that the topology reads; patterns leave it out.

    Raises:
        ConfigError: A spout names the topic: its dead letters would fail again.
    """
    configs = [s.config for s in spouts.values() if isinstance(s, KafkaSpout)]
    for config in configs:
        topic = config.dead_letter_topic
        if topic is None:
            continue
        add_letters(topic)
        readers = [c for c in configs if c.hosts == config.hosts and not c.is_pattern]
        if any(reader.topic == topic for reader in readers):
            raise ConfigError.illegal(
                "dead_letter_topic",
                topic,
                "a topic that the topology does not read",
                "A dead letter that fails again would become a dead letter again, for"
                " ever. To process dead letters, use a topology of its own with another"
                " dead_letter_topic.",
            )
