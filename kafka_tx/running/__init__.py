"""Runs topologies and watches queries: the parts that need no Spark."""
