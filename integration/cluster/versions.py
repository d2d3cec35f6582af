"""Every version of every outside server and jar, in one place."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

SCALA = "2.13"

KAFKA = "4.3.1"
"""The broker of all tests but those of ZooKeeper mode; KRaft only."""

KAFKA_WITH_ZOOKEEPER = "3.9.2"
"""The last line of Kafka that can register its brokers in a ZooKeeper."""

KAFKA_OLDEST = "2.4.1"
"""The oldest broker that a few tests of ``make test-all`` run with."""

ZOOKEEPER = "3.8.4"
"""Comes with the jars of ``KAFKA_WITH_ZOOKEEPER``."""

SPARK_CONNECTORS = {"4.0": "4.0.4", "4.1": "4.1.3", "4.2": "4.2.0"}
"""The newest release of Spark's own Kafka connector of each line that can be had."""


def _spark_line() -> str:
    try:
        return ".".join(version("pyspark").split(".")[:2])
    except PackageNotFoundError:  # before anything is installed
        return max(SPARK_CONNECTORS)


SPARK_LINE = _spark_line()
"""The line of releases under test."""

SPARK = SPARK_CONNECTORS.get(SPARK_LINE)
"""The one that the source is compared with; None: there is none for this line."""

DELTAS = {"4.0": "4.4.0", "4.1": "4.4.0", "4.2": "4.4.0"}
"""The newest Delta whose jars can be had, for each line of Spark that has one."""
DELTA = DELTAS.get(SPARK_LINE)
"""The one for this line; None: there is none."""

ICEBERGS = {"4.0": "1.11.0", "4.1": "1.12.0"}
"""The newest Iceberg, for each line of Spark that has one."""
ICEBERG = ICEBERGS.get(SPARK_LINE)
"""The one for this line; None: there is none."""

AVRO = "4.2.0" if SPARK_LINE == "4.2" else None
"""Spark's functions for Avro, which are a jar of their own: of `make test` only."""

ICEBERG_REST = "1.11.0"
"""Of Iceberg's server for tests, whose protocol all its releases speak."""

REGISTRY = "3.0.9"
"""Apicurio's last one for Java 17."""

JETTY = "12.1.8"
SQLITE_JDBC = "3.53.0.0"
SLF4J_2 = "2.0.17"

SPARK_TOKEN_PROVIDER = "4.0.0"
"""Later releases of this one jar are not published everywhere; this one fits."""

SPARK_KAFKA_CLIENTS = "3.9.2"
COMMONS_POOL = "2.12.0"

SLF4J = "1.7.36"
RELOAD4J = "1.2.25"
LOG4J = "2.25.4"

OLDEST_JAVA = 17

OF_MACHINE = {
    "confluent-kafka": "2.16.1",
    "PostgreSQL": "15",
    "MariaDB": "10.11",
    "SQLite": "3.40",
    "PgBouncer": "1.18",
}
"""Of the machine on which the release is made: ``make release-check`` compares them."""

KAFKA_IMAGE = f"apache/kafka:{KAFKA}"
KAFKA_WITH_ZOOKEEPER_IMAGE = f"apache/kafka:{KAFKA_WITH_ZOOKEEPER}"
ZOOKEEPER_IMAGE = f"zookeeper:{ZOOKEEPER}"


class Coordinate(NamedTuple):
    """A jar's address in a Maven repository."""

    group: str
    artifact: str
    version: str
    classifier: str = ""
    kind: str = "jar"

    def __str__(self) -> str:
        kind = "" if self.kind == "jar" else self.kind
        return ":".join(filter(None, (*self[:4], kind)))

    @property
    def file(self) -> str:
        """Its name in the directory of a set."""
        return f"{'-'.join(filter(None, self[1:4]))}.{self.kind}"


class JarSet(NamedTuple):
    """Jars that are fetched together into one directory.

    ``transitive``: with everything they need, or exactly these.
    """

    name: str
    coordinates: tuple[Coordinate, ...]
    transitive: bool


