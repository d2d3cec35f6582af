"""Sinks that write each batch once: Kafka, maps and tables."""
