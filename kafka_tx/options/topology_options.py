"""A topology's settings: ours and Storm's names become one frozen value."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_tx.errors import ConfigError
from kafka_tx.metrics.endpoint import LOOPBACK
from kafka_tx.options.option_names import nearest
from kafka_tx.store_place import default_store, store_url
from kafka_tx.transactions.pacing import Pacing

logger = logging.getLogger(__name__)

_ZOOKEEPER_PORT = 2181
_ZOOKEEPER_ROOT = "/transactional"


@dataclass(frozen=True, slots=True)
class TopologySettings:
    """The settings with which a topology was started.

    Attributes:
        store: URL of the store.
        pacing: How many batches at once, and how fast.
        commit_group_id: Kafka group that committed offsets are mirrored to.
        metrics_port: Port of ``/metrics``; None: shown where others serve them.
        metrics_address: Address the port listens on.
        shows_progress: Whether progress is drawn on the terminal.
        own: Settings whose names begin with none of ours: for the user's bolts.
    """

    store: str = field(default_factory=default_store)
    pacing: Pacing = field(default_factory=Pacing)
    commit_group_id: str | None = None
    metrics_port: int | None = None
    metrics_address: str = LOOPBACK
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
    for name in given.keys() & _WITHOUT_EFFECT.keys():
        logger.warning("setting '%s' has no effect: %s", name, _WITHOUT_EFFECT[name])
    values = {
        s.field: s.read(s.name, given[s.name]) for s in _STORMS if s.name in given
    }
    values |= {s.field: s.read(s.name, given[s.name]) for s in _OURS if s.name in given}
    if values.pop("times_out", True) is False:
        values["timeout_ms"] = None
    pacing = {name: values.pop(name) for name in _PACING if name in values}
    store = store_url(values.pop("store", None) or _zookeeper_url(values))
    for name in _ZOOKEEPER:
        values.pop(name, None)
    return TopologySettings(store=store, pacing=Pacing(**pacing), own=given, **values)


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
    """Where Storm's settings keep the state; None when they name no servers."""
    servers = values.get("servers") or values.get("storm_servers")
    if not servers:
        return None
    port = values.get("port") or values.get("storm_port") or _ZOOKEEPER_PORT
    hosts = ",".join(host if ":" in host else f"{host}:{port}" for host in servers)
    root = values.get("root") or _ZOOKEEPER_ROOT
    options = [f"{name}={values[name]}" for name in _PATIENCE if name in values]
    query = f"?{'&'.join(options)}" if options else ""
    return f"zookeeper://{hosts}/{root.strip('/')}{query}"


# --- single values --------------------------------------------------------------------


