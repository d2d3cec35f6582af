"""Builds at-least-once topologies that can be started on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from kafka_tx.errors import ConfigError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.running.at_least_once.spout import KafkaSpout
from kafka_tx.spark.at_least_once.handle import (
    AtLeastOnceTopologyHandle,
    start_at_least_once_topology,
)
from kafka_tx.topology import builder as topology_builder
from kafka_tx.topology.declare.templates import Dumps


@dataclass(frozen=True)
class StartableAtLeastOnceTopology(topology_builder.AtLeastOnceTopology):
    """A checked at-least-once topology that Spark can run; immutable."""

    def start(
        self,
        spark: SparkSession,
        config: Mapping[str, Any] | None = None,
        *,
        registry: MetricsRegistry | None = None,
    ) -> AtLeastOnceTopologyHandle:
        """Run it until it is stopped; it goes on with the offsets that were stored.

        Args:
            spark: A classic session; must live as long as the topology.
            config: Settings, ours (``tx.…``) or by Storm's names.
            registry: Takes the metrics; a new one if None.

        Raises:
            ConfigError: A setting, a store's URL or the session cannot be used.
            KafkaError: The brokers do not answer or refuse.
            StateError: The store cannot be reached, or an offset in it not be read.
        """
        return start_at_least_once_topology(self, spark, config, registry=registry)


class TopologyBuilder(topology_builder.TopologyBuilder):
    """Declares an at-least-once topology to be run on Spark.

    See ``kafka_tx.topology.builder.TopologyBuilder``. Bolts may be defined anywhere,
    also in a notebook or in the main script.
    """

    def build(self, dumps: Dumps = cloudpickle.dumps) -> StartableAtLeastOnceTopology:
        """Check everything and plan it; ``start`` of the result runs it.

        The builder may be used further.

        Raises:
            ConfigError: Lists all that is wrong, with the components' names; or two
                spouts have one id.
        """
        built = super().build(dumps)
        _check_ids(built.spouts)
        return StartableAtLeastOnceTopology(built.id, built.plan, built.spouts)


def _check_ids(spouts: Mapping[str, object]) -> None:
    """Refuse two spouts that would store their offsets under one id.

    Raises:
        ConfigError: The later one would fence the former, again and again.
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
