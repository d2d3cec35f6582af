"""Which format a table has, and whether a session can write it (driver)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyspark
from py4j.java_gateway import JavaPackage

from kafka_tx.errors import ConfigError
from kafka_tx.spark.versions.names import is_classic

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

_ICEBERG = "org.apache.iceberg."
_CATALOG = "spark.sql.catalog."
_OWN = "spark_catalog"
"""The catalog that every session has."""
_JARS = {"4.0": "1.11.0", "4.1": "1.12.0"}
"""Iceberg for each line of Spark, as tested."""


def _no_statement(df: DataFrame, target: str) -> object:
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Batch:
    """The arguments of a write.

    Attributes:
        table: A name, or a path.
        name: Of the sink.
        options: Of the writer, for an append.
        partition_by: Columns, for a table that an append makes.
        statement: Called with the rows and the target as SQL names it.
    """

    df: DataFrame
    table: str
    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] = ()
    statement: Callable[[DataFrame, str], object] = _no_statement


@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Let the JVM's classes find this session in this thread."""
    jvm: Any = spark._jvm
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    former = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if former.isDefined():
            sessions.setActiveSession(former.get())
        else:
            sessions.clearActiveSession()


def is_path(table: str) -> bool:
    """Whether a table is given by its path."""
    return "/" in table


def is_iceberg(spark: SparkSession, table: str) -> bool:
    """Whether the table is in a catalog of Iceberg's; the session can write its format.

    A session of Spark Connect does not tell which jars its server has.

    Raises:
        ConfigError: The session lacks the format or the catalog; or it is the path of
            an Iceberg table.
    """
    if is_path(table):
        if is_classic(spark):
            _check_path(spark, table)
        _check_delta(spark, table)
        return False
    catalog, *path = full_name(spark, table)
    if _class_of(spark, catalog).startswith(_ICEBERG):
        _check_iceberg(spark, table)
        return True
    if catalog == _OWN and len(path) > 2:
        raise _no_catalog(spark, table, path[0])
    _check_delta(spark, table)
    return False


def _class_of(spark: SparkSession, catalog: str) -> str:
    return spark.conf.get(f"{_CATALOG}{catalog}", None) or ""


def check_classic(spark: SparkSession) -> None:
    """Refuse statements in a session of Spark Connect, which has no JVM of its own."""
    if not is_classic(spark):
        raise ConfigError(
            "write_to_table needs the session's JVM, which a session of Spark Connect"
            " does not show. Nothing was written. Run the query in the driver itself,"
            " or append with append_to_table",
            option="df",
        )


def full_name(spark: SparkSession, table: str) -> list[str]:
    """Catalog, namespace and name of a table."""
    parts = _parts(table)
    if len(parts) > 1 and _class_of(spark, parts[0]):
        return parts
    catalog = spark.catalog.currentCatalog()
    if len(parts) > 1:
        return [catalog, *parts]
    return [catalog, *_parts(spark.catalog.currentDatabase()), *parts]


def _parts(name: str) -> list[str]:
    """The parts of a name, as SQL takes it apart."""
    found = re.findall(r"`((?:[^`]|``)+)`|([^`.]+)", name)
    return [quoted.replace("``", "`") or plain for quoted, plain in found]


def quoted(parts: Sequence[str]) -> str:
    """A name as SQL takes it, whatever its parts contain."""
    return ".".join("`{}`".format(part.replace("`", "``")) for part in parts)


def _named(spark: SparkSession) -> list[str]:
    """The session's own catalog and the configured ones."""
    settings = [name for name in spark.conf.getAll if name.startswith(_CATALOG)]
    names = (name.removeprefix(_CATALOG) for name in settings)
    return sorted(
        {_OWN, *(name for name in names if not re.match(r"default_|.*\.", name))}
    )


def _no_catalog(spark: SparkSession, table: str, catalog: str) -> ConfigError:
    return ConfigError.illegal(
        "table",
        table,
        f"a table of one of the catalogs {', '.join(map(repr, _named(spark)))}",
        f"This session has no catalog {catalog!r}. Nothing was written. Correct the"
        f" name, or start the session with {_CATALOG}{catalog}=<the catalog's class>"
        " and its settings, for Iceberg org.apache.iceberg.spark.SparkCatalog",
    )


