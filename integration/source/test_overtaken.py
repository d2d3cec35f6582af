"""A driver that was frozen, overtaken by another, and wakes: nothing of it counts."""

import sys

import pytest

import kafka_tx
from integration.cluster.child import Child
from integration.cluster.records import Record
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.pausing import REPOSITORY
from integration.sizes import EVERYTHING
from integration.source.freezing_job import POINTS, counting, map_in
from kafka_tx.clock import SystemClock


@pytest.fixture
def frozen(tmp_path, kafka):
    """Start the job as a process; freeze it when each query is at its point."""
    children = []

    def start(topics):
        words = ["--work", tmp_path, "--servers", kafka.bootstrap_servers]
        child = Child(
            [
                *(sys.executable, "-m", "integration.source.freezing_job"),
                *map(str, (*words, "--points", *topics, "--topics", *topics.values())),
            ],
            tmp_path / "log",
            directory=REPOSITORY,
            environment={"PYSPARK_PYTHON": sys.executable},
        )
        children.append(child)
        for point in topics:
            await_file(child, tmp_path / point / "reached")
        child.pause()
        return child

    yield start
    for child in children:
        child.kill()


def await_file(child, file):
    """An error is expected at the end, and comes just before its file."""
    error = file.with_name("error")

    def complaint():
        is_well = child.is_running and not (file.name == "reached" and error.exists())
        if is_well or file.exists():
            return None
        return error.read_text() if error.exists() else child.tail()

    what = f"{file} is there"
    wait_until(what, file.exists, timeout_s=PATIENT_S, complain=complaint)


POINTS_MET = POINTS if EVERYTHING else POINTS[-1:]


def test_a_driver_that_wakes_does_not_revert_its_successor(
    spark, kafka, topic, produce, frozen, tmp_path, monkeypatch
):
    topics = {point: topic(1) for point in POINTS_MET}
    for point, name in topics.items():
        (tmp_path / point).mkdir()
        produce(name, [Record("x", key="a") for _ in range(10)])
    first = frozen(topics)
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: 1)  # its clock is behind
    for point, name in topics.items():
        produce(name, [Record("x", key="a") for _ in range(15)])
        work = tmp_path / point
        second = counting(spark, work, kafka.bootstrap_servers, name)
        place = str(work / "other")
        second.option("checkpointLocation", place).start().awaitTermination()
        assert counted(work) == {"a": 25}
        (work / "go").touch()
    first.unpause()

    for point in topics:
        work = tmp_path / point
        await_file(first, work / "finished")
        assert "KAFKA_TX_FENCED" in (work / "error").read_text()
        assert counted(work) == {"a": 25}


def counted(work):
    state = kafka_tx.OpaqueMap(map_in(work), "counts")
    try:
        return state.get(["a"])
    finally:
        state.close()
