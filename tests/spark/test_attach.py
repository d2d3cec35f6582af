"""Attaching to a session that has no JVM beside it."""

import socket

import pytest
from pyspark.errors import AnalysisException

import kafka_tx
from kafka_tx.errors import ConfigError
from kafka_tx.spark.queries import jvm


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
