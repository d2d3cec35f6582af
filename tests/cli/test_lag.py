from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing

import pytest

from kafka_tx.cli import doctor, exporter, kafka_logs
from kafka_tx.cli.exporter import _Exporter
from kafka_tx.cli.kafka_logs import kafka_options
from kafka_tx.errors import ConfigError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import CommittedOffset, LogBounds, TopicPartition
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.sql.store import SqlStore
from kafka_tx.testing.mock import MockCluster
from kafka_tx.transactions.ledger.ledger import Committed, Ledger

RECORDS, DONE = 10, 4


@pytest.fixture
def servers():
    with MockCluster() as cluster:
        cluster.create_topic("orders", 1)
        for _ in range(RECORDS):
            cluster.produce("orders", b"x")
        cluster.flush()
        yield cluster.bootstrap_servers


@pytest.fixture
def behind(url):
    state = SqlStore(url, "behind")
    ledger = Ledger(state)
    offsets = {TopicPartition("orders", 0): DONE, TopicPartition("gone", 0): 1}
    ledger.adopt(ledger.acquire(), Committed(txid=3, offsets=offsets))
    state.close()


def test_lag_is_end_minus_committed_and_headroom_committed_minus_start(
    run, behind, servers, url
):
    result = run(
        *("lag", "--store", url, "--id", "behind", "--json"),
        *("--bootstrap-servers", servers),
    )

    gone, orders = json.loads(result.stdout)
    assert orders == {
        "id": "behind",
        "topic": "orders",
        "partition": 0,
        "committed": DONE,
        "log_start": 0,
        "end": RECORDS,
        "lag": RECORDS - DONE,
        "headroom": DONE,
    }
    assert "error" in gone


def test_the_table_says_what_could_not_be_had(run, behind, servers, url):
    result = run(
        "lag", "--store", url, "--id", "behind", "--bootstrap-servers", servers
    )

    assert result.exit_code == 1
    assert f"lag in total: {RECORDS - DONE} at least" in result.stdout
    assert "gone-0: " in result.stdout


@pytest.fixture
def offsets_of_a_known_topic(url):
    state = SqlStore(url, "known")
    ledger = Ledger(state)
    offsets = {TopicPartition("orders", 0): DONE}
    epochs = dict.fromkeys(offsets, 0)
    ledger.adopt(
        ledger.acquire(),
        Committed(3, offsets, topic_ids={"orders": "a"}, leader_epochs=epochs),
    )
    state.close()


@pytest.fixture
def reported(monkeypatch):
    """What brokers answer."""

    def tell(*bounds):
        found = {TopicPartition("orders", 0): LogBounds(*bounds)}
        monkeypatch.setattr(
            kafka_logs.Logs,
            "poll",
            lambda _, positions: dict.fromkeys(positions, found),
        )

    return tell


def test_of_a_topic_made_anew_all_is_lag(run, offsets_of_a_known_topic, reported, url):
    asked = ("lag", "--store", url, "--id", "known", "--bootstrap-servers", "b:1")
    reported(1, 3, "b")

    table = run(*asked).stdout
    (row,) = json.loads(run(*asked, "--json").stdout)

    assert (row["committed"], row["lag"], row["headroom"]) == (DONE, 2, 0)
    assert "lag in total: 2\n" in table
    assert "orders-0: offset 4 is of a topic that was deleted; all there is" in table


def test_where_other_records_took_the_place_of_lost_ones_these_are_lag(
    run, offsets_of_a_known_topic, reported, url
):
    asked = ("lag", "--store", url, "--id", "known", "--bootstrap-servers", "b:1")
    reported(1, DONE, "a", 1, {0: 2})

    table = run(*asked).stdout
    (row,) = json.loads(run(*asked, "--json").stdout)

    assert (row["committed"], row["lag"], row["headroom"]) == (DONE, DONE - 2, 1)
    assert "lag in total: 2\n" in table
    assert "orders-0: the log that was read to 4 ends at 2: records were lost" in table


