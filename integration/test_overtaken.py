"""A driver that was frozen, overtaken by another, and wakes: nothing of it counts."""

import sys

import pytest

import kafka_tx
from integration.cluster.child import Child
from integration.cluster.records import Record
from integration.cluster.waiting import wait_until
from integration.freezing_job import POINTS, counting
from integration.pausing import REPOSITORY
from kafka_tx.clock import SystemClock

WITHIN_S = 180


@pytest.fixture
def frozen(tmp_path, kafka):
    """Start the job in a process of its own and freeze it at a point."""
    children = []

    def start(point, **arguments):
        given = {"point": point, "servers": kafka.bootstrap_servers, "work": tmp_path}
        words = [f"--{n}={value}" for n, value in (given | arguments).items()]
        child = Child(
            [sys.executable, "-m", "integration.freezing_job", *words],
            tmp_path / "log",
            directory=REPOSITORY,
            environment={"PYSPARK_PYTHON": sys.executable},
        )
        children.append(child)
        await_file(child, tmp_path / "reached")
        child.pause()
        return child

    yield start
    for child in children:
        child.kill()


def await_file(child, file):
    wait_until(
        f"{file.name} is there",
        file.exists,
        timeout_s=WITHIN_S,
        complain=lambda: None if child.is_running or file.exists() else child.tail(),
    )


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_wakes_does_not_revert_its_successor(
    spark, kafka, topic, produce, frozen, tmp_path, monkeypatch, point
):
    name, work = topic(1), tmp_path
    url, store = f"sqlite:///{work}/map.db", f"sqlite:///{work}/store.db"
    produce(name, [Record("x", key="a") for _ in range(10)])
    first = frozen(point, url=url, store=store, topic=name)
    produce(name, [Record("x", key="a") for _ in range(15)])
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: 1)  # its clock is behind

    second = counting(spark, url, store, kafka.bootstrap_servers, name, None)
    second.option("checkpointLocation", str(work / "other")).start().awaitTermination()
    state = kafka_tx.OpaqueMap(url, "counts")
    assert state.get(["a"]) == {"a": 25}
    (work / "go").touch()
    first.unpause()
    await_file(first, work / "finished")

    assert "KAFKA_TX_FENCED" in (work / "error").read_text()
    assert state.get(["a"]) == {"a": 25}
    state.close()