def _check_path(spark: SparkSession, path: str) -> None:
    jvm: Any = spark._jvm
    if isinstance(jvm.org.apache.iceberg.IcebergBuild, JavaPackage):
        return
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    if jvm.org.apache.iceberg.hadoop.HadoopTables(conf).exists(path):
        raise ConfigError.illegal(
            "table",
            path,
            "the name of an Iceberg table, or the path of a Delta table",
            "This is the path of an Iceberg table: Iceberg checks no append by path."
            " Nothing was written. Name a catalog for it, for example"
            " spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog with"
            " spark.sql.catalog.lake.type=hadoop and the directory above the table's"
            " database as spark.sql.catalog.lake.warehouse",
        )


def _check_delta(spark: SparkSession, table: str) -> None:
    """Refuse a session without Delta's catalog, its jar, or one for this Spark."""
    jar = _jar_of(spark, "io.delta.tables.DeltaTable")
    is_wrong = "" if jar is None else _is_for_another(jar)
    if jar is not None and _class_of(spark, _OWN) and not is_wrong:
        return
    lakes = (n for n in _named(spark) if _class_of(spark, n).startswith(_ICEBERG))
    others = ", ".join(map(repr, lakes)) or "none"
    raise ConfigError(
        f"table {table!r} is in no catalog of Iceberg's (this session has {others}), so"
        f" it is one of Delta's, this is Spark {_line()}, and"
        f" {is_wrong or 'this session lacks the jars of Delta or its catalog'}. Nothing"
        " was written. For an Iceberg table, name its catalog first. For a Delta table,"
        " start the session with spark.jars.packages=io.delta:delta-spark_<4.0, 4.1 or"
        " 4.2, as your Spark>_2.13:4.4.0,"
        " spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and"
        f" {_CATALOG}{_OWN}=org.apache.spark.sql.delta.catalog.DeltaCatalog",
        option="spark.jars.packages",
    )


def _check_iceberg(spark: SparkSession, table: str) -> None:
    """Refuse a session that has no jar of Iceberg's, or one for another Spark."""
    jar = _jar_of(spark, "org.apache.iceberg.IcebergBuild")
    none = "this session has no jar of Iceberg's"
    is_wrong = none if jar is None else _is_for_another(jar)
    if not is_wrong:
        return
    line = _line()
    jars = " or ".join(
        f"org.apache.iceberg:iceberg-spark-runtime-{of}_2.13:{version}"
        for of, version in _JARS.items()
        if of == line or line not in _JARS
    )
    advice = f"Start it with spark.jars.packages={jars}"
    if line not in _JARS:
        advice = (
            "Unless Iceberg has published one meanwhile, run the query on Spark"
            f" {' or '.join(_JARS)} with {jars}, or write to a Delta table"
        )
    raise ConfigError(
        f"table '{table}' is in a catalog of Iceberg's, this is Spark {line}, and"
        f" {is_wrong}. Nothing was written. {advice}",
        option="spark.jars.packages",
    )


def _jar_of(spark: SparkSession, of: str) -> str | None:
    return _jar(spark.sparkContext, of) if is_classic(spark) else ""


@lru_cache(maxsize=4)
def _jar(context: SparkContext, of: str) -> str | None:
    """The jar of a class; None: there is no such class; empty: Java shows none."""
    found: Any = context._jvm
    for name in of.split("."):
        found = getattr(found, name)
    if isinstance(found, JavaPackage):
        return None
    source = found._java_lang_class.getProtectionDomain().getCodeSource()
    return "" if source is None else str(source.getLocation()).rpartition("/")[2]


def _is_for_another(jar: str) -> str:
    """The fault of a jar; empty if it is for this Spark, or names no version."""
    made_for = re.search(r"-spark(?:-runtime)?[-_](\d+\.\d+)_", jar)
    if made_for is None or made_for[1] == _line():
        return ""
    return f"the jar {jar} is for Spark {made_for[1]}"


def _line() -> str:
    return ".".join(pyspark.__version__.split(".")[:2])