def test_a_new_leader_that_does_not_tell_where_the_former_log_ended_has_no_lag(
    run, offsets_of_a_known_topic, reported, url
):
    reported(0, 100, "a", 1)

    table = run("lag", "--store", url, "--id", "known", "--bootstrap-servers", "b:1")

    assert "and its log still goes on from epoch 0" in table.stdout


def test_a_log_of_which_nobody_tells_whose_it_is_has_no_lag(
    run, offsets_of_a_known_topic, reported, url
):
    reported(0, 100, None)

    table = run("lag", "--store", url, "--id", "known", "--bootstrap-servers", "b:1")

    assert "orders-0: no broker tells whether its topic still has id a" in table.stdout
    assert "lag in total: 0 at least" in table.stdout


def test_all_ids_are_shown_at_once(run, behind, servers, url):
    for name, offset in (("a", 1), ("z", RECORDS)):
        state = SqlStore(url, name)
        position = Committed(txid=1, offsets={TopicPartition("orders", 0): offset})
        Ledger(state).adopt(state.acquire(), position)
        state.close()
    rows = SqlOffsetStore(url, "at-least-once")
    rows.store({TopicPartition("orders", 0): CommittedOffset(2)})
    rows.close()
    asked = ("lag", "--store", url, "--bootstrap-servers", servers)

    reported = json.loads(run(*asked, "--json").stdout)
    table = run(*asked).stdout

    lags = {row["id"]: row["lag"] for row in reported if row["topic"] == "orders"}
    assert lags == {"a": 9, "at-least-once": 8, "behind": 6, "z": 0}
    assert [line for line in table.splitlines() if line.startswith("id ")] == [
        *("id a", "id at-least-once", "id behind", "id z")
    ]


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "said"),
    [
        ("orders", 0, RECORDS + 1, "beyond the end of the log, 10"),
        ("absent", 0, 1, "absent-0: "),
        ("orders", 7, 1, "orders-7: "),
    ],
)
def test_a_position_that_no_log_has_is_trouble(
    run, servers, url, topic, partition, offset, said
):
    state = SqlStore(url, "beyond")
    position = Committed(txid=1, offsets={TopicPartition(topic, partition): offset})
    Ledger(state).adopt(state.acquire(), position)
    state.close()

    result = run("lag", "--store", url, "--bootstrap-servers", servers)

    assert result.exit_code == 1
    assert said in result.stdout


def test_records_that_retention_took_unread_are_trouble(run, reported, behind, url):
    reported(6, RECORDS, None)
    asked = ("lag", "--store", url, "--bootstrap-servers", "b:1")

    result = run(*asked)

    assert result.exit_code == 1
    assert "orders-0: 2 offsets that were not read are gone" in result.stdout


def test_a_position_within_its_log_is_fine(run, servers, url):
    state = SqlStore(url, "fine")
    position = Committed(txid=1, offsets={TopicPartition("orders", 0): RECORDS})
    Ledger(state).adopt(state.acquire(), position)
    state.close()

    assert run("lag", "--store", url, "--bootstrap-servers", servers).exit_code == 0


@pytest.fixture
def moved(run, behind, url, tmp_path):
    """Where ``behind`` goes on. Its old position will be below each log start."""
    there = f"sqlite:///{tmp_path}/there.db"
    words = ("store", "copy", "--id", "behind", "--from", url, "--to", there)
    assert run(*words, "--yes").exit_code == 0
    return there


def test_an_id_that_was_moved_is_judged_where_it_goes_on(run, moved, reported, url):
    reported(6, RECORDS, None)
    asked = ("--bootstrap-servers", "b:1", "--json")

    old = run("lag", "--store", url, *asked)
    new = run("lag", "--store", moved, *asked)

    assert (old.exit_code, json.loads(old.stdout)) == (0, [])
    assert new.exit_code == 1
    (row,) = json.loads(run("top", "--store", url, *asked, "-n", 1).stdout)
    assert (row["id"], row["lag"]) == ("behind", None)


