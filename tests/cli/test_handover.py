"""``kafka-tx offsets show --format``: what another reader gets, and what is said."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import closing

import pytest
from confluent_kafka import Consumer

from kafka_tx.cli.kafka_logs import Logs
from kafka_tx.kafka.group_commits import as_commit
from kafka_tx.kafka.group_offsets import encode
from kafka_tx.model import (
    BatchMetadata,
    CommittedOffset,
    LogBounds,
    OffsetRange,
    QueryShape,
    SpoutBatch,
    TopicPartition,
)
from kafka_tx.planning.new_checkpoints import REMEMBERED, lost_with_checkpoint
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.sql.store import SqlStore
from kafka_tx.testing.mock import MockCluster
from kafka_tx.transactions.layout.batch_records import batch_record
from kafka_tx.transactions.layout.txid_layout import Door, Numbering, metadata_path
from kafka_tx.transactions.ledger.ledger import Committed, Ledger
from tests.cli.conftest import ORDERS

UNREAD = TopicPartition("orders", 1)
PAYMENTS = TopicPartition("payments", 0)


@pytest.fixture(scope="module")
def servers():
    """300 records in ``orders-0``, ten in ``orders-1`` and in ``payments-0``."""
    with MockCluster() as cluster:
        cluster.create_topic("orders", 2)
        cluster.create_topic("payments", 1)
        for _ in range(300):
            cluster.produce("orders", b"x")
        for _ in range(10):
            cluster.produce("orders", b"x", partition=1)
            cluster.produce("payments", b"x")
        cluster.flush()
        yield cluster.bootstrap_servers


@pytest.fixture
def handed(run, url, servers):
    """Show the offsets of an id in a form."""

    def show(form, *more, id="orders", store=url, brokers=servers):  # noqa: A002
        asked = ("--bootstrap-servers", brokers) if brokers else ()
        place = ("--store", store, "--id", id)
        return run("offsets", "show", *place, "--format", form, *asked, *more)

    return show


def test_sparks_source_begins_behind_the_last_committed_batch(handed, store):
    result = handed("spark")

    assert json.loads(result.stdout) == {"orders": {"0": 250, "1": -2}}
    assert result.stderr.splitlines() == [
        "the offsets are those after txid 41, the last committed one",
        "txid 42 is not committed, so its records are read again, also if a sink holds"
        " them already: orders-0 [250, 300)",
        "to repeat nothing, let the job commit these txids first: start it once more,"
        " stop it, and run this command again",
        lost_with_checkpoint(None).strip(),
        "orders-1: it was never read, so it is read from the start of its log: 0",
    ]


def test_a_group_begins_there_too_in_the_form_of_kafkas_tool(handed, store):
    assert handed("group").stdout == "orders,0,250\norders,1,0\n"


def test_another_topic_that_the_reader_wants_begins_at_its_start(handed, store):
    result = handed("spark", "--topic", "orders", "--topic", "payments")

    offsets = {"orders": {"0": 250, "1": -2}, "payments": {"0": -2}}
    assert json.loads(result.stdout) == offsets


def test_brokers_are_asked_unless_a_person_says_no(handed, store):
    refused = handed("spark", brokers=None)
    stored = handed("group", "--unchecked", brokers=None)

    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert "Give --bootstrap-servers, or --unchecked" in refused.stderr
    assert stored.stdout == "orders,0,250\n"
    assert "Partitions that were never read are missing" in stored.stderr
    assert "auto.offset.reset=earliest" in stored.stderr


def test_a_topic_that_no_broker_knows_is_left_out_only_by_name(handed, store):
    ledger = Ledger(store)
    offsets = {ORDERS: 250, TopicPartition("gone", 0): 7}
    ledger.adopt(ledger.acquire(), Committed(50, offsets))

    refused = handed("spark")
    named = handed("spark", "--topic", "orders")

    assert refused.exit_code == 1
    assert "the brokers do not know the topics gone: they were deleted" in (
        refused.stderr
    )
    assert "--topic" in refused.stderr
    assert json.loads(named.stdout) == {"orders": {"0": 250, "1": -2}}


def test_only_topics_of_the_id_can_be_named_if_no_broker_is_asked(handed, store):
    result = handed("spark", "--unchecked", "--topic", "payments", brokers=None)

    assert result.exit_code == 2
    assert "a topic of the id: orders" in result.stderr


def test_a_partition_that_does_not_exist_any_more_is_left_out(handed, store):
    ledger = Ledger(store)
    ledger.adopt(
        ledger.acquire(), Committed(50, {ORDERS: 250, TopicPartition("orders", 7): 3})
    )

    result = handed("group")

    assert result.stdout == "orders,0,250\norders,1,0\n"
    assert "orders-7: left out, because it does not exist" in result.stderr


def test_the_offsets_of_an_id_that_was_copied_are_old(
    run, handed, store, url, servers, tmp_path
):
    there = f"sqlite:///{tmp_path}/there.db"
    assert not run("store", "copy", "--from", url, "--to", there, "--yes").exit_code

    old = handed("spark")
    plain = run("offsets", "show", "--store", url, "--id", "orders")

    assert old.exit_code == 1
    assert old.stdout == ""
    advice = re.search(r"Run: kafka-tx (.*), with the other options", old.stderr)
    assert advice is not None
    options = ("--format", "spark", "--bootstrap-servers", servers)
    followed = run(*shlex.split(advice[1]), *options)
    assert json.loads(followed.stdout)["orders"]["0"] == 250
    assert f"was copied to {there}, and goes on there" in plain.stderr
    assert "orders-0\t250" in plain.stdout


def test_an_id_that_was_renamed_is_found_under_its_new_name(run, handed, store, url):
    named = ("rename", "--store", url, "--id", "orders", "--to", "new", "--yes")
    assert not run(*named).exit_code

    assert "ids it has: new" in handed("spark").stderr
    assert handed("group", id="new").stdout == "orders,0,250\norders,1,0\n"


def test_of_a_query_with_several_sources_all_are_handed_over(handed, store):
    ledger = Ledger(store)
    shape = QueryShape(("orders", "payments"), ("RateStream",), ("StateStoreSave",))
    ledger.describe(ledger.acquire(), shape)

    said = handed("spark").stderr

    assert "hand over the offsets of 'payments', too" in said
    assert "RateStream, without tx.id, starts where its own options say" in said
    assert "windows and groups that are open now are never emitted" in said
    assert REMEMBERED.strip() in said


def test_a_job_that_committed_nothing_is_at_its_start(handed, url):
    with closing(SqlStore(url, "began")) as state:
        ledger = Ledger(state)
        epoch = ledger.acquire()
        ledger.adopt(epoch, Committed(0, {ORDERS: 20}), "feedfeedfeed")
        ledger.plan(epoch, BatchMetadata(1, (OffsetRange(ORDERS, 20, 30),)))

    result = handed("group", id="began")

    assert "orders,0,20\n" in result.stdout
    assert "the offsets are those where the job started" in result.stderr
    assert "orders-0 [20, 30)" in result.stderr


@pytest.fixture
def topology(url):
    """Store the first batch of a transactional topology, which did not finish it."""

    def stored(batch):
        with closing(SqlStore(url, "tally")) as state:
            numbering = Numbering("feedfeedfeed", Door.TRANSACTIONAL).record
            put = {**numbering, metadata_path(1): batch_record(batch)}
            state.write(state.acquire(), put)

    return stored


def test_the_first_batch_of_a_topology_is_read_again_from_where_it_starts(
    handed, topology
):
    ranges = OffsetRange(ORDERS, 20, 30), OffsetRange(UNREAD, 4, 4)
    topology(BatchMetadata(1, ranges))

    result = handed("group", id="tally")

    assert result.stdout == "orders,0,20\norders,1,4\n"
    assert "the offsets are those where txid 1 starts" in result.stderr


def test_a_topology_that_reads_something_else_has_no_offsets(handed, topology):
    topology(SpoutBatch(1, (), json={"from": 1}))

    result = handed("spark", id="tally")

    assert result.exit_code == 1
    assert "id 'tally' in" in result.stderr
    assert "reads something else than Kafka" in result.stderr


AT_LEAST_ONCE = {
    ORDERS: CommittedOffset(5, completed=((7, 9), (12, 40))),
    UNREAD: CommittedOffset(3),
}
SAID = (
    "orders-0: offset 5 is not completed; of those above it, the store knows as"
    " completed: [7, 9), [12, 40)"
)


def test_at_least_once_the_lowest_offset_that_is_not_completed_counts(handed, url):
    with closing(SqlOffsetStore(url, "deliver")) as offsets:
        offsets.acquire()
        offsets.store(AT_LEAST_ONCE)

    result = handed("group", id="deliver")

    assert result.stdout == "orders,0,5\norders,1,3\n"
    assert result.stderr.splitlines() == [
        "each offset is the lowest one of its partition that is not completed: all"
        " records from there on are read, also those that are completed already",
        SAID,
    ]


def test_the_offsets_of_a_group_are_found_in_the_group(handed, servers):
    commits = [as_commit(p, at.position, encode(at)) for p, at in AT_LEAST_ONCE.items()]
    client = Consumer({"bootstrap.servers": servers, "group.id": "deliver"})
    client.commit(offsets=commits, asynchronous=False)
    client.close()

    result = handed("spark", id="deliver", store="kafka:")
    unasked = handed("spark", "--unchecked", id="deliver", store="kafka:", brokers=None)
    none = handed("spark", id="nobody", store="kafka:")

    assert json.loads(result.stdout) == {"orders": {"0": 5, "1": 3}}
    assert SAID in result.stderr
    assert "add --bootstrap-servers" in unasked.stderr
    assert "the consumer group 'nobody' has no committed offsets" in none.stderr


def test_an_id_of_two_jobs_has_no_offsets_of_its_own(handed, store, url):
    with closing(SqlOffsetStore(url, "orders")) as offsets:
        offsets.acquire()
        offsets.store(AT_LEAST_ONCE)

    result = handed("spark")

    assert result.exit_code == 1
    assert "is that of a source and of an at-least-once topology" in result.stderr


@pytest.fixture
def known(url):
    """Id ``known`` at offset 4 of ``orders-0``, with topic id and leader epoch."""
    with closing(SqlStore(url, "known")) as state:
        offsets = {ORDERS: 4}
        at = Committed(3, offsets, {"orders": "a"}, leader_epochs={ORDERS: 0})
        Ledger(state).adopt(state.acquire(), at)


@pytest.mark.parametrize(
    ("bounds", "offset", "note"),
    [
        (LogBounds(0, 9, "a", 0), 4, ""),
        (LogBounds(6, 9, "a", 0), 4, "2 offsets that were not read are gone"),
        (LogBounds(1, 3, "b", 0), -2, "of a topic that was deleted"),
        (LogBounds(0, 9, "a", 1, {0: 2}), 2, "unclean leader election"),
    ],
)
def test_a_log_that_has_changed_loses_nothing_more(
    handed, known, monkeypatch, bounds, offset, note
):
    monkeypatch.setattr(Logs, "poll", lambda *_: {"": {ORDERS: bounds}})
    monkeypatch.setattr(Logs, "partitions", lambda *_: {"orders": [ORDERS]})

    result = handed("spark", id="known")

    assert json.loads(result.stdout) == {"orders": {"0": offset}}
    assert note in result.stderr


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        (LogBounds(0, 3, "a", 0), "beyond the end of the log, 3"),
        (LogBounds(0, 9, None, 0), "no broker tells whether its topic still has id a"),
    ],
)
def test_a_position_that_its_log_does_not_confirm_is_not_handed_over(
    handed, known, monkeypatch, bounds, why
):
    monkeypatch.setattr(Logs, "poll", lambda *_: {"": {ORDERS: bounds}})
    monkeypatch.setattr(Logs, "partitions", lambda *_: {"orders": [ORDERS]})

    result = handed("spark", id="known")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert why in result.stderr


UNASKED = ("--unchecked", "--bootstrap-servers")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--format", "spark", "--json"), "leave --json out"),
        (("--topic", "orders"), "go with --format"),
        (("--unchecked",), "go with --format"),
        (("--kafka", "client.id=me"), "go with --format"),
        (("--format", "spark", *UNASKED, "localhost:1"), "asks no brokers"),
    ],
)
def test_options_that_do_not_fit_are_refused(run, store, url, given, why):
    result = run("offsets", "show", "--store", url, "--id", "orders", *given)

    assert result.exit_code == 2
    assert why in result.stderr


def test_a_file_of_settings_that_all_commands_share_is_in_nobodys_way(
    run, handed, store, url, tmp_path, monkeypatch
):
    file = tmp_path / "client.properties"
    file.write_text("client.id=me")
    monkeypatch.setenv("KAFKA_TX_KAFKA_CONFIG", str(file))

    plain = run("offsets", "show", "--store", url, "--id", "orders")
    unasked = handed("spark", "--unchecked", brokers=None)

    assert (plain.exit_code, unasked.exit_code) == (0, 0)
