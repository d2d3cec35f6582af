"""Measurements of kafka_tx, each against what a user would have without it."""