@pytest.mark.parametrize("more", [(), ("--serve", 0)])
def test_who_asks_for_a_moved_id_is_told_where_it_goes_on(
    run, moved, reported, url, monkeypatch, more
):
    reported(6, RECORDS, None)
    others = ("--bootstrap-servers", "b:1", *more)

    told = run("lag", "--store", url, "--id", "behind", *others)

    assert told.exit_code == 1
    assert f"was copied to {moved}, and goes on there" in told.stderr
    found = re.search("Run: kafka-tx (.*), with the other options", told.stderr)
    assert found is not None
    monkeypatch.setattr(exporter, "export", lambda *_: None)  # serves for ever
    followed = run(*shlex.split(found[1]), *others)
    assert followed.exit_code == (0 if more else 1), followed.stderr
    assert more or "orders-0: 2 offsets that were not read are gone" in followed.stdout


def test_a_group_needs_its_name(run, servers):
    result = run("lag", "--store", "kafka:", "--bootstrap-servers", servers)

    assert result.exit_code == 2
    assert "add --id" in result.stderr


def test_the_exporter_shows_what_store_and_logs_say(behind, servers, url):
    logs, registry = kafka_logs.Logs(kafka_options(servers, None)), MetricsRegistry()
    exporter = _Exporter(url, None, logs, registry)
    exporter.poll()
    first = registry.samples()
    state = SqlStore(url, "behind")
    ledger = Ledger(state)
    offsets = {TopicPartition("orders", 0): DONE - 1}
    ledger.adopt(ledger.acquire(), Committed(txid=2, offsets=offsets))
    exporter.poll()
    moved = registry.samples()
    state.write(state.acquire(), {}, state.read())
    state.close()
    exporter.poll()
    logs.close()

    lags = [s["kafka_tx_lag_records"] for s in (first, moved, registry.samples())]
    txids = [s["kafka_tx_committed_txid"] for s in (first, moved)]
    key = ("behind", "orders", "0")
    assert lags == [{key: (RECORDS - DONE,)}, {key: (RECORDS - DONE + 1,)}, {}]
    assert txids == [{("behind",): (3,)}, {("behind",): (2,)}]


def test_the_exporter_drops_partitions_that_have_left_the_store(behind, servers, url):
    """As after ``kafka-tx offsets forget``: their lag would grow for ever."""
    logs, registry = kafka_logs.Logs(kafka_options(servers, None)), MetricsRegistry()
    exporter = _Exporter(url, None, logs, registry)
    with closing(logs), closing(SqlStore(url, "behind")) as state:
        exporter.poll()
        before = registry.samples()
        ledger = Ledger(state)
        offsets = {TopicPartition("gone", 0): 1}
        ledger.adopt(ledger.acquire(), Committed(txid=3, offsets=offsets))
        exporter.poll()

    assert before["kafka_tx_lag_records"].keys() == {("behind", "orders", "0")}
    after = registry.samples()
    assert after["kafka_tx_lag_records"] == {}
    assert after["kafka_tx_committed_offset"].keys() == {("behind", "gone", "0")}


def polled_at(registry):
    polled = registry.samples()["kafka_tx_last_poll_timestamp_seconds"]
    return {id_: at_s for (id_,), (at_s,) in polled.items()}


def test_of_what_cannot_be_read_the_exporter_shows_since_when(behind, servers, url):
    """So an alert can tell "no lag" from "nobody knows"."""
    logs, registry = kafka_logs.Logs(kafka_options(servers, None)), MetricsRegistry()
    exporter = _Exporter(url, None, logs, registry)
    with closing(logs), closing(SqlStore(url, "behind")) as state:
        exporter.poll()
        seen = polled_at(registry)
        stored = state.read()
        broken = dict.fromkeys(stored, "{")
        state.write(state.acquire(), broken, [])
        for _ in range(2):
            exporter.poll()
            assert polled_at(registry) == seen
        assert not registry.samples()["kafka_tx_committed_offset"]

        state.write(state.acquire(), stored, [])
        exporter.poll()
        assert polled_at(registry)["behind"] > seen["behind"]
        assert registry.samples()["kafka_tx_lag_records"]
        state.write(state.acquire(), {}, stored)
        exporter.poll()
    assert not polled_at(registry)


