from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest
import yaml

from kafka_tx.cli import doctor, kafka_logs
from kafka_tx.clock import now_ms
from kafka_tx.kafka import cluster_checks
from kafka_tx.kafka.marker_topic import MarkerTopic
from kafka_tx.model import Retention, TopicPartition
from kafka_tx.native.library import Status
from kafka_tx.own_topics import MARKER_TOPIC
from kafka_tx.running.worker_python import WorkerPython
from kafka_tx.sql.store import SqlStore, stored_ids
from kafka_tx.testing.mock import MockCluster
from kafka_tx.transactions.ledger.ledger import Committed, Ledger
from tests.fake_cluster import FakeCluster
from tests.inspected_pythons import each_python_starts_once as each_python_starts_once

pytestmark = pytest.mark.usefixtures("each_python_starts_once")


def findings(result):
    return {found["what"]: found for found in json.loads(result.stdout)}


def test_doctor_finds_the_source_and_this_python(run, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)

    result = run("doctor", "--json")

    found = findings(result)
    assert sys.executable in found["Python"]["text"]
    assert 'format("kafka_tx")' in found["source"]["text"]
    assert found["workers"]["verdict"] == "good"
    assert "reader" in found["reader"]["text"]


@pytest.mark.parametrize(
    ("version", "verdict"), [("3.5.6", "bad"), ("4.0.0", "good"), ("4.10.1", "good")]
)
def test_an_old_pyspark_is_bad(monkeypatch, version, verdict):
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)

    assert doctor._spark()[0] == verdict


def test_settings_that_nobody_made_are_told(run, monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    found = findings(run("doctor", "--json"))

    assert found["sockets"]["verdict"] == "advice"
    assert found["tasks"]["verdict"] == "good"


@pytest.mark.parametrize(("is_native", "verdict"), [(True, "good"), (False, "advice")])
def test_the_reader_in_python_is_told(monkeypatch, is_native, verdict):
    status = Status(is_native=is_native, reason="why")
    monkeypatch.setattr("kafka_tx.native.status", lambda: status)

    assert doctor._reader() == (verdict, str(status))


@pytest.mark.parametrize(("most", "verdict"), [(2, "advice"), (1, "good")])
def test_markers_have_as_many_replicas_as_the_topics(monkeypatch, most, verdict):
    counts = {MARKER_TOPIC: 1, "orders": most, "payments": 1}
    checks = cluster_checks.ClusterChecks
    monkeypatch.setattr(checks, "replicas", lambda _, topic: counts[topic])
    monkeypatch.setattr(doctor, "_described", lambda *_: "there")
    monkeypatch.setattr(MarkerTopic, "policy", lambda _: "compact")

    found = doctor.markers({"bootstrap.servers": "x:1"}, ["orders", "payments"])

    assert found[0] == verdict
    assert ("fewer replicas (1) than a topic (2)" in found[1]) is (most == 2)


def test_brokers_that_do_not_answer_are_bad(monkeypatch):
    monkeypatch.setattr(kafka_logs, "TIMEOUT_MS", 500)
    nobody = {"bootstrap.servers": "127.0.0.1:1"}

    checked = doctor._checked("brokers", lambda: doctor._brokers(nobody))

    assert checked.verdict == "bad"
    assert "127.0.0.1:1" in checked.text


@pytest.mark.parametrize(
    ("url", "verdict"),
    [("sqlite:////jobs/state.db", "advice"), ("postgresql://db/jobs", "good")],
)
def test_a_store_of_one_machine_is_told(url, verdict):
    assert doctor._folder(url, url)[0] == verdict


def test_a_worker_python_without_the_package_gets_advice(run, monkeypatch, tmp_path):
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))

    found = findings(run("doctor", "--json"))

    assert found["workers"]["verdict"] == "bad"
    assert f"PYSPARK_PYTHON={sys.executable}" in found["workers"]["text"]
    assert found["source"]["verdict"] == "bad"
    assert "Spark does not find" in found["source"]["text"]


def test_an_installation_that_spark_cannot_see_is_told_apart(monkeypatch, run):
    found = WorkerPython("/a/python", has_package=True, finds_format=False)
    monkeypatch.setattr(doctor, "inspect_python", lambda: found)

    source = findings(run("doctor", "--json"))["source"]

    assert source["verdict"] == "advice"
    assert "spark.dataSource.register(kafka_tx.KafkaTxDataSource)" in source["text"]


def test_a_python_that_does_not_exist_is_no_worker(monkeypatch, run):
    monkeypatch.setenv("PYSPARK_PYTHON", "no-such-python")

    found = findings(run("doctor", "--json"))

    assert found["workers"]["verdict"] == "bad"
    assert "'no-such-python', which is missing" in found["workers"]["text"]


