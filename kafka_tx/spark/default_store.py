"""Refusing the default store where the next start would not find it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from kafka_tx.spark.versions.names import is_classic
from kafka_tx.store_place import no_default

_SAYS = {
    "spark.submit.deployMode": "cluster",
    "spark.kubernetes.submitInDriver": "true",
}
_NAMES = {"tx.store", "transactional.zookeeper.servers", "storm.zookeeper.servers"}


def refuse_default_store(
    spark: SparkSession, options: Mapping[str, Any] | None
) -> None:
    """Refuse options that name no store where the driver is a cluster's (driver).

    The folder of the user on a node is another one at the next start, or gone. A
    session of Spark Connect says nothing of its driver, and is not refused.

    Raises:
        ConfigError: They name none, and the driver runs on a node.
    """
    if _NAMES & set(options or ()) or not is_classic(spark):
        return
    config = spark.sparkContext.getConf()
    if any(config.get(name, "") == value for name, value in _SAYS.items()):
        raise no_default("this driver runs on a node of a cluster")