@pytest.mark.parametrize("more", [(), ("--serve", 0)])
@pytest.mark.parametrize(
    ("store", "said"),
    [("url", "ids it has: behind"), ("kafka:", "of a group 'behnid': there is no")],
)
def test_a_mistyped_id_is_refused(run, behind, servers, request, store, said, more):
    if store == "url":
        store = request.getfixturevalue("url")
    asked = ("lag", "--store", store, "--id", "behnid", "--bootstrap-servers", servers)

    result = run(*asked, *more)

    assert result.exit_code == 1
    assert said in " ".join(result.stderr.split())


@pytest.fixture(params=[1, 8])
def two_jobs(behind, url, request):
    """An at-least-once topology has the id of a source, too; where it is."""
    at = {"orders": request.param, "others": 2}
    with closing(SqlOffsetStore(url, "behind")) as rows:
        rows.store({TopicPartition(t, 0): CommittedOffset(n) for t, n in at.items()})
    return request.param


def test_of_two_jobs_with_one_id_none_hides_what_the_other_has_left(
    run, two_jobs, servers, url
):
    logs, registry = kafka_logs.Logs(kafka_options(servers, None)), MetricsRegistry()
    with closing(logs):
        _Exporter(url, None, logs, registry).poll()
    asked = ("--store", url, "--bootstrap-servers", servers, "--json")
    listed = json.loads(run("lag", *asked).stdout)
    (live,) = run("top", *asked, "-n", 1).stdout.splitlines()

    lag = RECORDS - min(two_jobs, DONE)
    assert [row.get("lag") for row in listed] == [None, lag, None]
    samples = registry.samples()
    assert samples["kafka_tx_lag_records"] == {("behind", "orders", "0"): (lag,)}
    assert samples["kafka_tx_committed_txid"] == {("behind",): (3,)}
    assert {row["door"]: row["lag"] for row in json.loads(live)} == {
        "source": RECORDS - DONE,
        "at-least-once topology": RECORDS - two_jobs,
    }


def test_an_at_least_once_topology_has_the_time_of_its_last_commit(run, servers, url):
    with closing(SqlOffsetStore(url, "clicks")) as rows:
        at = {n: CommittedOffset(1, committed_ms=n * 1_000) for n in (1, 2)}
        rows.store({TopicPartition("orders", n - 1): at[n] for n in at})
    logs, registry = kafka_logs.Logs(kafka_options(servers, None)), MetricsRegistry()

    with closing(logs):
        _Exporter(url, None, logs, registry).poll()
    ((row,),) = map(
        json.loads, run("top", "--store", url, "--json", "-n", 1).stdout.splitlines()
    )

    last = registry.samples()["kafka_tx_last_commit_timestamp_seconds"]
    assert last == {("clicks",): (2.0,)}
    assert row["committed_ms"] == 2_000


@pytest.fixture(params=["committed", "epoch", "at least once"])
def damaged(url, request):
    """An id with a record that is none, first in the order of ids."""
    name = "a-damaged"
    state = SqlStore(url, name)
    Ledger(state).adopt(state.acquire(), Committed(txid=1, offsets={}))
    state.close()
    if request.param == "at least once":
        with closing(SqlOffsetStore(url, name)) as offsets:
            offsets.acquire()
            offsets.store({TopicPartition("orders", 0): CommittedOffset(1)})
    change = {
        "committed": "UPDATE kafka_tx_state SET value = 'junk' WHERE path='committed'",
        "epoch": "UPDATE kafka_tx_owner SET epoch = 'junk' WHERE true",
        "at least once": "UPDATE kafka_tx_offsets SET completed = 'junk' WHERE true",
    }[request.param]
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        done = database.execute(f"{change} AND id = '{name}'")
        assert done.rowcount == 1
    return name


