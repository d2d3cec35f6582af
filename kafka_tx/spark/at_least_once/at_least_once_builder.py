"""Builds at-least-once topologies that can be started on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.spark.at_least_once.at_least_once_handle import (
    RecordTopologyHandle,
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
    ) -> RecordTopologyHandle:
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
            ConfigError: Lists all that is wrong, with the components' names.
        """
        built = super().build(dumps)
        return StartableAtLeastOnceTopology(built.id, built.plan, built.spouts)
