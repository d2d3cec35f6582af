"""Topologies on real brokers and Spark: whatever goes wrong, the state is a recount.

``KAFKA_TX_TOPOLOGY_RECORDS`` sets how many records the runs with random trouble read.
"""

from __future__ import annotations

import pytest

from integration.cluster.waiting import PATIENT_S, wait_until
from integration.sizes import size
from integration.topologies import tally, topology_job
from integration.topologies.tally import (
    BATCHES,
    MODES,
    PARTITIONS,
    STORES,
    Leftovers,
)
from integration.topologies.topology_job import COMPONENTS, Trouble, kept, recount
from kafka_tx.errors import ComponentError, FormatError, ReplayImpossibleError
from kafka_tx.spark.topologies import engine

RECORDS = size(4_800, 200_000, "KAFKA_TX_TOPOLOGY_RECORDS")


@pytest.mark.all  # test_topology_kinds has one each time, test_crashes both stores
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("mode", MODES)
def test_failures_in_every_component_and_lost_workers_count_nothing_twice(
    zookeeper, spark, kafka, topic, produce, tmp_path, mode, store
):
    name = topic(PARTITIONS)
    ends = tally.even(produce, name, RECORDS)
    url = tally.store_url(store, zookeeper, tmp_path)
    trouble = Trouble(str(tmp_path), failing=0.04, kills=2)
    leftovers = Leftovers(spark)

    handle = tally.run_tally(
        spark, kafka, name, mode, tmp_path, url, trouble, records=RECORDS
    )

    assert kept(tmp_path / "sink.db") == recount(ends)
    assert handle.status.committed_txid >= BATCHES
    assert handle.status.replays >= 2
    assert {f.name for f in tmp_path.glob("failed-*")} == FAILED
    assert len(list(tmp_path.glob("killed*"))) == 2
    assert leftovers.none()


FAILED = {f"failed-{component}" for component in COMPONENTS}


def test_records_that_are_gone_stop_a_transactional_replay_and_say_which(
    spark, kafka, topic, produce, tmp_path
):
    name = topic(1)
    produce(name, ["v"] * 300, partition=0)
    store = f"sqlite:///{tmp_path}/state.db"
    sink = str(tmp_path / "sink.db")
    failing = Trouble(str(tmp_path), failing=1.0, only="pass")
    built = topology_job.topology(
        kafka.bootstrap_servers, name, "transactional", sink, failing
    )
    handle = built.start(spark, {"tx.store": store})
    with tally.ending(handle):
        wait_until("a replay", lambda: handle.status.replays)

        kafka.delete_records(name, {0: 50})

        with pytest.raises(ReplayImpossibleError, match=r"txid 1 holds .* \[0, 100\)"):
            handle.awaitTermination(PATIENT_S)

    well = Trouble(str(tmp_path))
    opaque = topology_job.topology(
        kafka.bootstrap_servers, name, "opaque", sink, well, failOnDataLoss="false"
    )
    tally.run_out(opaque.start(spark, {"tx.store": store}))
    assert kept(sink)[0][0] == 250  # "goes on with what is left"


def test_an_error_in_a_task_names_its_place_and_leaves_the_session_usable(
    spark, kafka, topic, produce, tmp_path
):
    name = topic(1)
    produce(name, ["v"] * 10, partition=0)
    store = f"sqlite:///{tmp_path}/state.db"
    broken = Trouble(place=None, point="in-task")  # type: ignore[arg-type]
    leftovers = Leftovers(spark)
    built = topology_job.topology(
        kafka.bootstrap_servers, name, "opaque", str(tmp_path / "sink.db"), broken
    )

    handle = built.start(spark, {"tx.store": store})

    with pytest.raises(ComponentError, match="TypeError") as raised:
        handle.awaitTermination(PATIENT_S)
    assert raised.value.component == "tally"
    assert raised.value.txid == 1
    assert "topology_job.py" in raised.value.traceback
    assert leftovers.none()
    assert spark.range(10).count() == 10


def test_tasks_of_another_version_than_the_driver_read_nothing_and_say_so(
    spark, kafka, topic, produce, tmp_path, monkeypatch
):
    name = topic(1)
    produce(name, ["v"] * 10, partition=0)
    store, sink = f"sqlite:///{tmp_path}/state.db", str(tmp_path / "sink.db")
    well = Trouble(str(tmp_path))
    built = topology_job.topology(kafka.bootstrap_servers, name, "opaque", sink, well)
    monkeypatch.setattr(engine, "VERSION", "9.9")

    handle = built.start(spark, {"tx.store": store})

    with pytest.raises(FormatError, match="a driver with version 9.9"):
        handle.awaitTermination(PATIENT_S)
    monkeypatch.undo()
    tally.run_out(built.start(spark, {"tx.store": store}))
    assert kept(sink)[0][0] == 10