KAFKA_JARS = JarSet(
    "kafka4",
    (
        Coordinate("org.apache.kafka", f"kafka_{SCALA}", KAFKA),
        Coordinate("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J),
    ),
    transitive=True,
)

KAFKA_WITH_ZOOKEEPER_JARS = JarSet(
    "kafka3",
    (
        Coordinate("org.apache.kafka", f"kafka_{SCALA}", KAFKA_WITH_ZOOKEEPER),
        Coordinate("org.apache.zookeeper", "zookeeper", ZOOKEEPER),
        Coordinate("org.slf4j", "slf4j-reload4j", SLF4J),
        Coordinate("ch.qos.reload4j", "reload4j", RELOAD4J),
    ),
    transitive=True,
)

KAFKA_OLDEST_JARS = JarSet(
    "kafka-oldest",
    (
        Coordinate("org.apache.kafka", f"kafka_{SCALA}", KAFKA_OLDEST),
        Coordinate("org.slf4j", "slf4j-reload4j", SLF4J),
        Coordinate("ch.qos.reload4j", "reload4j", RELOAD4J),
    ),
    transitive=True,
)
"""Only of ``make test-all``: fetched when it is first used."""

SPARK_CONNECTOR_JARS = JarSet(
    "spark-connector",
    (
        Coordinate("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA}", SPARK or ""),
        Coordinate(
            "org.apache.spark",
            f"spark-token-provider-kafka-0-10_{SCALA}",
            SPARK_TOKEN_PROVIDER,
        ),
        Coordinate("org.apache.kafka", "kafka-clients", SPARK_KAFKA_CLIENTS),
        Coordinate("org.apache.commons", "commons-pool2", COMMONS_POOL),
    ),
    transitive=False,
)

TIERED_STORAGE_JARS = JarSet(
    "tiered-storage",
    (Coordinate("org.apache.kafka", "kafka-storage", KAFKA, "test"),),
    transitive=False,
)
"""Kafka's own tests have a tier that is a directory."""

KAFKA_TOOLS_JARS = JarSet(
    "kafka-tools",
    (Coordinate("org.apache.kafka", "kafka-tools", KAFKA),),
    transitive=False,
)
"""Kafka's command line, such as ``kafka-consumer-groups``; needs ``KAFKA_JARS``."""

DELTA_JARS = JarSet(
    "delta",
    tuple(
        Coordinate("io.delta", name, DELTA or "")
        for name in (f"delta-spark_{SPARK_LINE}_{SCALA}", "delta-storage")
    ),
    transitive=False,
)

AVRO_JARS = JarSet(
    "avro",
    (Coordinate("org.apache.spark", f"spark-avro_{SCALA}", AVRO or ""),),
    transitive=False,
)

_ICEBERG_GROUP = "org.apache.iceberg"

ICEBERG_JARS = JarSet(
    "iceberg",
    (
        Coordinate(
            _ICEBERG_GROUP,
            f"iceberg-spark-runtime-{SPARK_LINE}_{SCALA}",
            ICEBERG or "",
        ),
    ),
    transitive=False,
)

ICEBERG_REST_JARS = JarSet(
    "iceberg-rest",
    (
        Coordinate(_ICEBERG_GROUP, "iceberg-open-api", ICEBERG_REST, "test-fixtures"),
        Coordinate(_ICEBERG_GROUP, "iceberg-core", ICEBERG_REST),
        Coordinate(_ICEBERG_GROUP, "iceberg-core", ICEBERG_REST, "tests"),
        Coordinate("org.eclipse.jetty.ee10", "jetty-ee10-servlet", JETTY),
        *(
            Coordinate(
                "org.eclipse.jetty.compression", f"jetty-compression-{of}", JETTY
            )
            for of in ("server", "gzip")
        ),
        Coordinate("org.xerial", "sqlite-jdbc", SQLITE_JDBC),
        Coordinate("org.slf4j", "slf4j-simple", SLF4J_2),
    ),
    transitive=True,
)
"""A REST catalog of Iceberg's; Hadoop's own jars are PySpark's."""

REGISTRY_JARS = JarSet(
    "registry",
    (
        Coordinate(
            *("io.apicurio", "apicurio-registry-app", REGISTRY, "all"), kind="tar.gz"
        ),
    ),
    transitive=False,
)
"""A schema registry with the API of Confluent's."""

JAR_SETS = (
    KAFKA_JARS,
    REGISTRY_JARS,
    KAFKA_WITH_ZOOKEEPER_JARS,
    TIERED_STORAGE_JARS,
    KAFKA_TOOLS_JARS,
    *((SPARK_CONNECTOR_JARS,) if SPARK else ()),
    *((DELTA_JARS,) if DELTA else ()),
    *((ICEBERG_JARS, ICEBERG_REST_JARS) if ICEBERG else ()),
    *((AVRO_JARS,) if AVRO else ()),
)
