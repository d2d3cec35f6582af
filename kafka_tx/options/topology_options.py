"""Parses a topology's settings, under our names and Storm's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_tx.errors import ConfigError
from kafka_tx.logs import event_log
from kafka_tx.metrics.endpoint import LOOPBACK
from kafka_tx.options.option_names import nearest
from kafka_tx.options.table import AT_LEAST_ONCE, STORMS, TOPOLOGY, picked, values_of
from kafka_tx.store_place import default_store, store_url
from kafka_tx.transactions.pacing import Pacing

logger = event_log(__name__)

_ZOOKEEPER_PORT = 2181
_ZOOKEEPER_ROOT = "/transactional"


@dataclass(frozen=True, slots=True)
class TopologySettings:
    """The settings with which a topology was started.

    Attributes:
        store: URL of the store.
        pacing: How many batches at once, and how fast.
        commit_group_id: Kafka group that committed offsets are mirrored to.
        history: Of how many transactions the store keeps what they held.
        metrics_port: Port of ``/metrics``; None: shown where others serve them.
        metrics_address: Address the port listens on.
        shows_page: Whether other machines see the status page, too.
        shows_progress: Whether progress is drawn on the terminal.
        own: Settings whose names begin with none of ours: for the user's bolts.
    """

    store: str = field(default_factory=default_store)
    pacing: Pacing = field(default_factory=Pacing)
    commit_group_id: str | None = None
    history: int = 100
    metrics_port: int | None = None
    metrics_address: str = LOOPBACK
    shows_page: bool = False
    shows_progress: bool = False
    own: Mapping[str, Any] = field(default_factory=dict)


def parse_settings(
    config: Mapping[str, Any] | None, *, others: Sequence[str] = ()
) -> TopologySettings:
    """Read and check all settings of a topology.

    Names that begin with ``user.`` belong to the user; bolts find all settings in
    ``TaskContext.settings``. Where one thing is set under two names, ours wins.

    Args:
        config: As it was given.
        others: Settings that the caller reads, to be suggested with these.

    Raises:
        ConfigError: A setting is unknown (the nearest known one is named), has an
            illegal value, or contradicts another.
    """
    given = dict(config or {})
    for name in given:
        _check_name(name, others)
    for name in given.keys() & _WITHOUT_EFFECT:
        logger.warning("setting '%s' of Storm has no effect here", name)
    values = values_of((*STORMS, *TOPOLOGY), {n.lower(): v for n, v in given.items()})
    if values.pop("times_out", True) is False:
        values["timeout_ms"] = None
    values["store"] = store_url(values.get("store") or _zookeeper_url(values))
    pacing = Pacing(**picked(Pacing, values))
    return TopologySettings(
        pacing=pacing, own=given, **picked(TopologySettings, values)
    )


def _check_name(name: str, others: Sequence[str]) -> None:
    if name in _KNOWN or name.startswith("user."):
        return
    near = nearest(name, [*_KNOWN, *others], 0.5)
    hint = f" Did you mean '{near}'?" if near else ""
    raise ConfigError(
        f"unknown setting '{name}' of a topology.{hint} Settings for your own bolts"
        " begin with 'user.'.",
        option=name,
    )


def _zookeeper_url(values: Mapping[str, Any]) -> str | None:
    """URL of the store that Storm's settings name; None: they name no servers."""
    servers = values.get("servers") or values.get("storm_servers")
    if not servers:
        return None
    port = values.get("port") or values.get("storm_port") or _ZOOKEEPER_PORT
    hosts = ",".join(host if ":" in host else f"{host}:{port}" for host in servers)
    root = values.get("root") or _ZOOKEEPER_ROOT
    options = [f"{name}={values[name]}" for name in _PATIENCE if name in values]
    query = f"?{'&'.join(options)}" if options else ""
    return f"zookeeper://{hosts}/{root.strip('/')}{query}"


_WITHOUT_EFFECT = frozenset(
    {
        "topology.workers",
        "topology.acker.executors",
        "topology.ackers",
        "topology.debug",
        "topology.max.task.parallelism",
        "topology.tasks",
        "topology.sleep.spout.wait.strategy.time.ms",
        "topology.transactional.id",
        "topology.kryo.register",
    }
)
"""Settings of Storm without effect: Spark, the builder or logging decides."""
_KNOWN = [*(option.name for option in (*TOPOLOGY, *STORMS)), *_WITHOUT_EFFECT]
_PATIENCE = (
    "session_timeout_ms",
    "connection_timeout_ms",
    "retry_times",
    "retry_interval_ms",
    "retry_interval_ceiling_ms",
)


# --- at least once ---------------------------------------------------------------

_OWN = ("tx.chunkRecords", "tx.deployment")
_SILENT_MS = 60_000
"""Least time for which a job may be silent: its workers may have to start."""


@dataclass(frozen=True, kw_only=True)
class RunnerLimits:
    """How much at once.

    Attributes:
        chunks: Jobs in flight.
        chunk_records: Records of a job, at most; None: the usual bounds.
        max_pending: Records in flight; None: no other bound.
        timeout_ms: After once to twice as long a record that is not completed fails;
            None: never.
        silent_timeouts: How many more time-outs a job may take while none of its tasks
            reports.
        metrics_ms: Between two updates of the partitions' metrics.
    """

    chunks: int = 2
    chunk_records: int | None = None
    max_pending: int | None = None
    timeout_ms: int | None = 30_000
    silent_timeouts: int = 4
    metrics_ms: int = 2_000


@dataclass(frozen=True, slots=True)
class AtLeastOnceSettings:
    """The settings of an at-least-once topology.

    Attributes:
        topology: What all topologies share: store, metrics.
        limits: How much at once.
        deployment: Names this start of the topology in stored offsets; empty: its id.
    """

    topology: TopologySettings
    limits: RunnerLimits
    deployment: str = ""


def parse_at_least_once_settings(
    config: Mapping[str, Any] | None,
) -> AtLeastOnceSettings:
    """Read and check the settings.

    Beside those of all topologies: ``tx.chunkRecords``, most records of one Spark job
    (1,000,000; 10,000 if a bolt runs on the driver); ``tx.maxPending`` (2), jobs in
    flight; ``topology.max.spout.pending`` (no bound), records in flight;
    ``tx.deployment``, the name under which offsets are stored, for
    ``ignore_stored_offsets``.

    Raises:
        ConfigError: A setting is unknown or has an illegal value.
    """
    given = dict(config or {})
    values = values_of(AT_LEAST_ONCE, {n.lower(): v for n, v in given.items()})
    for option in AT_LEAST_ONCE:
        if option.name != "tx.maxPending":
            given.pop(option.name, None)
    settings = parse_settings(given, others=_OWN)
    timeout_ms = settings.pacing.timeout_ms
    limits = RunnerLimits(
        timeout_ms=timeout_ms,
        silent_timeouts=max(
            RunnerLimits.silent_timeouts, _SILENT_MS // (timeout_ms or _SILENT_MS)
        ),
        **picked(RunnerLimits, values),
    )
    return AtLeastOnceSettings(settings, limits, values.get("deployment", ""))