def test_missing_java_names_the_package_to_install(run, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    result = run("doctor")

    assert result.exit_code == 1
    assert "apt-get install openjdk-17-jre-headless" in result.stdout


def test_the_socket_setting_of_spark_defaults_is_seen(run, monkeypatch, tmp_path):
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.python.unix.domain.socket.enabled   true\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    assert findings(run("doctor", "--json"))["sockets"]["verdict"] == "good"


def test_brokers_that_answer_are_good(run):
    with MockCluster() as cluster:
        result = run(
            "doctor", "--json", "--bootstrap-servers", cluster.bootstrap_servers
        )

    assert findings(result)["brokers"]["verdict"] == "good"


def test_a_check_that_cannot_tell_is_neither_good_nor_trouble(run, monkeypatch):
    nobody = {"bootstrap.servers": "127.0.0.1:1"}
    over_tls = {**nobody, "security.protocol": "SASL_SSL"}
    answers = [doctor.versions(given) for given in (nobody, over_tls)]
    monkeypatch.setattr(doctor, "_speculation", lambda: answers[1])

    result = run("doctor")

    assert [verdict for verdict, _ in answers] == ["unknown", "unknown"]
    assert result.exit_code == run("doctor").exit_code == 0
    assert "? tasks    transaction.version (KIP-890) cannot be asked" in result.stdout


@pytest.mark.parametrize(
    ("first", "host", "port"),
    [
        ("localhost", "localhost", 9092),
        ("PLAINTEXT://b:1", "b", 1),
        ("[::1]:9093", "::1", 9093),
        ("[::1]", "::1", 9092),
    ],
)
def test_brokers_are_asked_for_versions_where_clients_find_them(
    monkeypatch, first, host, port
):
    brokers = mock.Mock(return_value={})
    monkeypatch.setattr(doctor, "finalized_features", brokers)

    doctor.versions({"bootstrap.servers": f"{first},other:9"})

    brokers.assert_called_once_with(host, port)
    assert doctor.versions({"bootstrap.servers": "b:port"})[0] == "unknown"


@pytest.mark.parametrize("option", ["--topic", "--group", "--dead-letter-topic"])
def test_what_only_brokers_know_is_not_left_out_without_a_word(run, option):
    result = run("doctor", option, "orders")

    assert result.exit_code == 2
    assert "need brokers to ask" in result.stderr


def test_a_store_is_written_and_left_as_it_was(run, url):
    asked = ("doctor", "--json", "--store", url)

    new = findings(run(*asked))
    assert new["store"]["verdict"] == "advice"
    assert "holds no id: if a job has run, its tx.store is an" in new["store"]["text"]
    assert "table" not in new, "a new store has no id that writes one"
    assert stored_ids(url) == []

    with closing(SqlStore(url, "job")) as state:
        state.acquire()
        state.write(1, {"committed": "x"})
    assert findings(run(*asked))["store"]["verdict"] == "good"
    assert stored_ids(url) == ["job"]


def test_a_store_that_cannot_be_written_is_bad(run, tmp_path):
    url = f"sqlite:///{tmp_path}/no/such/folder/state.db"

    result = run("doctor", "--json", "--store", url)

    assert result.exit_code == 1
    assert findings(result)["store"]["verdict"] == "bad"


@pytest.mark.parametrize(
    "url", ["memory:", "kafka:", "foo", "zookeeper://", "postgresql://u:***@h/d", "@no"]
)
def test_a_store_that_no_command_can_read_has_one_finding(run, servers, url):
    asked = ("--json", "--store", url, "--bootstrap-servers", servers)

    result = run("doctor", *asked)
    status = run("status", "--store", url).stderr

    found = findings(result)
    assert found["store"]["verdict"] == "bad"
    assert found["store"]["text"] in status
    assert "memory:, " not in status
    assert not found.keys() & {"folder", "table", "clocks", "retention"}


@pytest.mark.parametrize("table", ["options", "metrics"])
def test_tables_are_printed(run, table):
    result = run(table)

    assert result.exit_code == 0
    assert ("tx.id" if table == "options" else "kafka_tx_lag_records") in result.stdout


def test_dashboard_and_rules_are_those_of_the_repository(run):
    grafana = Path(__file__).parents[2] / "grafana"

    assert run("dashboard").stdout == (grafana / "dashboard.json").read_text()
    assert run("rules").stdout == (grafana / "alerts.yml").read_text()


def test_the_rules_link_to_the_users_runbook_and_fit_kubernetes(run):
    plain = yaml.safe_load(run("rules").stdout)
    base = "https://docs.example.com/runbook.html"

    printed = run("rules", "--runbook", base, "--kubernetes", "kafka-tx").stdout

    made = yaml.safe_load(printed)
    assert (made["kind"], made["metadata"]["name"]) == ("PrometheusRule", "kafka-tx")
    rules = made["spec"]["groups"][0]["rules"]
    links = [rule["annotations"].pop("runbook_url") for rule in rules]
    for rule, link in zip(plain["groups"][0]["rules"], links, strict=True):
        former = rule["annotations"].pop("runbook_url")
        assert link == former.replace("docs/runbook.md", base)
        assert link.startswith(f"{base}#kafkatx")
    assert made["spec"] == plain


def test_tasks_that_run_twice_are_told(run, monkeypatch, tmp_path):
    settings = "# für alle\nspark.speculation=true\n"
    (tmp_path / "spark-defaults.conf").write_bytes(settings.encode("latin-1"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    tasks = findings(run("doctor", "--json"))["tasks"]

    assert tasks["verdict"] == "advice"
    assert "spark.speculation=true" in tasks["text"]


def test_a_store_in_a_folder_of_the_process_is_told(run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    relative = findings(run("doctor", "--json", "--store", "sqlite:///state.db"))
    absolute = findings(
        run("doctor", "--json", "--store", f"sqlite:///{tmp_path}/state.db")
    )

    assert f"(now sqlite:///{tmp_path}/state.db)" in relative["folder"]["text"]
    assert "is a file of this machine" in absolute["folder"]["text"]


@pytest.fixture
def servers(monkeypatch):
    # rights are waited for in vain, but a busy machine takes a transactional id in this
    monkeypatch.setattr(cluster_checks, "_WITHIN_MS", 2_000)
    with MockCluster() as cluster:
        cluster.create_topic("orders", 2)
        for _ in range(300):
            cluster.produce("orders", b"x")
        cluster.flush()
        yield cluster.bootstrap_servers


def test_topics_and_isolation_are_looked_at(run, servers):
    asked = ("doctor", "--json", "--bootstrap-servers", servers)
    committed = ("--kafka", "isolation.level=READ_COMMITTED")

    found = findings(run(*asked, "--topic", "orders", *committed))
    other = run(*asked, "--topic", "no-such-topic")

    assert found["topic"]["text"] == "orders has 2 partitions, and their logs answer"
    assert found["isolation"]["verdict"] == "good"
    assert found["clock"]["verdict"] == found["promises"]["verdict"] == "good"
    assert found["versions"]["text"].startswith("transaction.version is 0")
    assert findings(other)["isolation"]["verdict"] == "advice"
    assert "set kafka.isolation.level=read_committed" in other.stdout
    assert findings(other)["topic"]["verdict"] == "bad"
    assert other.exit_code == 1


def test_what_retention_takes_is_looked_at(run, store, url, servers):
    asked = ("doctor", "--json", "--bootstrap-servers", servers, "--store", url)

    fine = findings(run(*asked))["retention"]
    ahead = SqlStore(url, "ahead")
    beyond = Committed(txid=1, offsets={TopicPartition("orders", 0): 301})
    Ledger(ahead).adopt(ahead.acquire(), beyond)
    ahead.close()
    outside = findings(run(*asked))["retention"]

    assert fine["text"] == "the logs hold what 1 ids have not read yet"
    assert outside["verdict"] == "bad"
    assert "ahead in orders-0" in outside["text"]


def test_retention_takes_nothing_of_an_id_that_goes_on_elsewhere(
    run, store, url, servers, tmp_path
):
    asked = ("doctor", "--json", "--bootstrap-servers", servers, "--store", url)
    beyond = Committed(txid=41, offsets={TopicPartition("orders", 0): 301})
    Ledger(store).adopt(store.acquire(), beyond)
    before = findings(run(*asked))["retention"]
    there = f"sqlite:///{tmp_path}/there.db"
    assert not run("store", "copy", "--from", url, "--to", there, "--yes").exit_code

    after = findings(run(*asked))["retention"]

    assert (before["verdict"], after["verdict"]) == ("bad", "good")


HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("kept", "log_start", "position", "verdict"),
    [
        (Retention(7 * DAY_MS, is_by_size=False), -7 * DAY_MS, -162 * HOUR_MS, "good"),
        (
            Retention(7 * DAY_MS, is_by_size=False),
            -7 * DAY_MS,
            -165 * HOUR_MS,
            "advice",
        ),
        (Retention(7 * DAY_MS, is_by_size=False), -7 * DAY_MS, 0, "good"),
        (Retention(None, is_by_size=True), -100 * DAY_MS, -76 * DAY_MS, "advice"),
        (Retention(None, is_by_size=True), -100 * DAY_MS, -74 * DAY_MS, "good"),
        (None, -100 * DAY_MS, -76 * DAY_MS, "advice"),
    ],
)
def test_what_retention_soon_takes_is_told_as_by_the_alert(
    url, monkeypatch, kept, log_start, position, verdict
):
    """Record n was written at n milliseconds: within four hours, or a quarter."""
    cluster, now = FakeCluster(), now_ms()
    cluster.kept = {"t": kept} if kept else {}
    cluster.set(0, now + log_start, now)
    monkeypatch.setattr("kafka_tx.assembly.cluster_view", lambda _: cluster)
    state = SqlStore(url, "id")
    at = {TopicPartition("t", 0): now + position}
    Ledger(state).adopt(state.acquire(), Committed(txid=1, offsets=at))
    state.close()

    assert doctor._retention({}, url)[0] == verdict
