"""What people see of tables: ``kafka-tx status``, metrics, and the status page."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
import requests
from typer.testing import CliRunner

import kafka_tx
from integration.bounded import read_out
from integration.capabilities import ICE, LAKE, need
from integration.cluster.spark_local import delta_session, iceberg_session
from integration.cluster.waiting import wait_until
from integration.reading import reader
from kafka_tx.cli.main import app

pytestmark = pytest.mark.all


@pytest.fixture(params=["delta", "iceberg"])
def lake(request, spark, tmp_path):
    """A session with tables of a format, and how their names begin."""
    need(ICE if request.param == "iceberg" else LAKE)
    if request.param == "iceberg":
        return iceberg_session(spark, tmp_path / "lake"), "lake.db.", "iceberg"
    return delta_session(spark), f"facts_{tmp_path.name}_", "delta"


def merge(df, target):
    df.createOrReplaceTempView("batch")
    df.sparkSession.sql(
        f"MERGE INTO {target} t USING batch b ON t.key = b.key"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def newest(session, table, kind):
    if kind == "iceberg":
        session.sql(f"REFRESH TABLE {table}")  # the session keeps tables for 30 s
        shown = session.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'")
        return str(shown.first()[0])
    return str(session.sql(f"DESCRIBE HISTORY {table} LIMIT 1").first().version)


def told(url):
    shown = CliRunner().invoke(app, ["status", "--store", url, "--json"])
    (one,) = json.loads(shown.stdout)
    return {
        (write["table"].replace("`", ""), write["sink"]): write
        for write in one["tables"]
    }


def test_status_and_metrics_show_the_tables_of_an_id(
    lake, kafka, topic, produce, tmp_path
):
    session, prefix, kind = lake
    name, store = topic(2), f"sqlite:///{tmp_path}/store.db"
    appended, merged = f"{prefix}appended", f"{prefix}merged"
    session.sql(f"CREATE TABLE {merged} (key STRING) USING {kind}")

    def save(df, given):
        rows = df.selectExpr("string(value) AS key").coalesce(1)
        kafka_tx.append_to_table(rows, given, appended)
        if given.txid == 1:
            kafka_tx.write_to_table(rows, given, merged, merge, sink="once")

    def run():
        query = reader(
            session,
            kafka.bootstrap_servers,
            subscribe=name,
            tx__id="facts",
            tx__store=store,
        ).load()
        writer = query.writeStream.foreachBatch(kafka_tx.for_each_transaction(save))
        read_out(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))

    with closing(kafka_tx.attach(session, metrics_port=0)) as attached:
        for values in (["a", "b"], ["c"]):
            produce(name, values)
            run()
        wait_until(
            "the listener has told",
            lambda: told(store)[appended, "default"]["txid"] == 2,
        )
        page = f"http://127.0.0.1:{attached.port}"
        metrics = requests.get(f"{page}/metrics", timeout=60).text
        (shown,) = requests.get(f"{page}/api/status", timeout=60).json()["ids"]

    tables = told(store)
    first, second = tables[appended, "default"], tables[merged, "once"]
    assert (first["txid"], first["files"], first["rows"]) == (2, 1, 1)
    assert first["version"] == newest(session, appended, kind)
    assert (second["txid"], second["rows"]) == (1, 2)
    assert second["version"] == newest(session, merged, kind)
    assert first["seconds"] > 0
    assert 'kafka_tx_table_commit_seconds_count{id="facts"} 3.0' in metrics
    assert 'kafka_tx_table_rows_total{id="facts"} 5.0' in metrics
    assert [one["txid"] for one in shown["tables"]] == [2, 1]
