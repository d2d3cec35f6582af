"""Attaching to a session that has no JVM beside it."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

import kafka_tx
from kafka_tx import assembly
from kafka_tx.errors import ConfigError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TopicPartition
from kafka_tx.spark.queries.listener import CommitListener
from kafka_tx.spark.versions import jvm
from tests.fake_cluster import FakeCluster


class ConnectSession:
    """As Spark Connect's: no context."""

    version = "4.2.0"

    @property
    def sparkContext(self):  # noqa: N802 - Spark's
        raise AttributeError("[JVM_ATTRIBUTE_NOT_SUPPORTED] sparkContext")


def test_spark_connect_is_refused_and_no_port_is_left_bound():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    with pytest.raises(ConfigError, match="attach needs a classic session"):
        kafka_tx.attach(ConnectSession(), metrics_port=port)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))


class BrokenSession:
    """One whose streams cannot be listened to."""

    version = "4.2.0"
    sparkContext = None  # noqa: N815 - Spark's


def test_what_fails_half_way_leaves_no_port_bound():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    with pytest.raises(AttributeError):
        kafka_tx.attach(BrokenSession(), metrics_port=port)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))


class UnregisteredFormat:
    """A session's way to a format that nobody registered yet."""

    def __getattr__(self, name):
        return self

    def __call__(self, *given):
        return self

    def lookupDataSource(self, name):  # noqa: N802 - Spark's
        raise AnalysisException(
            f"[DATA_SOURCE_NOT_EXIST] Data source '{name}' not found"
        )


def test_a_format_that_is_not_registered_yet_is_no_error():
    jvm.let_queries_start_together(UnregisteredFormat())


class Jvm:
    """A session's JVM that works in a folder of its own."""

    def __init__(self, folder):
        self.java = self.lang = self.System = self
        self._jvm = self
        self._folder = folder

    def getProperty(self, name):  # noqa: N802 - Java's
        return {"user.dir": self._folder}[name]


def test_a_relative_store_is_that_of_the_planner_whatever_folder_comes_next(
    tmp_path, monkeypatch
):
    options = {
        "kafka.bootstrap.servers": "b:9092",
        "subscribe": "t",
        "tx.id": "job",
        "tx.Store": "sqlite:///state.db",
    }
    spark: Any = Jvm("/where/spark/is")
    listener = CommitListener(spark, MetricsRegistry(), {"job": options}, None)

    monkeypatch.chdir(tmp_path)

    transactions = listener._config("job").transactions
    listener.close()
    assert transactions is not None
    assert transactions.store == "sqlite:////where/spark/is/state.db"


def test_the_lag_of_a_query_that_moved_is_looked_up_in_its_new_cluster(monkeypatch):
    asked = []

    def view(config):
        asked.append(config.kafka["bootstrap.servers"])
        return FakeCluster()

    monkeypatch.setattr(assembly, "cluster_view", view)
    partitions = {"job": [TopicPartition("t", 0)]}
    monkeypatch.setattr(CommitListener, "watched", lambda _: partitions)
    options = {"kafka.bootstrap.servers": "old:9092", "subscribe": "t", "tx.id": "job"}
    spark: Any = Jvm("/")
    listener = CommitListener(spark, MetricsRegistry(), {"job": options}, None)

    listener._lag.poll()
    listener._use("job", options | {"kafka.bootstrap.servers": "new:9092"})
    listener._lag.poll()
    listener._lag.poll()
    listener.close()

    assert asked == ["old:9092", "new:9092"]


def test_a_query_started_again_before_its_end_was_told_is_shown_and_counted(
    monkeypatch,
):
    """Spark tells of a start at once, and of an end on a thread of its own."""
    options = {
        "kafka.bootstrap.servers": "b:9092",
        "subscribe": "t",
        "tx.id": "job",
        "tx.store": "memory:",
    }
    monkeypatch.setattr(jvm, "source_options", lambda *_: {"job": options})
    spark: Any = Jvm("/")
    registry = MetricsRegistry()
    listener = CommitListener(spark, registry, {}, None)

    def run(number: int, exception: str | None = None) -> Any:
        return SimpleNamespace(id="query", runId=f"run {number}", exception=exception)

    listener.onQueryStarted(run(1))
    listener.onQueryStarted(run(2))
    listener.onQueryTerminated(run(1))
    (restarted,) = registry.activities().values()
    is_over = bool(restarted.ended_ms)
    listener.onQueryTerminated(run(2, "ValueError: no such customer"))
    listener.close()

    assert not is_over
    (failed,) = registry.activities().values()
    assert [each.reason for each in failed.errors] == ["user"]
    assert not listener._ids | listener._newest
