"""Parses a topology's settings, under our names and Storm's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_tx.config import COMMIT_GROUP, HISTORY
from kafka_tx.errors import ConfigError
from kafka_tx.logs import event_log
from kafka_tx.metrics.endpoint import LOOPBACK
from kafka_tx.model import with_port
from kafka_tx.option_rows import (
    Option,
    boolean,
    hosts,
    option,
    picked,
    row,
    rows,
    values_of,
    whole,
)
from kafka_tx.options.names import nearest
from kafka_tx.store_place import DEFAULT, default_store, store_url
from kafka_tx.transactions.coordinator.pacing import Pacing

logger = event_log(__name__)

_ZOOKEEPER_PORT = 2181
_ZOOKEEPER_ROOT = "/transactional"


@dataclass(frozen=True, slots=True)
class TopologySettings:
    """The settings with which a topology was started; ``own`` are all, for bolts."""

    store: str = field(
        default_factory=default_store,
        metadata=row(
            "tx.store", "URL of the store for txids and offsets.", shown=DEFAULT
        ),
    )
    pacing: Pacing = field(default_factory=Pacing)
    commit_group_id: str | None = option(None, *COMMIT_GROUP)
    history: int = option(100, *HISTORY)
    metrics_port: int | None = option(
        None,
        "tx.metricsPort",
        "Port of `/metrics` for this topology.",
        lambda name, value: None if value is None else whole(0)(name, value),
    )
    metrics_address: str = option(
        LOOPBACK,
        "tx.metricsAddress",
        "Address of that port. `0.0.0.0` admits other machines.",
    )
    shows_page: bool = option(
        False,
        "tx.statusPage",
        "`true` shows the status page to other machines that reach the port, too.",
        boolean,
    )
    shows_progress: bool = option(
        False, "tx.progress", "`true` shows progress on the terminal.", boolean
    )
    own: Mapping[str, Any] = field(default_factory=dict)


def parse_settings(
    config: Mapping[str, Any] | None, *, others: Sequence[str] = ()
) -> TopologySettings:
    """Read and check all settings of a topology.

    Names that begin with ``user.`` belong to the user; bolts find all settings in
    ``TaskContext.settings``. If one thing is set under two names, ours wins. ``others``
    are settings that the caller reads, to be suggested with these.

    Raises:
        ConfigError: A setting is unknown (the nearest known one is named), has an
            illegal value, or contradicts another.
    """
    given = dict(config or {})
    for name in given:
        _check_name(name, others)
    for name in given.keys() & _WITHOUT_EFFECT:
        logger.warning("setting '%s' of Storm has no effect here", name)
    lowered = {name.lower(): value for name, value in given.items()}
    values = values_of((*STORMS, *TOPOLOGY), lowered)
    if values.pop("times_out", True) is False and "tx.timeoutms" not in lowered:
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
    hosts = ",".join(with_port(host, port) for host in servers)
    root = values.get("root") or _ZOOKEEPER_ROOT
    options = [f"{name}={values[name]}" for name in _PATIENCE if name in values]
    query = f"?{'&'.join(options)}" if options else ""
    return f"zookeeper://{hosts}/{root.strip('/')}{query}"


STORMS = (
    Option(
        "topology.max.spout.pending", "Most batches in flight.", "max_pending", whole()
    ),
    Option(
        "topology.message.timeout.secs",
        "Longest phase, in seconds.",
        "timeout_ms",
        whole(1, 1000),
    ),
    Option(
        "topology.enable.message.timeouts",
        "`false`: no time-out.",
        "times_out",
        boolean,
    ),
    Option(
        "topology.trident.batch.emit.interval.millis",
        "Least time between two batches, ms.",
        "emit_interval_ms",
        whole(0),
    ),
    Option(
        "transactional.zookeeper.servers",
        "Hosts of the store, a ZooKeeper.",
        "servers",
        hosts,
    ),
    Option(
        "transactional.zookeeper.port",
        "Port of hosts that are given without a port.",
        "port",
        whole(),
    ),
    Option("transactional.zookeeper.root", "Root path of the store.", "root"),
    Option(
        "storm.zookeeper.servers",
        "Hosts of the store, without `transactional.zookeeper.servers`.",
        "storm_servers",
        hosts,
    ),
    Option(
        "storm.zookeeper.port",
        "Port of hosts that are given without a port.",
        "storm_port",
        whole(),
    ),
    Option(
        "storm.zookeeper.session.timeout",
        "Time-out of the session with ZooKeeper, ms.",
        "session_timeout_ms",
        whole(),
    ),
    Option(
        "storm.zookeeper.connection.timeout",
        "Time-out of a connection to ZooKeeper, ms.",
        "connection_timeout_ms",
        whole(),
    ),
    Option(
        "storm.zookeeper.retry.times",
        "How often a request to the store is tried.",
        "retry_times",
        whole(0),
    ),
    Option(
        "storm.zookeeper.retry.interval",
        "First pause before a retry, ms.",
        "retry_interval_ms",
        whole(),
    ),
    Option(
        "storm.zookeeper.retry.intervalceiling.millis",
        "Longest pause before a retry, ms.",
        "retry_interval_ceiling_ms",
        whole(),
    ),
)
"""Storm's names. Ours win over them."""

TOPOLOGY = rows(TopologySettings, Pacing)
"""Settings of all topologies."""

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
    """Limits of work in flight.

    Attributes:
        timeout_ms: After once to twice as long a record that is not completed fails;
            None: never.
        silent_timeouts: How many more time-outs a job may take while none of its tasks
            reports.
        metrics_ms: Between two updates of the partitions' metrics.
    """

    chunks: int = option(2, "tx.maxPending", "Most Spark jobs in flight.", whole())
    chunk_records: int | None = option(
        None,
        "tx.chunkRecords",
        "Most records of one Spark job; 10000 if a bolt runs on the driver. Jobs begin"
        " with 10,000 records, and then get as many as a task does in 1 s. Slow bolts"
        " get fewer. The driver holds about 20 bytes for each record in flight.",
        whole(),
        shown="1000000",
    )
    max_pending: int | None = option(
        None, "topology.max.spout.pending", "Most records in flight.", whole()
    )
    timeout_ms: int | None = 30_000
    silent_timeouts: int = 4
    metrics_ms: int = 2_000


@dataclass(frozen=True, slots=True)
class AtLeastOnceSettings:
    """The settings of an at-least-once topology.

    ``deployment`` names this start of the topology in stored offsets; empty: its id.
    """

    topology: TopologySettings
    limits: RunnerLimits
    deployment: str = option(
        "",
        "tx.deployment",
        "Name of this deployment in stored offsets, for `ignore_stored_offsets`.",
        lambda _name, value: str(value),
    )


AT_LEAST_ONCE = rows(RunnerLimits, AtLeastOnceSettings)
"""Settings of at-least-once topologies, beside or instead of those of all."""


def parse_at_least_once_settings(
    config: Mapping[str, Any] | None,
) -> AtLeastOnceSettings:
    """Read and check the settings; raises ConfigError."""
    given = dict(config or {})
    values = values_of(AT_LEAST_ONCE, {n.lower(): v for n, v in given.items()})
    for each in AT_LEAST_ONCE:
        if each.name != "tx.maxPending":
            given.pop(each.name, None)
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
