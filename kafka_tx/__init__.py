"""Kafka records as numbered batches for PySpark, each counted exactly once.

The public names. They are loaded on first use: an executor that only reads records
never imports the stores, the metrics or the command line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_tx.errors import FailedException, KafkaTxError
    from kafka_tx.logs import JsonFormatter
    from kafka_tx.model import TopicPartition, TransactionAttempt
    from kafka_tx.running.at_least_once.spout import KafkaSpout
    from kafka_tx.running.kafka_sink_bolt import KafkaBolt
    from kafka_tx.running.transactional.batch_progress import BatchProgress
    from kafka_tx.running.transactional.drop_in_spouts import (
        OpaqueTransactionalKafkaSpout,
        TransactionalKafkaSpout,
    )
    from kafka_tx.spark.at_least_once.topology import (
        AtLeastOnceTopologyHandle,
        TopologyBuilder,
    )
    from kafka_tx.spark.queries.dead_letters import with_dead_letters
    from kafka_tx.spark.queries.foreach import for_each_transaction
    from kafka_tx.spark.queries.listener import attach
    from kafka_tx.spark.sinks.state import (
        append_once,
        append_to_table,
        update_map,
        write_to_table,
    )
    from kafka_tx.spark.sinks.transaction import write_transaction
    from kafka_tx.spark.source.data_source import KafkaTxDataSource
    from kafka_tx.spark.transactional.topology import (
        TopologyHandle,
        TransactionalTopologyBuilder,
    )
    from kafka_tx.sql.maps import (
        NonTransactionalMap,
        OpaqueMap,
        OpaqueValue,
        TransactionalMap,
        TransactionalValue,
    )
    from kafka_tx.sql.snapshot import SnapshotValue
    from kafka_tx.topology.declare.bolts import (
        BasicBolt,
        BatchBolt,
        Committer,
        DataFrameBolt,
        RichBolt,
        TaskContext,
    )
    from kafka_tx.topology.declare.kafka_message import (
        FieldMapper,
        FieldTopic,
        KafkaMessage,
    )
    from kafka_tx.topology.declare.memory_spouts import (
        MemoryTransactionalSpout,
        OpaqueMemoryTransactionalSpout,
    )
    from kafka_tx.topology.declare.spout_config import SpoutConfig
    from kafka_tx.topology.declare.spout_hosts import BrokerHosts, StaticHosts, ZkHosts
    from kafka_tx.topology.declare.spouts import (
        OpaquePartitionedTransactionalSpout,
        PartitionedTransactionalSpout,
        TransactionalSpout,
    )
    from kafka_tx.topology.rows.schemes import (
        FunctionScheme,
        KeyValueScheme,
        MetadataScheme,
        RawScheme,
        RecordScheme,
        StringScheme,
    )

__all__ = [
    "AtLeastOnceTopologyHandle",
    "BasicBolt",
    "BatchBolt",
    "BatchProgress",
    "BrokerHosts",
    "Committer",
    "DataFrameBolt",
    "FailedException",
    "FieldMapper",
    "FieldTopic",
    "FunctionScheme",
    "JsonFormatter",
    "KafkaBolt",
    "KafkaMessage",
    "KafkaSpout",
    "KafkaTxDataSource",
    "KafkaTxError",
    "KeyValueScheme",
    "MemoryTransactionalSpout",
    "MetadataScheme",
    "NonTransactionalMap",
    "OpaqueMap",
    "OpaqueMemoryTransactionalSpout",
    "OpaquePartitionedTransactionalSpout",
    "OpaqueTransactionalKafkaSpout",
    "OpaqueValue",
    "PartitionedTransactionalSpout",
    "RawScheme",
    "RecordScheme",
    "RichBolt",
    "SnapshotValue",
    "SpoutConfig",
    "StaticHosts",
    "StringScheme",
    "TaskContext",
    "TopicPartition",
    "TopologyBuilder",
    "TopologyHandle",
    "TransactionAttempt",
    "TransactionalKafkaSpout",
    "TransactionalMap",
    "TransactionalSpout",
    "TransactionalTopologyBuilder",
    "TransactionalValue",
    "ZkHosts",
    "append_once",
    "append_to_table",
    "attach",
    "for_each_transaction",
    "update_map",
    "with_dead_letters",
    "write_to_table",
    "write_transaction",
]

_HOMES = {
    "AtLeastOnceTopologyHandle": "kafka_tx.spark.at_least_once.topology",
    "BasicBolt": "kafka_tx.topology.declare.bolts",
    "BatchBolt": "kafka_tx.topology.declare.bolts",
    "BatchProgress": "kafka_tx.running.transactional.batch_progress",
    "BrokerHosts": "kafka_tx.topology.declare.spout_hosts",
    "Committer": "kafka_tx.topology.declare.bolts",
    "DataFrameBolt": "kafka_tx.topology.declare.bolts",
    "FailedException": "kafka_tx.errors",
    "FieldMapper": "kafka_tx.topology.declare.kafka_message",
    "FieldTopic": "kafka_tx.topology.declare.kafka_message",
    "FunctionScheme": "kafka_tx.topology.rows.schemes",
    "JsonFormatter": "kafka_tx.logs",
    "KafkaBolt": "kafka_tx.running.kafka_sink_bolt",
    "KafkaMessage": "kafka_tx.topology.declare.kafka_message",
    "KafkaSpout": "kafka_tx.running.at_least_once.spout",
    "KafkaTxDataSource": "kafka_tx.spark.source.data_source",
    "KafkaTxError": "kafka_tx.errors",
    "KeyValueScheme": "kafka_tx.topology.rows.schemes",
    "MemoryTransactionalSpout": "kafka_tx.topology.declare.memory_spouts",
    "MetadataScheme": "kafka_tx.topology.rows.schemes",
    "NonTransactionalMap": "kafka_tx.sql.maps",
    "OpaqueMap": "kafka_tx.sql.maps",
    "OpaqueMemoryTransactionalSpout": "kafka_tx.topology.declare.memory_spouts",
    "OpaquePartitionedTransactionalSpout": "kafka_tx.topology.declare.spouts",
    "OpaqueTransactionalKafkaSpout": "kafka_tx.running.transactional.drop_in_spouts",
    "OpaqueValue": "kafka_tx.sql.maps",
    "PartitionedTransactionalSpout": "kafka_tx.topology.declare.spouts",
    "RawScheme": "kafka_tx.topology.rows.schemes",
    "RecordScheme": "kafka_tx.topology.rows.schemes",
    "RichBolt": "kafka_tx.topology.declare.bolts",
    "SnapshotValue": "kafka_tx.sql.snapshot",
    "SpoutConfig": "kafka_tx.topology.declare.spout_config",
    "StaticHosts": "kafka_tx.topology.declare.spout_hosts",
    "StringScheme": "kafka_tx.topology.rows.schemes",
    "TaskContext": "kafka_tx.topology.declare.bolts",
    "TopicPartition": "kafka_tx.model",
    "TopologyBuilder": "kafka_tx.spark.at_least_once.topology",
    "TopologyHandle": "kafka_tx.spark.transactional.topology",
    "TransactionAttempt": "kafka_tx.model",
    "TransactionalKafkaSpout": "kafka_tx.running.transactional.drop_in_spouts",
    "TransactionalMap": "kafka_tx.sql.maps",
    "TransactionalSpout": "kafka_tx.topology.declare.spouts",
    "TransactionalTopologyBuilder": "kafka_tx.spark.transactional.topology",
    "TransactionalValue": "kafka_tx.sql.maps",
    "ZkHosts": "kafka_tx.topology.declare.spout_hosts",
    "append_once": "kafka_tx.spark.sinks.state",
    "append_to_table": "kafka_tx.spark.sinks.state",
    "attach": "kafka_tx.spark.queries.listener",
    "for_each_transaction": "kafka_tx.spark.queries.foreach",
    "update_map": "kafka_tx.spark.sinks.state",
    "with_dead_letters": "kafka_tx.spark.queries.dead_letters",
    "write_to_table": "kafka_tx.spark.sinks.state",
    "write_transaction": "kafka_tx.spark.sinks.transaction",
}


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name == "__version__":
        return _version()
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kafka_tx' has no attribute {name!r}")
    return getattr(import_module(home), name)


def _version() -> str:
    """Of the installed package; empty where only its source is on the path."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kafka-tx")
    except PackageNotFoundError:
        return ""