def test_a_damaged_id_hides_no_other(run, behind, damaged, servers, url):
    asked = ("lag", "--store", url, "--bootstrap-servers", servers)

    shown, as_json = run(*asked), run(*asked, "--json")
    listed = run("status", "--store", url)
    retention = doctor._retention({"bootstrap.servers": servers}, url)

    assert shown.exit_code == as_json.exit_code == 1
    assert f"lag in total: {RECORDS - DONE} at least" in shown.stdout
    assert f"id {damaged}: [KAFKA_TX_STATE_CORRUPTED]" in shown.stdout
    *rows, broken = json.loads(as_json.stdout)
    assert {row["id"] for row in rows} == {"behind"}
    assert broken["id"] == damaged
    assert "KAFKA_TX_STATE_CORRUPTED" in broken["error"]
    assert "unreadable" in listed.stdout
    assert "committed    txid 3" in listed.stdout
    assert retention[0] == "bad"
    assert f"{damaged} (unreadable)" in retention[1]


def test_the_exporter_shows_no_figure_that_it_cannot_renew(
    behind, damaged, servers, url, capsys
):
    logs, registry = kafka_logs.Logs(kafka_options(servers, None)), MetricsRegistry()
    exporter = _Exporter(url, None, logs, registry)

    with closing(logs):
        exporter.poll()
        healthy, seen = registry.samples()["kafka_tx_lag_records"], polled_at(registry)
        exporter.hide_all()
        exporter.hide_all()
        too_old, since = registry.samples()["kafka_tx_lag_records"], polled_at(registry)
        exporter.poll()

    assert healthy == {("behind", "orders", "0"): (RECORDS - DONE,)}
    assert (too_old, since) == ({}, seen)
    assert registry.samples()["kafka_tx_lag_records"] == healthy
    assert f"no figures of '{damaged}'" in capsys.readouterr().err


def test_an_option_without_a_value_is_refused(run, behind, url):
    result = run(
        *("lag", "--store", url, "--id", "behind"),
        *("--bootstrap-servers", "127.0.0.1:1", "--kafka", "security.protocol"),
    )

    assert result.exit_code == 2
    assert "NAME=VALUE" in result.stderr


def test_figures_that_are_served_are_no_json(run, behind, servers, url):
    asked = ("--store", url, "--bootstrap-servers", servers)

    result = run("lag", *asked, "--serve", "0", "--json")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "--serve prints no JSON" in result.stderr


def test_usage_errors_have_a_code_of_their_own(run):
    assert run("lag", "--id", "x").exit_code == 2


def test_long_topics_keep_their_partitions_apart_at_80_columns(run, url, servers):
    topic = "a-topic-with-a-name-that-fills-most-of-a-terminal-of-eighty-columns"
    state = SqlStore(url, "wide")
    offsets = {TopicPartition(topic, n): 12345678901 for n in range(64)}
    Ledger(state).adopt(state.acquire(), Committed(txid=1, offsets=offsets))
    state.close()

    shown = run(
        "lag", "--store", url, "--id", "wide", "--bootstrap-servers", servers
    ).stdout

    name, header, *rows = shown.splitlines()
    assert name == topic
    assert header.split() == [
        *("partition", "committed", "log", "start", "end", "lag", "headroom")
    ]
    assert [row.split()[:2] for row in rows[:64]] == [
        [str(n), "12345678901"] for n in range(64)
    ]


def test_clients_options_come_from_files_too(tmp_path):
    (tmp_path / "password").write_text("s3cret\n")
    file = tmp_path / "client.properties"
    file.write_text("# ours\nSecurity.Protocol = SASL_SSL\nclient.id=x\n")

    found = kafka_options(
        "b:9092", ["Client.ID=y", f"kafka.sasl.password=@{tmp_path}/password"], file
    )

    assert found == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_SSL",
        "client.id": "y",
        "sasl.password": "s3cret",
    }


def test_an_empty_value_stays_empty():
    """As Java's way to check no names of hosts."""
    name = "ssl.endpoint.identification.algorithm"

    assert kafka_options("b:9092", [f"{name}="])[name] == ""


