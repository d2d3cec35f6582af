"""Every example runs with one command and shows what it promises."""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import select
import subprocess
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from integration.attachments import closed_attachments
from integration.capabilities import ICE, LAKE, need
from integration.cluster.jars import REPOSITORY, jar_directory
from integration.cluster.java import java
from integration.cluster.records import Record
from integration.cluster.redis import RedisServer
from integration.cluster.registry import SchemaRegistry
from integration.cluster.running import running
from integration.cluster.spark_local import (
    delta_session,
    iceberg_session,
)
from integration.cluster.versions import DELTA_JARS, ICEBERG_JARS
from integration.consuming import committed_records
from integration.sizes import EVERYTHING
from kafka_tx.spark import quiet_stop

EXAMPLES = REPOSITORY / "examples"
WITHIN_S = 540
"""An example that is a process has all of Spark to start, beside other tests."""

FIRST_LINE_S = 2.0
"""Computed until an example says something."""
DAEMON = "/pyspark/daemon.py"
"""Where Spark prints a trace if it ends a worker that was idle for a minute.

Those of two workers are mixed line by line, so each frame is looked at by itself.
"""


def run_as_process(place, python, name, *arguments):
    """With nothing but its file, as a reader of it does; ``place`` is its ``/tmp``.

    But Spark's Python processes come from ``python``: Spark gives them ten seconds,
    which are too few beside other tests.
    """
    java()
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    with Path(place, "errors").open("w+") as err:
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            env=os.environ | {"PYSPARK_PYTHON": python, "TMPDIR": str(place)},
        ) as process:
            spent_s = computed_in_silence_s(process)
            shown, _ = process.communicate(timeout=WITHIN_S)
        err.seek(0)
        errors = err.read()
        left = [path for path in Path(place).iterdir() if is_ours(path)]
    assert process.returncode == 0, errors[-4000:]
    # Spark shows one for a worker whose job was cancelled, as a replay does.
    end = errors.rpartition("TaskKilled")[2]
    frames = re.findall(r'^ +File "(.+)", line', end, re.MULTILINE)
    assert all(frame.endswith(DAEMON) for frame in frames), errors[-4000:]
    assert not left, "folders are left behind"
    assert spent_s < FIRST_LINE_S, "nothing was said for too long"
    return said(shown)


def computed_in_silence_s(process):
    """What it has computed when it was last seen to have said nothing."""
    seen_s = 0.0
    while True:
        now_s = cpu_s(process.pid)
        if select.select([process.stdout], [], [], 0.05)[0]:
            return seen_s
        seen_s = now_s


def cpu_s(pid):
    """What a process has computed so far: a busy machine makes no difference."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, after_name[11:13])) / os.sysconf("SC_CLK_TCK")


def run_in_session(name, *arguments):
    """In this process; the session that it makes is the one that is there."""
    shown = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(shown),
        closed_attachments(),
    ):
        patch.setattr(quiet_stop, "stop_quietly", lambda spark: None)
        patch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return said(shown.getvalue())


def said(text):
    assert text.startswith("starting Spark"), "it says nothing at once"
    return text


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(run_as_process, id="process")
        if EVERYTHING
        else pytest.param(run_in_session, id="session")
    ],
)
def run(request, python, tmp_path_factory):
    if request.param is run_in_session:
        request.getfixturevalue("spark")
        return run_in_session
    return partial(run_as_process, tmp_path_factory.mktemp("tmp"), python)


def is_ours(path):
    """Spark leaves folders of its own behind while its JVM ends."""
    return path.is_dir() and path.name.startswith("tmp")


def jars_of_the_cache(form, place):
    """Settings with which Spark takes jars from the tests' cache, not from the web."""
    jars = jar_directory(DELTA_JARS if form == "delta" else ICEBERG_JARS)
    (place / "ivy.xml").write_text(
        '<ivysettings><settings defaultResolver="cache"/><resolvers>'
        f'<filesystem name="cache"><artifact pattern="{jars}/[artifact]-[revision].jar"'
        "/></filesystem></resolvers></ivysettings>"
    )
    storage = ",".join(map(str, jars.glob("delta-storage-*.jar")))
    (place / "spark-defaults.conf").write_text(
        f"spark.jars.ivySettings {place}/ivy.xml\n"
        f"spark.jars.ivy {place}/ivy\n"
        + (f"spark.jars {storage}\n" if storage else "")  # what Delta needs
    )
    return place


def replays(shown):
    found = re.search(r"replays: (\d+)", shown)
    assert found is not None, shown
    return int(found[1])


def test_every_example_has_a_test():
    tests = Path(__file__).read_text()
    assert all(f'run("{path.stem}"' in tests for path in EXAMPLES.glob("*.py"))


@pytest.mark.all
def test_an_example_is_one_command_that_leaves_nothing_behind(tmp_path):
    assert "there are 36" in run_as_process(tmp_path, sys.executable, "global_count")


def test_global_count_counts_each_word_once_in_spite_of_a_replay(run):
    shown = run("global_count")

    assert "counted 36 words in 3 batches; there are 36" in shown
    assert replays(shown) >= 1


@pytest.mark.all
def test_words_keeps_two_tables_right_in_spite_of_a_replay(run):
    shown = run("words")

    assert "words right: True" in shown
    assert "buckets right: True" in shown
    assert replays(shown) >= 1


