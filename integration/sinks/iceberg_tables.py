"""Iceberg tables on two catalogs, as fixtures of the modules that test them."""

from __future__ import annotations

import pytest

from integration.cluster.processes.iceberg_rest import IcebergRest
from integration.cluster.running import running
from integration.cluster.spark_local import iceberg_session
from integration.sinks.table_suite import Table, forget, fresh
from kafka_tx.spark.sinks import iceberg

EXPIRE = "expire_snapshots(table => '{}', older_than => TIMESTAMP '2100-01-01')"
COMPACT = "rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def rest(ice, tmp_path_factory):
    with running(IcebergRest(tmp_path_factory.mktemp("rest"))) as catalog:
        yield catalog


@pytest.fixture(scope="module", params=["hadoop", "rest"])
def lake(request, ice, spark, warehouse):
    if request.param == "hadoop":
        return iceberg_session(spark, warehouse)
    return of_rest(spark, request.getfixturevalue("rest").uri)


def of_rest(spark, uri):
    made = iceberg_session(spark, "", kind="rest", uri=uri)
    made.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    return made


class IcebergTable(Table):
    format = "iceberg"
    appends = iceberg.IcebergAppend
    inside = ("_stage",)

    def others_write(self, *rows):
        self.batch(rows).writeTo(self.name).append()

    def call(self, procedure):
        name = self.name.removeprefix("lake.")
        self.spark.sql(f"CALL lake.system.{procedure.format(name)}").collect()

    def snapshots(self):
        found = self.spark.table(f"{self.name}.snapshots").orderBy("committed_at")
        return [row.snapshot_id for row in found.collect()]

    def versions(self):
        return len(self.snapshots())

    def branches(self):
        found = self.spark.table(f"{self.name}.refs").collect()
        return [row.name for row in found if row.name != "main"]


@pytest.fixture
def table(lake):
    forget()
    made = IcebergTable(lake, f"lake.db.{fresh()}")
    yield made
    lake.sql(f"DROP TABLE IF EXISTS {made.name}")


@pytest.fixture
def counts(table):
    table.make_counts()
    return table
