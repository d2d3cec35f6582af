"""Settings an at-least-once topology is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_tx.errors import ConfigError
from kafka_tx.options.topology_options import TopologySettings, parse_settings

_CHUNKS = 2
_OWN = ("tx.chunkRecords", "tx.deployment")
_SILENT_MS = 60_000
"""How long a job may say nothing at least: its workers may have to start."""


@dataclass(frozen=True, kw_only=True)
class RunnerLimits:
    """How much at once.

    Attributes:
        chunks: Jobs in flight.
        chunk_records: Records of a job, at most.
        max_pending: Records in flight; None: no other bound.
        timeout_ms: After once to twice as long a record that is not completed fails;
            None: never.
        patience: Time-outs that a job of which no task tells anything may take longer.
        metrics_ms: Between two updates of the partitions' metrics.
    """

    chunks: int = 2
    chunk_records: int = 10_000
    max_pending: int | None = None
    timeout_ms: int | None = 30_000
    patience: int = 4
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

    Beside those of all topologies: ``tx.chunkRecords`` (10000), records of one Spark
    job; ``tx.maxPending`` (2), jobs in flight; ``topology.max.spout.pending`` (no
    bound), records in flight; ``tx.deployment``, the name under which offsets are
    stored, for ``ignore_stored_offsets``.

    Raises:
        ConfigError: A setting is unknown or has an illegal value.
    """
    given = dict(config or {})
    chunk_records = _whole(given, "tx.chunkRecords", 10_000)
    max_pending = _whole(given, "topology.max.spout.pending", None)
    deployment = str(given.pop("tx.deployment", ""))
    settings = parse_settings(given, others=_OWN)
    assert chunk_records is not None
    chunks = settings.pacing.max_pending if "tx.maxPending" in given else _CHUNKS
    timeout_ms = settings.pacing.timeout_ms
    limits = RunnerLimits(
        chunks=chunks,
        chunk_records=chunk_records,
        max_pending=max_pending,
        timeout_ms=timeout_ms,
        patience=max(RunnerLimits.patience, _SILENT_MS // (timeout_ms or _SILENT_MS)),
    )
    return AtLeastOnceSettings(settings, limits, deployment)


def _whole(given: dict[str, Any], name: str, otherwise: int | None) -> int | None:
    value = given.pop(name, otherwise)
    if value is None:
        return None
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or int(text) < 1:
        raise ConfigError.illegal(name, value, "a whole number from 1")
    return int(text)
