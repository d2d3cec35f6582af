"""The matrix of docs/compatibility.md names the versions that the tests use."""

from __future__ import annotations

import re
from ast import literal_eval

import pytest

from integration.cluster import versions
from integration.tools.release import GLIBC, oldest_spark, sparks_of_matrix
from tests.doc_pages import ROOT, tables

(MATRIX,) = tables("compatibility.md", "part")
SPARKS = ", ".join(sparks_of_matrix())


def pythons():
    """Those of the hosted checks that run all tests."""
    text = (ROOT / ".github/workflows/checks.yml").read_text()
    found = re.search(r"python: (\[.*\])", text)
    assert found is not None
    return ", ".join(literal_eval(found[1]))


TESTED = {
    "system": f"Linux on x86-64, glibc {GLIBC.replace('_', '.')} or newer",
    "Python": pythons(),
    "Java": str(versions.OLDEST_JAVA),
    "PySpark, classic session": SPARKS,
    "PySpark, Spark Connect": SPARKS,
    "Kafka, KRaft mode": versions.KAFKA,
    "Kafka, ZooKeeper mode": versions.KAFKA_WITH_ZOOKEEPER,
    "Kafka, oldest": versions.KAFKA_OLDEST,
    "ZooKeeper": versions.ZOOKEEPER,
    "schema registry": versions.REGISTRY,
    "Delta Lake": ", ".join(dict.fromkeys(versions.DELTAS.values())),
    "Iceberg": ", ".join(dict.fromkeys(versions.ICEBERGS.values())),
    **versions.OF_MACHINE,
}


@pytest.mark.parametrize("part", TESTED)
def test_a_part_of_the_matrix_has_the_versions_of_the_tests(part):
    assert MATRIX[part]["tested"] == TESTED[part]


def test_the_matrix_lists_nothing_else():
    assert MATRIX.keys() == TESTED.keys()


def test_the_oldest_spark_that_pip_accepts_is_in_the_matrix():
    assert f"installs {oldest_spark()} and" in MATRIX["PySpark, classic session"]["how"]


@pytest.mark.parametrize("table", ["DELTAS", "ICEBERGS"])
def test_the_lines_of_spark_that_have_jars_are_named(table):
    lines: dict[str, str] = getattr(versions, table)
    how = MATRIX["Delta Lake" if table == "DELTAS" else "Iceberg"]["how"]
    with_jars, _, without = how.partition(": no jar for ")
    tested = {".".join(spark.split(".")[:2]) for spark in sparks_of_matrix()}
    assert set(re.findall(r"4\.\d+", with_jars)) - {*lines.values()} >= set(lines)
    assert set(re.findall(r"4\.\d+", without)) == tested - set(lines)
