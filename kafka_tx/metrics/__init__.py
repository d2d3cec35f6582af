"""Metrics: the catalogue, the collector, the endpoint. Owns prometheus_client."""

from kafka_tx.metrics.endpoint import DEFAULT_PORT, LOOPBACK, Endpoint, Guest, serve
from kafka_tx.metrics.events import BatchCommitted, OffsetsCommitted
from kafka_tx.metrics.registry import MetricsRegistry

__all__ = [
    "DEFAULT_PORT",
    "LOOPBACK",
    "BatchCommitted",
    "Endpoint",
    "Guest",
    "MetricsRegistry",
    "OffsetsCommitted",
    "serve",
]
