"""Names of Spark that no public API promises, and are the same on every version."""

from __future__ import annotations

from pyspark import SparkContext
from pyspark.sql import SparkSession

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
"""Local properties that Spark gives to the jobs of a streaming query."""


def is_classic(spark: SparkSession) -> bool:
    """Whether a session has a JVM of its own: not one of Spark Connect."""
    return hasattr(spark, "_jsparkSession")


def pins_threads(context: SparkContext) -> bool:
    """Whether each Python thread has one JVM thread (``PYSPARK_PIN_THREAD``)."""
    return type(context._gateway).__name__ == "ClientServer"
