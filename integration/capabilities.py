"""What one line of Spark can and another cannot, by name: tests say what they need.

The only reasons for which a test of the matrix is left out on a version of Spark.
"""

from __future__ import annotations

import pytest

from integration.cluster.versions import DELTA, ICEBERG, SPARK, SPARK_LINE
from kafka_tx.spark.versions.streams import TAKES_LIMITS

OWN_CONNECTOR = "Spark's own Kafka connector, which is published for it"
LAKE = "Delta, whose jars are published for it"
ICE = "Iceberg, whose jars are published for it"
PROGRESS_OF_ENDS = "the ends of the logs in the progress of Python sources"
PIPELINES = "declarative pipelines"
LIMITED_BOUNDED_RUNS = "several batches in a bounded run of a Python source"

CAPABILITIES = {
    OWN_CONNECTOR: SPARK is not None,
    LAKE: DELTA is not None,
    ICE: ICEBERG is not None,
    PIPELINES: SPARK_LINE != "4.0",
    PROGRESS_OF_ENDS: TAKES_LIMITS,
    LIMITED_BOUNDED_RUNS: TAKES_LIMITS,
}
"""Whether this line has each."""


def need(capability: str) -> None:
    """Leave the running test out where Spark lacks what it needs."""
    if not CAPABILITIES[capability]:
        pytest.skip(f"Spark {SPARK_LINE} lacks {capability}")
