"""Transactional topologies on Spark: numbered batches, committed in order."""
