"""Every option of the Kafka sink, with what it does."""

from __future__ import annotations

from kafka_tx.config import MARKER_TOPIC
from kafka_tx.options.source_table import Option

SINK_OPTIONS = (
    Option("kafka.bootstrap.servers", "required", "Brokers, `host:port,host:port`."),
    Option("topic", "column `topic`", "Topic of every row; wins over the column."),
    Option(
        "timestampColumn",
        "false",
        "Take the column `timestamp` as time of the records. Spark's sink does not.",
    ),
    Option("tx.id", "", "Name of the sink's transactions: each part is written once."),
    Option(
        "tx.markerTopic",
        MARKER_TOPIC,
        "Compacted topic that remembers what was written; made if absent. Keep it, and"
        " give every writer of a sink the same.",
    ),
)
