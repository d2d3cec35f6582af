"""Lets Spark find ``format("kafka_tx")`` without a register call."""

from kafka_tx.spark.source.data_source import KafkaTxDataSource as DefaultSource

__all__ = ["DefaultSource"]
