"""Kafka as spout of transactional topologies."""
