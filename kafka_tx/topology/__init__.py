"""Topologies: spouts, bolts, groupings and the validated graph."""
