"""A Spark session in local mode that can read Kafka with Spark's own connector too."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from integration.cluster import java_names
from integration.cluster.class_archives import class_archive
from integration.cluster.jars import jar_paths
from integration.cluster.java import java
from integration.cluster.spark_home import environment, launched_quickly, session_jars
from integration.cluster.versions import (
    AVRO,
    AVRO_JARS,
    DELTA,
    DELTA_JARS,
    ICEBERG,
    ICEBERG_JARS,
    SPARK,
    SPARK_CONNECTOR_JARS,
    SPARK_LINE,
)
from kafka_tx.spark.versions.names import quick_checkpoints
from kafka_tx.testing import QUICK_JAVA

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
}
"""What every session of the tests and benchmarks has, in local mode or not."""

_making = threading.Lock()
_CATALOGS = "spark.sql.catalog"
_DELTA = "org.apache.spark.sql.delta"
DELTA_SETTINGS = {
    **SETTINGS,
    "spark.sql.catalog.spark_catalog": f"{_DELTA}.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""One partition: 50, the default, cost a second where logs are this short."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Many small plans cost a tenth less where Spark does not compile them."""

COMPILED_ONCE = {"spark.sql.codegen.cache.maxEntries": "5000"}
"""What Spark compiles all the same, above all rows of Delta's log, is kept. A session
with many tests has more than 100 of it, the default, and would compile it again."""

NO_HELPER = "-Djdk.lang.Process.launchMechanism=VFORK"
"""How Java starts ``chmod`` for each checkpoint of Spark: without a program between.

With that program a start takes a third more time. Once a start ended with 1 and no text
of an error, as the program does where its pipes are closed: it says so on stdout.
"""

SELDOM = {"spark.sql.streaming.pollingDelay": "50ms"}
"""A query that has nothing to do looks for more so often, instead of every 10 ms: that
takes a quarter of a core of each one."""

LIVES_LONG = {"spark.storage.blockManagerHeartbeatTimeoutMs": "1h"}
"""A JVM that got no processor for two minutes takes its own executor for lost, never
gets it back, and ends ten minutes later."""

ARCHIVE = f"spark-{SPARK_LINE}"
"""The name of the archive of Spark's classes."""

SESSION_ARCHIVE = f"{ARCHIVE}-and-tables"
"""The name of the archive of classes of ``local_session``, which has more jars."""


def local_session(
    work: Path,
    more: Mapping[str, str] | None = None,
    *,
    cores: int = 2,
    java_options: str | None = None,
) -> SparkSession:
    """Start a session; ``work`` takes what Spark wants to leave on disk.

    The session's JVM ends with this process. Only one session may live at a time. It
    starts quickly unless there are ``java_options``.
    """
    java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars, quick = more_jars(), java_options is None
    if quick:
        java_names.ask_once()
    builder = SparkSession.builder.master(f"local[{cores}]").appName("kafka_tx")
    settings = {
        **SETTINGS,
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work / "local"),
        **LIVES_LONG,
        **(quick_settings() if quick else {"spark.jars": ",".join(map(str, jars))}),
        "spark.driver.extraJavaOptions": quick_start(SESSION_ARCHIVE, jars)
        if java_options is None
        else java_options,
        **(more or {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with launched_quickly(jars if quick else ()):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def more_jars() -> list[Path]:
    """Of Spark's own connector, and of tables and formats, as far as there are any."""
    jars = jar_paths(SPARK_CONNECTOR_JARS) if SPARK else []
    jars += jar_paths(DELTA_JARS) if DELTA else []
    jars += jar_paths(ICEBERG_JARS) if ICEBERG else []
    jars += jar_paths(AVRO_JARS) if AVRO else []
    return jars


def delta_session(spark: SparkSession) -> SparkSession:
    """Make a session with Delta's extension in the JVM of another one.

    Its catalog is its own. Spark takes extensions from what the JVM was started with,
    so two threads do this one after the other.
    """
    jvm = spark._jvm
    assert jvm is not None
    context = spark.sparkContext._jsc.sc()
    with _making:
        context.conf().set(
            "spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"
        )
        try:
            made = jvm.org.apache.spark.sql.classic.SparkSession(
                context, DELTA_SETTINGS
            )
        finally:
            context.conf().remove("spark.sql.extensions")
    return SparkSession(spark.sparkContext, made)


def iceberg_session(
    spark: SparkSession, warehouse: Path | str, kind: str = "hadoop", **more: str
) -> SparkSession:
    """Make a session with a catalog ``lake`` of Iceberg's in the JVM of another one."""
    made = spark.newSession()
    place = {"warehouse": str(warehouse)} if str(warehouse) else {}
    catalog = {"type": kind, **place, **more}
    made.conf.set(f"{_CATALOGS}.lake", "org.apache.iceberg.spark.SparkCatalog")
    for name, value in catalog.items():
        made.conf.set(f"{_CATALOGS}.lake.{name}", value)
    return made


def quick_settings() -> dict[str, str]:
    """Settings for speed alone."""
    return quick_checkpoints() | INTERPRETED | COMPILED_ONCE | SELDOM


def quick_environment() -> dict[str, str]:
    """For programs that make their session themselves, as users' do."""
    given = (f"-D{name}={value}" for name, value in quick_settings().items())
    options = " ".join([quick_start(), *given])
    return {**environment(), "JDK_JAVA_OPTIONS": options}


def quick_start(archive: str = ARCHIVE, more: Sequence[Path] = ()) -> str:
    """Java options of any process that runs Spark's jars for a minute.

    Args:
        archive: Which archive of classes it has.
        more: Jars that it has behind Spark's own.
    """
    return " ".join(
        [*QUICK_JAVA, NO_HELPER, *class_archive(archive, [*session_jars(), *more])]
    )
