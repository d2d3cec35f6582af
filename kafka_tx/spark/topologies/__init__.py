"""Shared by both kinds of topologies on Spark."""
