"""``kafka-tx skip --records``: records that an at-least-once topology always fails."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from kafka_tx.cli.skip import skipped
from kafka_tx.errors import FencedError
from kafka_tx.model import CommittedOffset, OffsetRange, TopicPartition
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.testing.mock import MockCluster

CLICKS = TopicPartition("clicks", 0)
STORED = CommittedOffset(
    40, completed=((45, 50),), failures=((40, 42, 3), (43, 44, 1)), topology_name="t"
)


@pytest.fixture
def clicks(url):
    with closing(SqlOffsetStore(url, "clicks")) as offsets:
        offsets.acquire()
        offsets.store({CLICKS: STORED})
        yield offsets


@pytest.fixture
def skip(run, url):
    with MockCluster() as cluster:
        cluster.create_topic("clicks", 1)
        for _ in range(60):
            cluster.produce("clicks", b"x")
        cluster.flush()
        brokers = ("--bootstrap-servers", cluster.bootstrap_servers)

        def skip(records, *more, id_="clicks"):
            which = ("--store", url, "--id", id_, "--records", records)
            return run("skip", *which, *brokers, *more)

        yield skip


@pytest.mark.parametrize(
    ("records", "offset", "completed", "failures"),
    [
        ((40, 41), 41, ((45, 50),), ((41, 42, 3), (43, 44, 1))),
        ((41, 42), 40, ((41, 42), (45, 50)), ((40, 41, 3), (43, 44, 1))),
        ((30, 45), 50, (), ()),
        ((48, 52), 40, ((45, 52),), ((40, 42, 3), (43, 44, 1))),
    ],
)
def test_skipped_records_count_as_completed(records, offset, completed, failures):
    found = skipped(STORED, OffsetRange(CLICKS, *records))

    assert found.offset == offset
    assert (found.completed, found.failures) == (completed, failures)


def test_records_are_skipped_of_a_log_whose_first_one_is_open():
    found = skipped(CommittedOffset(0), OffsetRange(CLICKS, 3, 4))

    assert (found.offset, found.completed) == (0, ((3, 4),))


def test_records_are_shown_then_skipped_and_the_job_is_fenced(skip, clicks):
    shown = skip("clicks-0:40-47", "--dry-run", "--json")
    assert clicks.load([CLICKS]) == {CLICKS: STORED}
    done = skip("clicks-0:40-47", "--yes")

    lines = json.loads(shown.stdout)["changes"]
    assert lines[0] == "clicks-0: [40, 45)"
    assert "At-least-once does not hold for them" in lines[1]
    assert done.exit_code == 0, done.stderr
    assert clicks.load([CLICKS])[CLICKS].offset == 50
    with pytest.raises(FencedError):
        clicks.store({CLICKS: STORED})


@pytest.mark.parametrize(
    ("records", "code", "reason"),
    [
        ("clicks-0:10-40", 1, "no unfinished record in clicks-0: [10, 40)"),
        ("clicks-7:10-40", 1, "no unfinished record in clicks-7"),
        ("clicks-0:50-61", 1, "is not in the log"),
        ("clicks-0:50", 2, "TOPIC-PARTITION:FROM-TO"),
        ("clicks-0:50-50", 2, "TOPIC-PARTITION:FROM-TO"),
    ],
)
def test_what_is_no_open_record_is_refused(skip, clicks, records, code, reason):
    result = skip(records, "--yes")

    assert result.exit_code == code
    assert reason in result.stderr
    assert clicks.load([CLICKS]) == {CLICKS: STORED}


def test_a_txid_or_records_are_needed_and_an_error_names_the_other(run, url, clicks):
    neither = run("skip", "--store", url, "--id", "clicks")
    of_batches = run("skip", "--store", url, "--id", "clicks", "--txid", 1, "--yes")

    assert neither.exit_code == 2
    assert of_batches.exit_code == 1
    assert "--records TOPIC-PARTITION:FROM-TO instead of --txid" in of_batches.stderr
    assert "dead_letter_topic" in of_batches.stderr