def test_opaque_count_counts_each_row_once_although_a_replay_holds_others(run):
    shown = run("opaque_count")

    second = re.findall(r"txid 2: (\d+) rows, (\d+) \+", shown)
    assert second == [("8", "8"), ("4", "8")]
    assert "counted 30 rows; there are 30" in shown


@pytest.mark.all
def test_three_designs_count_the_same_in_fewer_and_fewer_turns(run):
    shown = run("three_designs")

    assert "one tuple at a time: 20 of 20 rows in 20 batches" in shown
    assert "one batch at a time: 20 of 20 rows in 10 batches" in shown
    assert "pipelined batches: 20 of 20 rows in 10 batches" in shown


@pytest.mark.parametrize("txid", [1, 2, 3])
def test_phases_run_in_the_order_of_the_graph(phases, txid):
    steps = re.findall(rf"ms  txid {txid}  (\w)  (\w+)", phases)

    assert steps == [
        ("A", "execute"),
        ("A", "finish"),
        ("B", "execute"),
        ("C", "execute"),
        ("B", "commit"),
        ("C", "execute"),
        ("C", "finish"),
        ("D", "execute"),
        ("D", "commit"),
    ]


@pytest.fixture(scope="module")
def phases(run):
    return run("phases")


@pytest.mark.all
def test_kafka_global_count_counts_each_record_once(run):
    shown = run("kafka_global_count")

    assert "counted 20000 records of 10 keys" in shown
    assert "committed up to txid 8" in shown


def test_kafka_message_count_counts_each_message_once(run):
    assert "counted 5000 messages" in run("kafka_message_count")


@pytest.mark.all
def test_kafka_message_count_counts_what_a_real_topic_holds(run, kafka, topic, produce):
    name = topic(2)
    produce(name, [f"v{n}" for n in range(300)], partition=0)
    produce(name, [f"v{n}" for n in range(40)], partition=1)

    shown = run("kafka_message_count", kafka.bootstrap_servers, name)

    assert "partition 0: 300 messages\npartition 1: 40 messages" in shown


@pytest.mark.all
def test_avro_orders_adds_each_order_once_through_a_change_of_its_schema(
    run, kafka, topic, produce
):
    name = topic()
    kafka.create_topic(f"{name}-dead", 1)
    fields = [
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "long"},
    ]
    old = {"type": "record", "name": "Order", "fields": fields}
    more = {"name": "note", "type": ["null", "string"], "default": None}
    new = {**old, "fields": [*fields, more]}

    with running(SchemaRegistry()) as registry:

        def write(schema, orders, *others):
            text = json.dumps(schema)
            registry.register(f"{name}-value", schema)
            serializer = AvroSerializer(
                registry.client, text, conf={"auto.register.schemas": False}
            )
            context = SerializationContext(name, MessageField.VALUE)
            produce(name, [*(serializer(each, context) for each in orders), *others])

        arguments = (kafka.bootstrap_servers, name, registry.url)
        orders = [{"customer": each, "amount": 15} for each in ("ann", "bob", "ann")]
        write(old, orders, b"no schema")
        assert "{'ann': 30, 'bob': 15}" in run("avro_orders", *arguments)

        write(new, [{"customer": "ann", "amount": 20, "note": "gift"}])
        assert "{'ann': 50, 'bob': 15}" in run("avro_orders", *arguments)

    letters = committed_records(kafka.bootstrap_servers, f"{name}-dead")
    assert [letter.value for letter in letters] == [b"no schema"]


@pytest.mark.all
def test_redis_counts_counts_each_order_once_in_run_after_run(
    run, kafka, topic, produce
):
    name = topic(2)
    with running(RedisServer()) as redis:
        arguments = (kafka.bootstrap_servers, name, redis.url)
        produce(name, [Record(key=key) for key in ["ann"] * 20 + ["bob"] * 10])
        assert "{'ann': 20, 'bob': 10}" in run("redis_counts", *arguments)

        produce(name, [Record(key="ann")] * 5)
        assert "{'ann': 25, 'bob': 10}" in run("redis_counts", *arguments)


def test_reliable_word_count_counts_each_word_once_though_some_fail(run):
    assert_reliable(run("reliable_word_count"))


@pytest.mark.all
def test_reliable_word_count_does_so_on_a_real_broker(run, kafka, topic):
    servers = kafka.bootstrap_servers

    assert_reliable(run("reliable_word_count", servers, topic(3), topic(1)))


def assert_reliable(shown):
    assert "counted 3000 words; there are 3000\neach word right: True" in shown
    assert "emitted=601, completed=601" in shown
    assert int(re.findall(r"retried=(\d+)", shown)[0]) > 6
    assert "dead letter: poison" in shown
    assert "'kafka_tx.attempts': '7'" in shown


@pytest.mark.all
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_lakehouse_writes_each_order_once_although_its_query_dies(lake, run, form):
    shown = run("lakehouse", form)

    assert "txid 2: written\nthe query died" in shown
    assert "txid 2: there already" in shown
    assert "1500 orders; amounts: 6750 appended, 6750 merged" in shown


@pytest.fixture
def lake(request, run, form, tmp_path, monkeypatch):
    """A session with the format, in this process; or where another one has its jars."""
    need(LAKE if form == "delta" else ICE)
    if run is not run_in_session:
        monkeypatch.setenv("SPARK_CONF_DIR", str(jars_of_the_cache(form, tmp_path)))
        return
    spark = request.getfixturevalue("spark")
    if form == "delta":
        made = delta_session(spark)
    else:
        made = iceberg_session(spark, tmp_path, **{"cache-enabled": "false"})
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: made)
