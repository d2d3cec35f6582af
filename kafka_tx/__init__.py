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
    from kafka_tx.running.transactional.kafka_spouts import (
        OpaqueTransactionalKafkaSpout,
        TransactionalKafkaSpout,
    )
    from kafka_tx.running.transactional_sink import TransactionalSink
    from kafka_tx.sinks.table_writes import OvertakenError
    from kafka_tx.spark.at_least_once.topology import (
        AtLeastOnceTopologyHandle,
        TopologyBuilder,
    )
    from kafka_tx.spark.queries.dead_letters import with_dead_letters
    from kafka_tx.spark.queries.foreach import for_each_transaction
    from kafka_tx.spark.queries.listener import attach
    from kafka_tx.spark.sinks.files import append_files, clean_files, read_files
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
    from kafka_tx.topology.rows.avro_scheme import AvroScheme
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
    "AvroScheme",
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
    "OvertakenError",
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
    "TransactionalSink",
    "TransactionalSpout",
    "TransactionalTopologyBuilder",
    "TransactionalValue",
    "ZkHosts",
    "append_files",
    "append_once",
    "append_to_table",
    "attach",
    "clean_files",
    "for_each_transaction",
    "read_files",
    "update_map",
    "with_dead_letters",
    "write_to_table",
    "write_transaction",
]

_HOMES = {
    "errors": "FailedException KafkaTxError",
    "logs": "JsonFormatter",
    "model": "TopicPartition TransactionAttempt",
    "running.at_least_once.spout": "KafkaSpout",
    "running.kafka_sink_bolt": "KafkaBolt",
    "running.transactional.batch_progress": "BatchProgress",
    "running.transactional.kafka_spouts": "OpaqueTransactionalKafkaSpout"
    " TransactionalKafkaSpout",
    "running.transactional_sink": "TransactionalSink",
    "spark.at_least_once.topology": "AtLeastOnceTopologyHandle TopologyBuilder",
    "spark.queries.dead_letters": "with_dead_letters",
    "spark.queries.foreach": "for_each_transaction",
    "spark.queries.listener": "attach",
    "spark.sinks.files": "append_files clean_files read_files",
    "spark.sinks.state": "append_once append_to_table update_map write_to_table",
    "spark.sinks.transaction": "write_transaction",
    "spark.source.data_source": "KafkaTxDataSource",
    "spark.transactional.topology": "TopologyHandle TransactionalTopologyBuilder",
    "sql.maps": "NonTransactionalMap OpaqueMap OpaqueValue TransactionalMap"
    " TransactionalValue",
    "sql.snapshot": "SnapshotValue",
    "topology.declare.bolts": "BasicBolt"
    " BatchBolt Committer DataFrameBolt RichBolt TaskContext",
    "topology.declare.kafka_message": "FieldMapper FieldTopic KafkaMessage",
    "topology.declare.memory_spouts": "MemoryTransactionalSpout"
    " OpaqueMemoryTransactionalSpout",
    "topology.declare.spout_config": "SpoutConfig",
    "topology.declare.spout_hosts": "BrokerHosts StaticHosts ZkHosts",
    "topology.declare.spouts": "OpaquePartitionedTransactionalSpout"
    " PartitionedTransactionalSpout TransactionalSpout",
    "topology.rows.avro_scheme": "AvroScheme",
    "topology.rows.schemes": "FunctionScheme"
    " KeyValueScheme MetadataScheme RawScheme RecordScheme StringScheme",
    "sinks.table_writes": "OvertakenError",
}
"""Public names by the module that defines them."""


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name == "__version__":
        from kafka_tx.stored import VERSION

        return VERSION
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"kafka_tx.{home}"), name)
    raise AttributeError(f"module 'kafka_tx' has no attribute {name!r}")
