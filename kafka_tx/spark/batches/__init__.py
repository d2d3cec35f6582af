"""Transactional topologies: numbered batches, committed in order."""
