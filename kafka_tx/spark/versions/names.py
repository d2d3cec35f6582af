"""Names inside Spark that no public API promises."""

from __future__ import annotations

from pyspark import SparkContext, __version__
from pyspark.sql import SparkSession

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
"""Local properties that Spark gives to the jobs of a streaming query."""
SESSION_ZONE = "spark.sql.session.timeZone"
"""A local property of all jobs, if the session sets it."""


def is_classic(spark: SparkSession) -> bool:
    """Whether a session has a JVM of its own: not one of Spark Connect."""
    return hasattr(spark, "_jsparkSession")


def pins_threads(context: SparkContext) -> bool:
    """Whether each Python thread has one JVM thread (``PYSPARK_PIN_THREAD``)."""
    return type(context._gateway).__name__ == "ClientServer"


def quick_checkpoints() -> dict[str, str]:
    """A setting of Spark's for streams whose checkpoints are on a local disk.

    Without Hadoop's native library the usual class starts 20 processes for each batch
    (``chmod``, ``readlink``): half of a small batch's time. This one, which Spark has
    for file systems that know no other way, starts 4. Both write a file beside its
    place, and rename it.
    """
    package = "" if __version__.startswith("4.0.") else "checkpointing."
    return {
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming."
            f"{package}FileSystemBasedCheckpointFileManager"
        )
    }
