"""Builders of topologies that can be started on Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.running.transactional.batch_progress import Listener
from kafka_tx.spark.transactional.starting import start_topology
from kafka_tx.spark.transactional.transactional_handle import TopologyHandle
from kafka_tx.topology import builder as topology_builder
from kafka_tx.topology.declare.templates import Dumps


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
