"""Brokers: metadata, offsets, ranges to Arrow, producers. Owns confluent_kafka."""
