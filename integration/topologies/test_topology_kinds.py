"""Bolts of every kind in one topology, and committers on executors, on real Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.cluster.jars import REPOSITORY
from integration.cluster.topics import fresh_name
from integration.topologies import tally, topology_kinds
from integration.topologies.tally import PARTITIONS, Leftovers
from integration.topologies.topology_job import Trouble, kept, recount
from kafka_tx.spark.topologies.engine import COMMIT_POOL
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import BasicBolt
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout

RECORDS = 1200
BATCH = 200


@pytest.mark.all
@pytest.mark.parametrize("mode", ["transactional", "opaque"])
def test_bolts_by_row_by_arrow_and_as_dataframe_work_in_one_topology(
    spark, kafka, topic, produce, tmp_path, mode
):
    name = topic(PARTITIONS)
    ends = tally.even(produce, name, RECORDS)
    trouble = Trouble(str(tmp_path), failing=0.05, kills=1)
    leftovers = Leftovers(spark)
    built = topology_kinds.mixed(
        kafka.bootstrap_servers, name, mode, tmp_path, trouble, BATCH
    )

    handle = tally.run_out(built.start(spark, settings(tmp_path)))

    assert kept(tmp_path / "sink.db") == recount(ends)
    assert handle.status.committed_txid >= RECORDS // BATCH
    assert handle.status.replays
    assert leftovers.none()


@pytest.mark.parametrize(
    "mode", [pytest.param("transactional", marks=pytest.mark.all), "opaque"]
)
def test_committers_on_executors_count_nothing_twice(
    spark, kafka, topic, produce, tmp_path, mode
):
    name = topic(PARTITIONS)
    ends = tally.even(produce, name, RECORDS)
    trouble = Trouble(str(tmp_path), failing=0.05, kills=1)
    leftovers = Leftovers(spark)
    built = topology_kinds.distributed(
        kafka.bootstrap_servers, name, mode, tmp_path, trouble, BATCH
    )

    handle = tally.run_out(built.start(spark, settings(tmp_path)))

    assert kept_by_all(tmp_path) == recount(ends)
    assert (tmp_path / "killed0").exists()
    assert handle.status.replays
    assert leftovers.none()


class Large(BasicBolt):
    """A bolt with a model, say: PySpark broadcasts what is larger than 1 MiB."""

    fields = "n bigint"

    def __init__(self) -> None:
        self.model = os.urandom(2 << 20)

    def execute(self, row, collector):
        collector.emit((row.n + len(self.model),))


@pytest.mark.all
def test_a_large_bolt_leaves_no_file_for_each_batch(spark):
    def files():
        return set(Path(spark.sparkContext._temp_dir).iterdir())

    before, rows = files(), [(n,) for n in range(4)]
    builder = TransactionalTopologyBuilder(
        fresh_name("large"), "spout", MemoryTransactionalSpout([rows], "n bigint", 1)
    )
    builder.set_bolt("large", Large()).shuffle_grouping("spout")
    handle = builder.build().start(spark, {"tx.store": "memory:"})
    handle.process_all_available()
    while_it_runs = files() - before
    handle.stop()

    assert handle.status.committed_txid == len(rows)
    assert len(while_it_runs) <= 1
    assert files() == before


@pytest.mark.all
def test_commit_phases_on_executors_have_their_own_pool_where_spark_is_fair(
    kafka, topic, produce, tmp_path
):
    name = topic(PARTITIONS)
    ends = tally.even(produce, name, RECORDS)

    done = subprocess.run(
        [
            *(sys.executable, "-m", "integration.topologies.topology_kinds"),
            *("--work", str(tmp_path), "--topic", name),
            *("--servers", kafka.bootstrap_servers),
        ],
        cwd=REPOSITORY,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (tmp_path / "finished").exists(), done.stdout + done.stderr
    assert kept_by_all(tmp_path) == recount(ends)
    assert [f.name for f in tmp_path.glob("pool-*")] == [f"pool-{COMMIT_POOL}"]


def settings(place):
    return {
        "tx.store": f"sqlite:///{place}/state.db",
        "tx.maxPending": 3,
        "tx.retryMs": 50,
    }


def kept_by_all(place):
    """The tally of both tasks."""
    tallies = [kept(path) for path in sorted(place.glob("sink[01].db"))]
    assert len(tallies) == 2
    return tallies[0] | tallies[1]
