"""Each verdict of ``kafka-tx doctor`` on real parts, with the bad thing and without.

Those on tables of a lakehouse are in ``integration/sinks``, that on levels of isolation
beside Spark's own source, that on groups of other kinds beside those groups.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType
from typer.testing import CliRunner

from integration.cluster.rights import grant, guarded_kafka, login_of
from integration.cluster.running import running
from integration.cluster.waiting import wait_until
from kafka_tx import native
from kafka_tx.cli.main import app
from kafka_tx.model import TopicPartition as Partition
from kafka_tx.own_topics import MARKER_TOPIC
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger.ledger import Committed, Ledger
from tests.inspected_pythons import each_python_starts_once as each_python_starts_once

pytestmark = pytest.mark.usefixtures("each_python_starts_once")

REPOSITORY = Path(__file__).parents[2]
COMMAND = "from kafka_tx.cli.main import app; app()"
NOBODY = "127.0.0.1:1"
TOPIC, GROUP = "orders", "of-orders"
IN_GROUP = {"group.id": GROUP}


@pytest.fixture(scope="module")
def guarded(servers):
    with running(guarded_kafka(servers, ["none", "reader", "all"])) as cluster:
        cluster.create_topic(TOPIC, 1)
        topics, operations = ResourceType.TOPIC, AclOperation
        grant(cluster, "reader", (topics, TOPIC, operations.READ))
        grant(
            *(cluster, "all", (topics, TOPIC, operations.READ)),
            (topics, TOPIC, operations.WRITE),
            (topics, MARKER_TOPIC, operations.READ),
            (topics, MARKER_TOPIC, operations.DESCRIBE_CONFIGS),
            (ResourceType.GROUP, GROUP, operations.READ),
            (ResourceType.TRANSACTIONAL_ID, "kafka_tx.", operations.WRITE),
        )
        member = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **IN_GROUP})
        begin = [TopicPartition(TOPIC, 0, 0)]
        wait_until(
            "the group has a coordinator",
            lambda: member.commit(offsets=begin, asynchronous=False),
        )
        member.close()
        yield cluster


def findings(*asked):
    done = CliRunner().invoke(app, ["doctor", "--json", *asked])
    return {one["what"]: one for one in json.loads(done.stdout)}


def of_user(cluster, user):
    options = login_of(cluster, user)
    given = [f"{name}={value}" for name, value in options.items()]
    servers = options["bootstrap.servers"]
    return findings(
        *("--bootstrap-servers", servers, "--topic", TOPIC, "--group", GROUP),
        *[word for each in given for word in ("--kafka", each)],
    )


@pytest.mark.all
def test_it_tells_what_a_user_may_not_do(guarded):
    found = {user: of_user(guarded, user) for user in ("none", "reader", "all")}
    verdicts = {
        user: [each[what]["verdict"] for what in ("rights", "group", "promises")]
        for user, each in found.items()
    }

    assert verdicts == {
        "none": ["bad", "bad", "bad"],
        "reader": ["advice", "bad", "bad"],
        "all": ["good", "good", "good"],
    }, found
    assert "may not WRITE orders" in found["reader"]["rights"]["text"]
    assert found["all"]["versions"]["text"].startswith("transaction.version is 2")


@pytest.mark.all
def test_it_finds_a_marker_topic_that_forgets(guarded):
    before = of_user(guarded, "all")["markers"]
    guarded.create_topic(MARKER_TOPIC, 1, config={"cleanup.policy": "delete"})
    try:
        after = of_user(guarded, "all")["markers"]
    finally:
        guarded.delete_topic(MARKER_TOPIC)
    guarded.create_topic(MARKER_TOPIC, 1, config={"cleanup.policy": "compact"})
    grant(guarded, "reader", (ResourceType.TOPIC, MARKER_TOPIC, AclOperation.READ))
    try:
        mended = {user: of_user(guarded, user)["markers"] for user in ("reader", "all")}
    finally:
        guarded.delete_topic(MARKER_TOPIC)

    assert before["verdict"] == "good"
    verdicts = {user: each["verdict"] for user, each in mended.items()}
    assert verdicts == {"reader": "unknown", "all": "good"}
    assert "is compacted" in mended["all"]["text"]
    assert (after["verdict"], "cleanup.policy=delete" in after["text"]) == ("bad", True)


def test_it_finds_records_from_the_future(kafka, topic):
    name = topic(1)
    asked = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    clocks = [findings(*asked)["clock"]]
    for ahead_s in (0, 3_600):
        producer.produce(name, b"x", timestamp=int((time.time() + ahead_s) * 1_000))
        producer.flush()
        clocks.append(findings(*asked)["clock"])

    assert [each["verdict"] for each in clocks] == ["good", "good", "advice"]
    assert "s in the future" in clocks[-1]["text"]


@pytest.mark.all
def test_it_compares_the_clock_of_a_database(postgresql, monkeypatch):
    url = postgresql
    same = findings("--store", url)["clocks"]
    now = time.time()
    monkeypatch.setattr("kafka_tx.sql.store.time.time", lambda: now - 60)
    other = findings("--store", url)["clocks"]

    assert (same["verdict"], other["verdict"]) == ("good", "advice")
    assert "+6" in other["text"]


def test_it_tells_a_database_that_may_forget_commits(postgresql, postgresql_server):
    name = postgresql.rpartition("/")[2]
    before = findings("--store", postgresql)["store"]
    postgresql_server.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    after = findings("--store", postgresql)["store"]

    assert (before["verdict"], after["verdict"]) == ("advice", "advice")
    assert "synchronous_commit" not in before["text"]
    assert "synchronous_commit is off" in after["text"]


def test_it_tells_a_store_that_cannot_be_written(tmp_path):
    good = findings("--store", f"sqlite:///{tmp_path}/state.db")
    bad = findings("--store", f"sqlite:///{tmp_path}/missing/state.db")

    assert (good["store"]["verdict"], bad["store"]["verdict"]) == ("advice", "bad")
    assert "can be written, but holds no id" in good["store"]["text"]
    assert good["folder"]["verdict"] == "advice"
    assert "does not exist: create it" in bad["store"]["text"]


def test_it_tells_which_java_and_workers_spark_finds(monkeypatch, tmp_path):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    here = findings()
    alone = interpreter(tmp_path / "alone", "-I -S")
    monkeypatch.setenv("PYSPARK_PYTHON", alone)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    without = findings()
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "none"))
    missing = findings()

    for what in ("Java", "workers"):
        assert (here[what]["verdict"], without[what]["verdict"]) == ("good", "bad")
    assert "apt-get install" in without["Java"]["text"]
    assert f"{alone}, which has no kafka_tx" in without["workers"]["text"]
    assert "which is missing" in missing["workers"]["text"]


def test_it_tells_whether_spark_finds_the_format(monkeypatch, tmp_path):
    """By a module of that name, which an installation has and a folder has not."""
    (tmp_path / "kafka_tx").symlink_to(REPOSITORY / "kafka_tx")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    verdicts = []
    for name, has_module in (("without", False), ("with", True)):
        if has_module:
            (tmp_path / "pyspark_kafka_tx.py").touch()
        command = interpreter(tmp_path / name, "-S")
        monkeypatch.setenv("PYSPARK_PYTHON", command)
        verdicts.append(findings()["source"]["verdict"])

    assert verdicts == ["advice", "good"]


def interpreter(path, options):
    """This Python with options that hide installed packages from it."""
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {options} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.all
def test_it_tells_an_old_spark_and_a_reader_in_python(tmp_path):
    """Of an environment: metadata of an older PySpark, a package without extension."""
    info = tmp_path / "pyspark-3.5.6.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pyspark\nVersion: 3.5.6"
    )
    shutil.copytree(
        REPOSITORY / "kafka_tx",
        tmp_path / "kafka_tx",
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    before = findings()
    command = [sys.executable, "-c", COMMAND, "doctor", "--json"]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    after = {one["what"]: one for one in json.loads(done.stdout)}

    assert (before["Spark"]["verdict"], after["Spark"]["verdict"]) == ("good", "bad")
    assert "pyspark 3.5.6 is too old" in after["Spark"]["text"]
    is_native = native.status().is_native
    assert before["reader"]["verdict"] == ("good" if is_native else "advice")
    assert after["reader"]["verdict"] == "advice"


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("tasks", "spark.speculation false"),
        ("sockets", "spark.python.unix.domain.socket.enabled true"),
    ],
)
def test_it_reads_what_spark_reads(monkeypatch, tmp_path, what, line):
    verdicts = []
    for text in (
        line,
        " ".join([line.split()[0], str(line.endswith("false")).lower()]),
    ):
        (tmp_path / "spark-defaults.conf").write_text(f"{text}\n")
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        verdicts.append(findings()[what]["verdict"])

    assert verdicts == ["good", "advice"]


@pytest.mark.all
def test_it_tells_brokers_and_topics_that_are_not_there(kafka, topic):
    servers, name = kafka.bootstrap_servers, topic(1)
    there = findings("--bootstrap-servers", servers, "--topic", name)
    absent = findings("--bootstrap-servers", servers, "--topic", "no-such-topic")
    nobody = findings("--bootstrap-servers", NOBODY, "--kafka", "socket.timeout.ms=500")

    for what in ("brokers", "topic"):
        assert there[what]["verdict"] == "good"
    assert nobody["brokers"]["verdict"] == absent["topic"]["verdict"] == "bad"


def test_it_finds_what_retention_soon_takes(kafka, topic, tmp_path):
    name = topic(1, config={"retention.bytes": "1000000"})
    url = f"sqlite:///{tmp_path}/state.db"
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(100):
        producer.produce(name, b"x", partition=0)
    producer.flush()
    kafka.delete_records(name, {0: 5})

    def retention(at):
        with closing(SqlStore(url, "job")) as store:
            position = Committed(1, {Partition(name, 0): at})
            Ledger(store).adopt(store.acquire(), position)
        asked = ("--bootstrap-servers", kafka.bootstrap_servers, "--store", url)
        return findings(*asked)["retention"]["verdict"]

    assert [retention(at) for at in (2, 6, 90)] == ["bad", "advice", "good"]


@pytest.mark.parametrize(
    ("config", "verdict", "says"),
    [
        ({"retention.ms": "-1"}, "good", "keeps them"),
        ({"cleanup.policy": "compact"}, "bad", "cleanup.policy=delete"),
        *(
            pytest.param(*each, marks=pytest.mark.all)
            for each in (
                ({"retention.ms": "86400000"}, "advice", "after 1 days"),
                ({"max.message.bytes": "1000"}, "bad", "max.message.bytes=1048588"),
            )
        ),
    ],
)
def test_a_dead_letter_topic_is_checked_as_a_job_does(
    kafka, topic, config, verdict, says
):
    servers, name = kafka.bootstrap_servers, topic(1, config=config)
    given = "--bootstrap-servers", servers, "--dead-letter-topic", name
    found = findings(*given)["letters"]

    assert (found["verdict"], says in found["text"]) == (verdict, True), found


@pytest.mark.all
@pytest.mark.parametrize(
    ("user", "verdict", "says"),
    [("reader", "bad", "Grant WRITE"), ("all", "unknown", "do not tell")],
)
def test_a_dead_letter_topic_is_checked_with_the_rights_of_the_user(
    guarded, user, verdict, says
):
    options = login_of(guarded, user)
    given = [f"{name}={value}" for name, value in options.items()]
    found = findings(
        *("--bootstrap-servers", options["bootstrap.servers"]),
        *("--dead-letter-topic", TOPIC),
        *[word for each in given for word in ("--kafka", each)],
    )["letters"]

    assert (found["verdict"], says in found["text"]) == (verdict, True), found
