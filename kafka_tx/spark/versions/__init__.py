"""Differences between the versions of Spark, and names inside Spark."""
