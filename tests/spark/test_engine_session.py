"""With stand-ins for a session: only its settings are looked at."""

from __future__ import annotations

import logging
import sys
import uuid
from types import SimpleNamespace

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.spark.topologies.start import check_session
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import BasicBolt, BatchBolt, DataFrameBolt
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout

FAST = {"spark.python.unix.domain.socket.enabled": "true"}
ClientServer = type("ClientServer", (), {})
JavaGateway = type("JavaGateway", (), {})


class Pass(BasicBolt):
    fields = "n bigint"

    def execute(self, row, collector):
        collector.emit((row.n,))


class Keep(BatchBolt):
    def execute(self, row):
        pass


def session(gateway=ClientServer, **settings):
    conf = {name.replace("_", "."): value for name, value in settings.items()}
    context = SimpleNamespace(
        getConf=lambda: FAST | conf,
        applicationId=uuid.uuid4().hex,
        _gateway=gateway(),
        pythonExec=sys.executable,
    )
    return SimpleNamespace(sparkContext=context, conf=conf, _jsparkSession=None)


def plan(*, on_executors=False, frame=False):
    spout = MemoryTransactionalSpout([[(1,)]], "n bigint", 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    bolt = DataFrameBolt(lambda df: df, "n bigint") if frame else Pass
    builder.set_bolt("pass", bolt).shuffle_grouping("spout")
    keep = builder.set_committer_bolt("keep", Keep).global_grouping("pass")
    if on_executors:
        keep.on_executors()
    return builder.build(dumps=lambda _: b"N.").plan


def said(caplog, spark, of, pending=1):
    with caplog.at_level(logging.WARNING):
        check_session(spark, of, pending)
    return caplog.text


def test_a_session_that_is_set_well_is_told_nothing(caplog):
    assert said(caplog, session(), plan(), 4) == ""


@pytest.mark.parametrize(
    ("settings", "of", "name"),
    [
        (
            {"spark_python_unix_domain_socket_enabled": "false"},
            {},
            "spark.python.unix.domain.socket.enabled",
        ),
        ({"spark_python_worker_reuse": "false"}, {}, "spark.python.worker.reuse"),
        ({}, {"on_executors": True}, "spark.scheduler.mode"),
        ({}, {"frame": True}, "spark.sql.adaptive.enabled"),
    ],
)
def test_what_costs_time_is_explained_once(caplog, settings, of, name):
    spark = session(**settings)

    assert said(caplog, spark, plan(**of), 4).count(name) == 1
    assert said(caplog, spark, plan(**of), 4).count(name) == 1


def test_speculation_with_committers_on_executors_is_refused():
    spark = session(spark_speculation="true")

    check_session(spark, plan(), 1)
    with pytest.raises(ConfigError, match=r"spark\.speculation.*two tasks at once"):
        check_session(spark, plan(on_executors=True), 1)


def test_threads_that_are_not_pinned_are_refused():
    with pytest.raises(ConfigError, match="PYSPARK_PIN_THREAD"):
        check_session(session(gateway=JavaGateway), plan(), 1)


def test_spark_connect_is_refused_with_what_works_there():
    with pytest.raises(ConfigError, match="drop-in source"):
        check_session(SimpleNamespace(), plan(), 1)


def test_workers_without_the_package_are_told_of(tmp_path, caplog):
    bare = tmp_path / "python3"
    bare.write_text("#!/bin/sh\necho False False\n")
    bare.chmod(0o755)
    spark = session()
    spark.sparkContext.pythonExec = str(bare)
    spark.sparkContext.master = "local[2]"
    spark.sparkContext._python_includes = []

    assert f"{bare}, which has no kafka_tx" in said(caplog, spark, plan())
