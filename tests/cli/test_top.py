"""``kafka-tx top``, ``status --watch`` and ``history``."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import count

import pytest
from rich.console import Console
from rich.live import Live

from kafka_tx.cli import status
from kafka_tx.errors import StateUnavailableError
from kafka_tx.model import (
    BatchMetadata,
    CommittedOffset,
    OffsetRange,
    TopicPartition,
)
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.sql.store import SqlStore
from kafka_tx.testing.mock import MockCluster
from kafka_tx.transactions.layout.commit_stats import TaskSums
from kafka_tx.transactions.ledger.ledger import Committed, Ledger

CLICKS = TopicPartition("clicks", 0)
RECORDS, BYTES, SECOND_MS = 40, 400, 1000


@pytest.fixture
def busy(url):
    """Ten transactions of 40 records, one a second; the last one read to 400."""
    state = SqlStore(url, "busy")
    ledger = Ledger(state)
    epoch = ledger.acquire()
    ledger.adopt(epoch, Committed(txid=0, offsets={CLICKS: 0}))
    for txid in range(1, 11):
        start = (txid - 1) * RECORDS
        batch = BatchMetadata(txid, (OffsetRange(CLICKS, start, start + RECORDS),))
        ledger.plan(epoch, batch)
        read = TaskSums(records=RECORDS, bytes=BYTES)
        ledger.commit(
            epoch, txid, 1_600_000_000_000 + txid * SECOND_MS, from_tasks=read
        )
    state.close()


def test_the_longest_silent_id_comes_first(run, store, busy, url):
    (line,) = run("top", "--store", url, "-n", 1, "--json").stdout.splitlines()

    first, second = json.loads(line)
    assert (first["id"], first["txid"], first["open"]) == ("busy", 10, 0)
    assert first["records_per_second"] == RECORDS
    assert (second["id"], second["txid"], second["open"]) == ("orders", 41, 1)
    assert second["records_per_second"] is None


def test_lag_is_shown_with_brokers(run, busy, url):
    with MockCluster() as cluster:
        cluster.create_topic("clicks", 1)
        for _ in range(410):
            cluster.produce("clicks", b"x")
        cluster.flush()
        servers = cluster.bootstrap_servers
        shown = run("top", "--store", url, "-n", 1, "--bootstrap-servers", servers)

    header, row = shown.stdout.splitlines()
    assert header.split() == [
        *("id", "txid", "committed", "records/s", "open", "lag", "last", "stop")
    ]
    assert row.split()[:2] == ["busy", "10"]
    assert row.split()[-2:] == ["40.0", "10"]


def test_no_lag_is_shown_where_no_partition_has_one(run, busy, url):
    with MockCluster() as cluster:
        cluster.create_topic("views", 1)
        servers = cluster.bootstrap_servers
        shown = run(
            *("top", "--store", url, "-n", 1, "--json"),
            *("--bootstrap-servers", servers),
        )

    (row,) = json.loads(shown.stdout)
    assert row["lag"] is None


def test_two_jobs_with_one_id_are_told_apart(run, busy, url):
    with closing(SqlOffsetStore(url, "busy")) as rows:
        rows.store({CLICKS: CommittedOffset(2)})

    shown = run("top", "--store", url, "-n", 1).stdout

    assert "busy (source)" in shown
    assert "busy (at-least-once topology)" in shown


def test_each_refresh_shows_what_has_moved(run, store, url, replace_in):
    numbers = count(50)

    def commit_meanwhile(_):
        ledger = Ledger(store)
        ledger.adopt(ledger.acquire(), Committed(next(numbers), {CLICKS: 1}))

    replace_in(status, "time", sleep=commit_meanwhile)

    lines = run("top", "--store", url, "-n", 3, "--json").stdout.splitlines()

    assert [json.loads(line)[0]["txid"] for line in lines] == [41, 50, 51]


def test_a_refresh_that_fails_on_a_terminal_is_followed_by_the_next(
    monkeypatch, replace_in
):
    console = Console(force_terminal=True, width=80, record=True)
    monkeypatch.setattr(status, "Console", lambda: console)
    replace_in(status, "time", sleep=lambda _: None)
    polls = iter(["", "it is back"])
    drawn = []

    def draw():
        found = next(polls)
        if not found:
            raise StateUnavailableError("the store is away")
        return found

    monkeypatch.setattr(
        Live, "update", lambda _, shown, refresh: drawn.append(str(shown))
    )
    status.watch_ids(draw, 0.1, 2)

    assert "the store is away" in drawn[0]
    assert drawn[1] == "it is back"


def test_status_can_be_watched(run, store, url, replace_in):
    def end(_):
        raise KeyboardInterrupt

    replace_in(status, "time", sleep=end)

    shown = run("status", "--store", url, "--watch").stdout

    assert shown == run("status", "--store", url).stdout


def test_history_shows_what_the_last_transactions_held(run, busy, url):
    asked = ("history", "--store", url, "--id", "busy")

    shown = json.loads(run(*asked, "--json").stdout)
    table = run(*asked).stdout.splitlines()

    assert [row["txid"] for row in shown] == list(range(1, 11))
    assert [row["after_ms"] for row in shown] == [None, *[SECOND_MS] * 9]
    assert {(row["records"], row["bytes"]) for row in shown} == {(RECORDS, BYTES)}
    assert table[-1].split() == [
        *("10", "2020-09-13", "12:26:50Z", "1.0", "1", "40", "400")
    ]


def test_an_id_without_transactions_has_no_history(run, url):
    state = SqlStore(url, "new")
    state.write(state.acquire(), {"x": "y"})
    state.close()

    shown = run("history", "--store", url, "--id", "new")

    assert shown.exit_code == 0
    assert "keeps no transactions of 'new'" in shown.stdout
