"""Topologies on real brokers and Spark: whatever goes wrong, the state is a recount.

``KAFKA_TX_TOPOLOGY_RECORDS`` sets how many records the runs with random trouble read:
500000 takes a quarter of an hour on two cores.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from integration import topology_job
from integration.topology_job import OPAQUE_POINTS, POINTS, Trouble, kept, recount
from kafka_tx import assembly
from kafka_tx.errors import ComponentError, ReplayImpossibleError

HERE = Path(__file__).parent
RECORDS = int(os.environ.get("KAFKA_TX_TOPOLOGY_RECORDS", "20000"))
PARTITIONS = 4
BATCHES = 25
WITHIN_S = 600
MODES = pytest.mark.parametrize("mode", ["transactional", "opaque"])


def even(produce, topic, records):
    """Write so many records evenly; where each partition ends."""
    for partition in range(PARTITIONS):
        produce(topic, ["v"] * (records // PARTITIONS), partition=partition)
    return dict.fromkeys(range(PARTITIONS), records // PARTITIONS)


def run(spark, kafka, topic, mode, place, store, trouble, *, records=RECORDS):
    """Run a tally to its end; its handle, stopped."""
    built = topology_job.topology(
        kafka.bootstrap_servers,
        topic,
        mode,
        str(place / "sink.db"),
        trouble,
        batch=max(records // BATCHES, 1),
    )
    handle = built.start(
        spark, {"tx.store": store, "topology.max.spout.pending": 4, "tx.retryMs": 50}
    )
    try:
        assert handle.process_all_available(WITHIN_S), handle.status
        handle.stop()
    finally:
        if handle.is_active:
            handle.stop(finish=False)
    return handle


def is_idle(spark):
    """Nothing runs and nothing is cached any more."""
    context = spark.sparkContext
    tracker = context.statusTracker()
    cached = context._jsc.getPersistentRDDs().size()
    return not tracker.getActiveJobsIds() and cached == 0


def topology_threads():
    return [t.name for t in threading.enumerate() if t.name.startswith("kafka-tx")]


@pytest.fixture
def store_url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state.db"
    zookeeper = request.getfixturevalue("zookeeper")
    return f"zookeeper://{zookeeper.hosts}/topologies/{tmp_path.name}"


@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize("store_url", ["sqlite", "zookeeper"], indirect=True)
@MODES
def test_failures_in_every_component_and_lost_workers_count_nothing_twice(
    spark, kafka, topic, produce, tmp_path, mode, store_url
):
    name = topic(PARTITIONS)
    ends = even(produce, name, RECORDS)
    trouble = Trouble(str(tmp_path), failing=0.1, kills=2)

    handle = run(spark, kafka, name, mode, tmp_path, store_url, trouble)

    assert kept(tmp_path / "sink.db") == recount(ends)
    assert handle.status.committed_txid >= BATCHES
    assert handle.status.replays >= 2
    assert len(list(tmp_path.glob("killed*"))) == 2
    assert is_idle(spark)
    assert topology_threads() == []


# --- kills of the driver ---


class Job:
    """The tally as a process tree of its own."""

    def __init__(self, work, servers, topic, mode, store):
        self.work, self.store, self.given = work, store, (servers, topic, mode)

    def run(self, point):
        """Run until it waits at ``point`` (then kill it) or has finished."""
        reached, finished = self.work / "reached", self.work / "finished"
        reached.unlink(missing_ok=True)
        servers, topic, mode = self.given
        command = [
            *(sys.executable, "-m", "integration.topology_job", "--local"),
            *("--work", str(self.work), "--servers", servers, "--topic", topic),
            *("--mode", mode, "--store", self.store, "--point", point),
            *("--txid", str(self.committed() + 2)),
        ]
        with (self.work / "log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=HERE.parent,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            )
        try:
            deadline = time.monotonic() + 120
            while not (reached.exists() or finished.exists()):
                if process.poll() is not None or time.monotonic() > deadline:
                    tail = (self.work / "log").read_text(errors="replace")[-6000:]
                    pytest.fail(f"it neither came to {point!r} nor finished:\n{tail}")
                time.sleep(0.05)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def committed(self):
        store = assembly.open_store(self.store, "tally")
        try:
            text = store.get("coordinator/currtx")
        finally:
            store.close()
        return 0 if text is None else json.loads(text)["data"] - 1


@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize(
    ("mode", "points", "store_url"),
    [("transactional", POINTS, "sqlite"), ("opaque", OPAQUE_POINTS, "zookeeper")],
    indirect=["store_url"],
)
def test_a_kill_at_every_point_loses_and_repeats_nothing(
    kafka, topic, produce, tmp_path, mode, points, store_url
):
    name = topic(PARTITIONS)
    ends = even(produce, name, 4000)
    job = Job(tmp_path, kafka.bootstrap_servers, name, mode, store_url)

    for point in points:
        job.run(point)
        assert (tmp_path / "reached").exists(), f"never came to {point}"
    job.run("")

    assert (tmp_path / "finished").exists()
    assert kept(tmp_path / "sink.db") == recount(ends)
    assert job.committed() >= 4000 // 100


# --- brokers ---


@pytest.mark.timeout(WITHIN_S)
@MODES
def test_a_broker_that_goes_and_comes_back_costs_no_record(
    spark, kafka_pair, tmp_path, mode
):
    from integration.cluster.records import Produce

    name = f"broker-{mode}"
    kafka_pair.create_topic(name, PARTITIONS, replication=1)
    ends = even(Produce(kafka_pair.bootstrap_servers), name, 8000)
    built = topology_job.topology(
        kafka_pair.bootstrap_servers,
        name,
        mode,
        str(tmp_path / "sink.db"),
        Trouble(str(tmp_path)),
        batch=200,
        **{"kafkaConsumer.pollTimeoutMs": "3000"},
    )
    store = f"sqlite:///{tmp_path}/state.db"
    handle = built.start(spark, {"tx.store": store, "topology.max.spout.pending": 2})
    try:
        committed_past(handle, 3)
        kafka_pair.kill(2)
        if mode == "opaque":
            committed_past(handle, handle.status.committed_txid + 3)
        else:
            time.sleep(2)
        kafka_pair.restart(2)
        deadline = time.monotonic() + 120
        while recount(ends) != kept(tmp_path / "sink.db"):
            assert time.monotonic() < deadline, (kept(tmp_path / "sink.db"), ends)
            assert handle.is_active, handle.exception
            time.sleep(0.2)
    finally:
        handle.stop()


def committed_past(handle, txid):
    deadline = time.monotonic() + 90
    while (handle.status.committed_txid or 0) < txid:
        assert time.monotonic() < deadline, handle.status
        assert handle.is_active, handle.exception
        time.sleep(0.05)


def test_records_that_are_gone_stop_a_transactional_replay_and_say_which(
    spark, kafka, topic, produce, tmp_path
):
    name = topic(1)
    produce(name, ["v"] * 300, partition=0)
    store = f"sqlite:///{tmp_path}/state.db"
    sink = str(tmp_path / "sink.db")
    failing = Trouble(str(tmp_path), failing=1.0)
    built = topology_job.topology(
        kafka.bootstrap_servers, name, "transactional", sink, failing
    )
    handle = built.start(spark, {"tx.store": store})
    deadline = time.monotonic() + 60
    while not handle.status.replays:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    kafka.delete_records(name, {0: 50})

    with pytest.raises(ReplayImpossibleError, match=r"txid 1 holds .* \[0, 100\)"):
        handle.await_termination(60)


def test_an_error_in_a_task_names_its_place_and_leaves_the_session_usable(
    spark, kafka, topic, produce, tmp_path
):
    name = topic(1)
    produce(name, ["v"] * 10, partition=0)
    store = f"sqlite:///{tmp_path}/state.db"
    broken = Trouble(place=str(tmp_path), failing="much")  # type: ignore[arg-type]
    built = topology_job.topology(
        kafka.bootstrap_servers, name, "opaque", str(tmp_path / "sink.db"), broken
    )

    handle = built.start(spark, {"tx.store": store})

    with pytest.raises(ComponentError, match="TypeError") as raised:
        handle.await_termination(60)
    # A task without records comes to its end before the other one reads any.
    assert raised.value.component in ("pass", "tally")
    assert raised.value.txid == 1
    assert "topology_job.py" in raised.value.traceback
    assert is_idle(spark)
    assert spark.range(10).count() == 10


# --- a cluster ---


@pytest.mark.timeout(WITHIN_S)
def test_it_runs_on_the_executors_of_a_standalone_cluster(
    spark_standalone, kafka, topic, produce, tmp_path
):
    name = topic(PARTITIONS)
    ends = even(produce, name, 2000)

    spark_standalone.run_driver(
        HERE / "topology_job.py",
        *("--work", str(tmp_path), "--servers", kafka.bootstrap_servers),
        *("--topic", name, "--mode", "transactional"),
        *("--store", f"sqlite:///{tmp_path}/state.db"),
    )

    assert (tmp_path / "finished").exists()
    assert kept(tmp_path / "sink.db") == recount(ends)
