"""Spark's declarative pipelines know the source and the sink by their name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pyarrow.parquet
import pytest

from integration.capabilities import PIPELINES, need
from integration.cluster.jars import REPOSITORY
from integration.cluster.java import java
from integration.cluster.spark_home import environment, left_out
from integration.cluster.spark_local import quick_start
from integration.consuming import committed_records
from kafka_tx.testing.process_tree import spark_directory

pytestmark = pytest.mark.all

EXAMPLE = REPOSITORY / "examples" / "pipeline"
LASTING = ("spark.sql.catalogImplementation=hive",)
FULL = "--full-refresh-all"


class Pipeline:
    """The example, in a folder of its own, on topics of its own."""

    def __init__(self, servers, topics, place):
        self._servers, (self.orders, self.large), self._place = servers, topics, place
        shutil.copytree(EXAMPLE, place / "pipeline")
        self._change("spark-pipeline.yml", "/tmp/kafka_tx-pipeline", f"{place}/state")
        names = f'ORDERS, LARGE = "{self.orders}", "{self.large}"'
        self._change("orders.py", 'ORDERS, LARGE = "orders", "large-orders"', names)

    def without_tx_id(self):
        """Let Spark's checkpoint alone say where the source is."""
        file = self._place / "pipeline" / "orders.py"
        lines = file.read_text().splitlines()
        kept = [line for line in lines if not line.strip().startswith('.option("tx.')]
        assert len(kept) == len(lines) - 2
        file.write_text("\n".join(kept))

    def set(self, option, value):
        """Give the source one more option."""
        first = '.option("tx.id", ORDERS)'
        self._change("orders.py", first, f'{first}.option("{option}", "{value}")')

    def _change(self, name, old, new):
        file = self._place / "pipeline" / name
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    def run(self, *words, settings=LASTING, path=str(REPOSITORY)):
        settings = ("spark.ui.enabled=false", *settings)
        done = subprocess.run(
            [
                spark_directory() / "bin" / "spark-pipelines",
                *(word for setting in settings for word in ("--conf", setting)),
                *(*(words or ["run"]), "--spec", "pipeline/spark-pipeline.yml"),
            ],
            cwd=self._place,
            env=os.environ
            | {**environment(), **left_out(), "JDK_JAVA_OPTIONS": quick_start()}
            | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
            | {"KAFKA_SERVERS": self._servers},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def amounts(self):
        files = self._place.glob("spark-warehouse/orders/*.parquet")
        read = (pyarrow.parquet.read_table(file) for file in files)
        return sorted(n for table in read for n in table["amount"].to_pylist())

    def sent(self):
        records = committed_records(self._servers, self.large)
        return sorted(int(record.text) for record in records)


@pytest.fixture
def pipeline(kafka, topic, tmp_path):
    need(PIPELINES)
    java()
    topics = topic(2, name="orders"), topic(1, name="large")
    return Pipeline(kafka.bootstrap_servers, topics, tmp_path)


def test_a_pipeline_takes_each_record_once_and_a_full_refresh_only_the_new_ones(
    pipeline, produce
):
    """The refresh empties the table, and the next run follows the error's text."""
    for values, there, sent in ([4, 6], [4, 6], [6]), ([5, 7], [4, 5, 6, 7], [6, 7]):
        produce(pipeline.orders, map(str, values))
        code, shown = pipeline.run()
        assert code == 0, shown
        assert (pipeline.amounts(), pipeline.sent()) == (there, sent)

    produce(pipeline.orders, ["8"])
    code, shown = pipeline.run("run", FULL)
    assert code == 1
    assert "KAFKA_TX_BATCH_IDS_AGAIN" in shown
    pipeline.set(
        "tx.sinkBatchIds", re.findall(r"tx.sinkBatchIds=(forgotten@\d+)", shown)[0]
    )
    code, shown = pipeline.run()

    assert code == 0, shown
    assert (pipeline.amounts(), pipeline.sent()) == ([8], [6, 7, 8])


def test_without_tx_id_a_full_refresh_fills_the_table_and_sends_all_again(
    pipeline, produce
):
    pipeline.without_tx_id()
    produce(pipeline.orders, ["4", "6"])
    first, _ = pipeline.run()
    produce(pipeline.orders, ["8"])

    second, shown = pipeline.run("run", FULL)

    assert (first, second) == (0, 0), shown
    assert pipeline.amounts() == [4, 6, 8]
    assert pipeline.sent() == [6, 6, 8]


def test_without_a_lasting_catalog_the_second_run_stops(pipeline, produce):
    produce(pipeline.orders, ["6"])
    first, _ = pipeline.run(settings=())

    second, shown = pipeline.run(settings=())

    assert (first, second) == (0, 1)
    assert "LOCATION_ALREADY_EXISTS" in shown
    assert pipeline.sent() == [6]


def test_an_editable_install_is_not_discovered(pipeline):
    code, shown = pipeline.run("dry-run", path="")

    assert code == 1
    assert "DATA_SOURCE_NOT_FOUND" in shown
