"""The end of a task's rows, and that of its connection, which looks the same."""

import os
import socket
from functools import partial

import pytest

from kafka_tx.spark.versions import workers


def spark_worker():
    """``main`` of Spark's worker, which runs what it is given."""
    made = {"__name__": "pyspark.worker"}
    exec("def main(infile, work): return work()", made)
    return made["main"]


@pytest.fixture
def task():
    """Runs as Spark's worker does, with a connection; and what Spark has of it."""
    ours, theirs = socket.socketpair()
    with theirs, ours, ours.makefile("rb") as infile:
        yield partial(spark_worker(), infile), theirs


def test_rows_whose_connection_is_open_are_all(task):
    run, spark = task
    spark.send(b"more, for the next task")

    assert run(lambda: list(workers.whole(iter("abc")))) == ["a", "b", "c"]
    assert list(workers.whole(iter("abc"))) == ["a", "b", "c"]  # on the driver


def test_rows_whose_connection_is_closed_are_some(task):
    run, spark = task
    spark.close()
    rows = workers.whole(iter("abc"))

    assert run(lambda: [next(rows) for _ in "abc"]) == ["a", "b", "c"]
    with pytest.raises(ConnectionError, match="before all of its rows came"):
        run(lambda: next(rows))


def test_what_libraries_set_for_sockets_means_nothing_to_sparks(task):
    run, spark = task
    spark.send(b"more")
    socket.setdefaulttimeout(0.1)
    try:
        assert run(lambda: list(workers.whole(iter("ab")))) == ["a", "b"]
    finally:
        socket.setdefaulttimeout(None)

    assert os.get_blocking(run(workers._connection))


def test_a_worker_without_a_daemon_takes_its_rows_for_all():
    """Its input is its output, too, and has no file number."""
    ours, theirs = socket.socketpair()
    with theirs, ours, ours.makefile("rwb") as infile:
        found = spark_worker()(infile, lambda: list(workers.whole(iter("ab"))))

    assert found == ["a", "b"]


def test_rows_that_come_from_a_file_are_all(tmp_path):
    (tmp_path / "rows").touch()

    with (tmp_path / "rows").open() as infile:
        found = spark_worker()(infile, lambda: list(workers.whole(iter("ab"))))

    assert found == ["a", "b"]
