"""Transactional topologies at run time: numbered batches, committed in order."""