def _text(name: str, value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ConfigError.illegal(name, value, "text that is not empty")


def _boolean(name: str, value: object) -> bool:
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise ConfigError.illegal(name, value, "true or false")
    return word == "true"


def _whole(least: int, unit: int = 1) -> Callable[[str, object], int]:
    def read(name: str, value: object) -> int:
        text = str(value).strip()
        if isinstance(value, bool) or not text.isdecimal() or int(text) < least:
            raise ConfigError.illegal(name, value, f"a whole number from {least}")
        return int(text) * unit

    return read


def _optional_whole(least: int) -> Callable[[str, object], int | None]:
    read = _whole(least)
    return lambda name, value: None if value is None else read(name, value)


def _servers(name: str, value: object) -> list[str]:
    if isinstance(value, str):
        text = value.strip()
        value = json.loads(text) if text.startswith("[") else text.split(",")
    if isinstance(value, list | tuple):
        servers = [str(server).strip() for server in value]
        if servers and all(servers):
            return servers
    raise ConfigError.illegal(name, value, "a list of host names")


# --- the table ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the settings table."""

    name: str
    field: str
    read: Callable[[str, Any], Any]
    sentence: str


_OURS = (
    Setting(
        "tx.store", "store", _text, "URL of the store that keeps txids and ranges."
    ),
    Setting("tx.maxPending", "max_pending", _whole(1), "Batches in flight."),
    Setting(
        "tx.timeoutMs",
        "timeout_ms",
        _whole(1),
        "Longest processing or commit phase; twice as long after each time-out of the"
        " batch, up to eight times.",
    ),
    Setting(
        "tx.emitIntervalMs",
        "emit_interval_ms",
        _whole(0),
        "Least time between batches.",
    ),
    Setting(
        "tx.idlePauseMs",
        "idle_pause_ms",
        _whole(1),
        "Pause when nothing is to be read.",
    ),
    Setting("tx.retryMs", "retry_ms", _whole(1), "Pause after a failed write or plan."),
    Setting(
        "tx.commitGroupId",
        "commit_group_id",
        _text,
        "Kafka group of committed offsets.",
    ),
    Setting("tx.metricsPort", "metrics_port", _optional_whole(0), "Serves /metrics."),
    Setting(
        "tx.metricsAddress",
        "metrics_address",
        _text,
        "Address of that port; `0.0.0.0` lets other machines in.",
    ),
    Setting("tx.progress", "shows_progress", _boolean, "Progress on the terminal."),
)
_STORMS = (
    Setting(
        "topology.max.spout.pending", "max_pending", _whole(1), "Batches in flight."
    ),
    Setting(
        "topology.message.timeout.secs", "timeout_ms", _whole(1, 1000), "In seconds."
    ),
    Setting(
        "topology.enable.message.timeouts", "times_out", _boolean, "`false`: none."
    ),
    Setting(
        "topology.trident.batch.emit.interval.millis",
        "emit_interval_ms",
        _whole(0),
        "Least time between batches.",
    ),
    Setting(
        "transactional.zookeeper.servers", "servers", _servers, "The store's hosts."
    ),
    Setting(
        "transactional.zookeeper.port", "port", _whole(1), "Where a host has none."
    ),
    Setting("transactional.zookeeper.root", "root", _text, "Path the store begins at."),
    Setting(
        "storm.zookeeper.servers",
        "storm_servers",
        _servers,
        "The store's hosts, where `transactional.zookeeper.servers` names none.",
    ),
    Setting("storm.zookeeper.port", "storm_port", _whole(1), "Where a host has none."),
    Setting(
        "storm.zookeeper.session.timeout",
        "session_timeout_ms",
        _whole(1),
        "Time-out of the store's session, ms.",
    ),
    Setting(
        "storm.zookeeper.connection.timeout",
        "connection_timeout_ms",
        _whole(1),
        "How long to wait for the store, ms.",
    ),
    Setting(
        "storm.zookeeper.retry.times",
        "retry_times",
        _whole(0),
        "Tries of a request of the store.",
    ),
    Setting(
        "storm.zookeeper.retry.interval",
        "retry_interval_ms",
        _whole(1),
        "First pause between them, ms.",
    ),
    Setting(
        "storm.zookeeper.retry.intervalceiling.millis",
        "retry_interval_ceiling_ms",
        _whole(1),
        "Longest pause between them, ms.",
    ),
)
_SPARKS_PART = "Spark decides that; give parallelism to the builder."
_WITHOUT_EFFECT = {
    "topology.workers": _SPARKS_PART,
    "topology.acker.executors": "batches are acked as a whole.",
    "topology.ackers": "batches are acked as a whole.",
    "topology.debug": "use Python's logging.",
    "topology.max.task.parallelism": _SPARKS_PART,
    "topology.tasks": _SPARKS_PART,
    "topology.sleep.spout.wait.strategy.time.ms": "see 'tx.idlePauseMs'.",
    "topology.transactional.id": "the id is the builder's first argument.",
    "topology.kryo.register": "metadata is JSON.",
}
SETTINGS = (*_OURS, *_STORMS)
_KNOWN = [*(setting.name for setting in SETTINGS), *_WITHOUT_EFFECT]
_PACING = ("max_pending", "timeout_ms", "emit_interval_ms", "idle_pause_ms", "retry_ms")
_PATIENCE = (
    "session_timeout_ms",
    "connection_timeout_ms",
    "retry_times",
    "retry_interval_ms",
    "retry_interval_ceiling_ms",
)
_ZOOKEEPER = ("servers", "storm_servers", "port", "storm_port", "root", *_PATIENCE)
