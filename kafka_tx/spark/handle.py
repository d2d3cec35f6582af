"""A running topology, as its user sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from kafka_tx import assembly
from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import ConfigError, TransactionError
from kafka_tx.metrics.endpoint import Endpoint, serve
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.protocols import Store
from kafka_tx.spark.engine import SparkEngine
from kafka_tx.spark.engine_attempt import AttemptRunner
from kafka_tx.spark.engine_progress import (
    BatchProgress,
    Journal,
    LagWatch,
    Listener,
    TerminalProgress,
    kafka_ranges,
)
from kafka_tx.spark.engine_session import check_session
from kafka_tx.spark.engine_settings import TopologySettings, parse_settings
from kafka_tx.spark.runner import Runner, RunnerParts
from kafka_tx.spark.spouts import KafkaSpoutFromOptions
from kafka_tx.topology.builder import TransactionalTopology
from kafka_tx.topology.plan import Plan
from kafka_tx.transactions.chain import Opened
from kafka_tx.transactions.coordinator import TransactionCoordinator
from kafka_tx.transactions.rotating import RecordCodec

_END_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """A batch in flight.

    Attributes:
        txid: Its number.
        attempt_id: Of the attempt that is on.
        phase: processing, processed, committing or recording.
    """

    txid: int
    attempt_id: int
    phase: str


@dataclass(frozen=True, slots=True)
class TopologyStatus:
    """What a topology does now.

    Attributes:
        id: Of the topology.
        is_active: Whether it runs.
        committed_txid: The last committed batch; None while there was none.
        in_flight: Batches on their way, in txid order.
        replays: Attempts that were given up so far.
        lag: Records of the source that no committed batch holds; None where unknown.
    """

    id: str
    is_active: bool
    committed_txid: int | None
    in_flight: tuple[BatchStatus, ...]
    replays: int
    lag: int | None


class TopologyHandle:
    """A topology that was started, like a ``StreamingQuery``. Safe in any thread.

    Made by ``start_topology``.
    """

    def __init__(
        self, runner: Runner, parts: RunnerParts, endpoint: Endpoint | None
    ) -> None:
        self._runner = runner
        self._parts = parts
        self._endpoint = endpoint

    @property
    def id(self) -> str:
        """The topology's id."""
        return self._parts.journal.id

    @property
    def metrics(self) -> MetricsRegistry:
        """Where its measurements are."""
        return self._parts.journal.registry

    @property
    def metrics_port(self) -> int | None:
        """Where ``/metrics`` answers; None when it was not asked for."""
        return None if self._endpoint is None else self._endpoint.port

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return not self._runner.has_ended.is_set()

    @property
    def status(self) -> TopologyStatus:
        """What it does now."""
        view = self._runner.view
        return TopologyStatus(
            id=self.id,
            is_active=self.is_active,
            committed_txid=view.committed_txid,
            in_flight=tuple(
                BatchStatus(attempt.txid, attempt.attempt_id, phase.value)
                for attempt, phase in view.phases.items()
            ),
            replays=self._parts.journal.replays,
            lag=self._lag(),
        )

    def _lag(self) -> int | None:
        samples = self.metrics.samples().get("kafka_tx_lag_records", {})
        mine = [values[-1] for key, values in samples.items() if key[0] == self.id]
        return int(sum(mine)) if mine else None

    @property
    def last_batch(self) -> BatchProgress | None:
        """The last batch that was committed since the start."""
        return self._parts.journal.last

    @property
    def exception(self) -> BaseException | None:
        """Why it ended; None while it runs, and after ``stop``."""
        return self._runner.error

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait for the end.

        Returns:
            Whether it has ended; without a time-out always true.

        Raises:
            KafkaTxError: What ended it, above all a ``ComponentError``.
        """
        ended = self._runner.has_ended.wait(timeout_s)
        if ended and self._runner.error is not None:
            raise self._runner.error
        return ended

    def process_all_available(self, timeout_s: float | None = None) -> bool:
        """Wait until everything there is now is committed.

        A spout whose brokers do not answer has nothing available.

        Returns:
            Whether it is; without a time-out always true.

        Raises:
            KafkaTxError: as ``await_termination``.
        """
        idle = self._runner.wait_until_idle(timeout_s)
        if self._runner.error is not None:
            raise self._runner.error
        return idle

    def pause(self) -> None:
        """Plan and start nothing more; what is in flight goes on and commits."""
        self._runner.pause()

    def activate(self) -> None:
        """Go on after ``pause``."""
        self._runner.activate()

    def stop(self, *, finish: bool = True, timeout_s: float | None = 60.0) -> None:
        """End the topology and wait for that. Harmless when it has ended.

        Args:
            finish: Commit what is in flight first; else cancel it, but for a commit
                phase that has begun.
            timeout_s: After so long everything is cut off, as by a crash: a restart
                goes on from what is recorded.

        Raises:
            TransactionError: It was cut off.
        """
        self._runner.stop(finish=finish)
        if not self._runner.has_ended.wait(timeout_s):
            error = TransactionError(
                f"topology '{self.id}' was not finished within {timeout_s} s and was"
                " cut off; a restart goes on from what is recorded"
            )
            self._runner.abort(error)
            self._runner.has_ended.wait(2 * _END_WITHIN_S)
            raise error
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def __repr__(self) -> str:
        word = "active" if self.is_active else "ended"
        return f"TopologyHandle({self.id!r}, {word})"


def start_topology(
    topology: TransactionalTopology,
    spark: SparkSession,
    config: Mapping[str, Any] | None = None,
    *,
    listeners: Iterable[Listener] = (),
    registry: MetricsRegistry | None = None,
) -> TopologyHandle:
    """Run a topology on Spark until it is stopped. It goes on where it committed.

    Args:
        topology: What to run.
        spark: A classic session; must live as long as the topology.
        config: Settings, ours (``tx.…``) or by Storm's names.
        listeners: Called after each committed batch.
        registry: Takes the metrics; a new one if None.

    Raises:
        ConfigError: A setting, the store's URL or the session cannot be used.
        StateError: The store cannot be reached, or a record of it not be read.
        Exception: What the spout raises when it is opened.
    """
    settings = parse_settings(config)
    plan = replace(topology.plan, settings=dict(config or {}))
    check_session(spark, plan, settings.pacing.max_pending)
    registry = registry or MetricsRegistry(spark_version=spark.version)
    store = assembly.open_store(settings.store, topology.id)
    try:
        parts = open_parts(topology, settings, store, registry, listeners)
        endpoint = _endpoint(settings, registry)
    except BaseException:
        store.close()
        raise
    runner = Runner(parts, _attempts(spark, plan))
    runner.start()
    return TopologyHandle(runner, parts, endpoint)


def _attempts(spark: SparkSession, plan: Plan) -> Any:  # noqa: ANN401 - a factory
    engine = SparkEngine(spark, plan)
    return lambda runner: AttemptRunner(engine, plan, runner)


def _endpoint(settings: TopologySettings, registry: MetricsRegistry) -> Endpoint | None:
    if settings.metrics_port is None:
        return None
    return serve(registry, port=settings.metrics_port)


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
    epoch = store.acquire()  # before reading: an older owner may still write
    opened = Opened(epoch, store.read(), store.url, store.id)
    clock = assembly.SystemClock()
    coordinator = TransactionCoordinator[Any](
        topology.spout.mode,
        RecordCodec("metadata", store.url, store.id),
        settings.pacing,
        opened,
    )
    told = list(listeners)
    if settings.shows_progress:
        told.append(TerminalProgress(topology.id))
    journal = Journal(topology.id, registry, clock)
    return RunnerParts(
        spout=topology.spout,
        spout_name=topology.spout_name,
        store=store,
        coordinator=coordinator,
        journal=journal,
        clock=clock,
        listeners=told,
        watch=LagWatch(getattr(topology.spout, "bounds", None), journal),
        mirror=_mirror(topology, settings.commit_group_id),
    )


def _mirror(
    topology: TransactionalTopology, group: str | None
) -> Callable[[Any], None] | None:
    """What sends the ends of a batch's ranges to a Kafka group, if asked for."""
    if group is None:
        return None
    spout = topology.spout
    if not isinstance(spout, KafkaSpoutFromOptions):
        raise ConfigError.illegal(
            "tx.commitGroupId", group, "set only where the spout reads Kafka"
        )
    of_group = TransactionsConfig(id=topology.id, commit_group_id=group)
    store = assembly.group_mirror(replace(spout.config, transactions=of_group))
    assert store is not None

    def mirror(metadata: object) -> None:
        store({p: end for p, (_, end) in kafka_ranges(metadata).items()})

    return mirror