def test_an_empty_file_has_no_settings(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("")

    assert kafka_options("b:9092", None, file) == {"bootstrap.servers": "b:9092"}


def test_a_value_without_a_name_is_not_repeated():
    with pytest.raises(ConfigError) as refusal:
        kafka_options("b:9092", ["=s3cret"])

    assert "s3cret" not in str(refusal.value)


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "line",
    [
        f"sasl.password={SECRET}",
        f"sasl.password = {SECRET}",
        f"sasl.password: {SECRET}",
        f"sasl.password:{SECRET}",
        f"sasl.password {SECRET}",
        f"kafka.sasl.password\t{SECRET}",
    ],
)
def test_a_file_of_java_properties_is_read_as_java_reads_it(tmp_path, line):
    file = tmp_path / "client.properties"
    file.write_text(f"# {SECRET}\n! comment\n\n{line}\nssl.endpoint: a=b:c\n")
    assert kafka_options("b:9092", None, file) == {
        "sasl.password": SECRET,
        "ssl.endpoint": "a=b:c",
        "bootstrap.servers": "b:9092",
    }


def test_a_value_of_java_properties_goes_on_behind_a_backslash(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(
        "# no value goes on behind a comment \\\n"
        "sasl.jaas.config=a.PlainLoginModule required \\\r\n"
        '\tusername="me" \\\n'
        f'  password="#{SECRET}";\n'
        "ssl.truststore.location=\\\n"
        "  #1.pem\n"
        "sasl.password=two\\\\\n"
        "client.id=me\\"
    )

    assert kafka_options("b:9092", None, file) == {
        "sasl.jaas.config": (
            f'a.PlainLoginModule required username="me" password="#{SECRET}";'
        ),
        "ssl.truststore.location": "#1.pem",
        "sasl.password": "two\\",
        "client.id": "me",
        "bootstrap.servers": "b:9092",
    }


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (r"ssl.key.password=a\\b\=c\:d\#e\!f", "ssl.key.password", r"a\b=c:d#e!f"),
        (r"a\=b\:c\ d = e", "a=b:c d", "e"),
        (r"\#a=b", "#a", "b"),
        (r"sasl.password =  \  secret\ ", "sasl.password", "  secret "),
        ("sasl.password=a\\u0020 \t", "sasl.password", "a "),
        ("sasl.password=a b\\\\ ", "sasl.password", "a b\\"),
        (r"sasl.password=\t", "sasl.password", "\t"),
        (r"a=1\t2\n3\r4\f5", "a", "1\t2\n3\r4\f5"),
        (r"a=\q\"\U0041", "a", 'q"u0041'.replace("u", "U")),
        (r"a=\u00e9\u0041\uD83D\uDE00", "a", "\u00e9A\U0001f600"),
        ("a=b\\\n  c\\\\\\\n  d", "a", "bc\\d"),
        ("a\\\n  b=c", "ab", "c"),
        ("\fa\f=\fb", "a", "b"),
        ("a\u2028b=c", "a\u2028b", "c"),
    ],
)
def test_escapes_of_java_properties_are_undone(tmp_path, line, name, value):
    """The values are those of ``java.util.Properties`` of Java 17."""
    file = tmp_path / "client.properties"
    file.write_text(f"{line}\nclient.id=me\n")

    found = kafka_options("b:9092", None, file)

    assert found == {name: value, "client.id": "me", "bootstrap.servers": "b:9092"}


@pytest.mark.parametrize("escape", [r"\users", r"\u12", r"\uD83D"])
def test_an_escape_that_is_no_character_is_refused(tmp_path, escape):
    file = tmp_path / "client.properties"
    file.write_text(f"sasl.password={SECRET}{escape}\n")

    with pytest.raises(ConfigError, match="each backslash twice") as refused:
        kafka_options("b:9092", None, file)
    assert SECRET not in f"{refused.value} {refused.value.__dict__}"


@pytest.mark.parametrize("text", [f"sasl.password:{SECRET}", SECRET, f"={SECRET}"])
def test_an_option_without_a_sign_is_not_shown(tmp_path, text):
    with pytest.raises(ConfigError, match="NAME=VALUE") as refused:
        kafka_options("b:9092", [text])
    assert SECRET not in f"{refused.value} {refused.value.__dict__}"
    file = tmp_path / "client.properties"
    file.write_text(SECRET)
    with pytest.raises(ConfigError, match="^.{18}a line of the file of") as refused:
        kafka_options("b:9092", None, file)
    assert SECRET not in f"{refused.value} {refused.value.__dict__}"
