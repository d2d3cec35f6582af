"""A batch into a table that commits rows and attempt together."""

from __future__ import annotations

import pytest

from kafka_tx.errors import ConfigError, FencedError, StateLostError
from kafka_tx.transactions import table_writes
from kafka_tx.transactions.table_writes import NEVER, CommitPace, write_batch
from tests.conformance.sink_suite import attempt


class Table:
    """A table and the batch for it; ``between`` happens before the commit."""

    what = "table 't'"

    def __init__(self, name):
        self.sink = name
        self.commits = []
        self.between = self.after = lambda: None

    def stored(self, _):
        return self.commits[-1] if self.commits else NEVER

    def check_kept(self, stored):
        self.checked = stored

    def write(self, given):
        self.between()
        if self.stored(given).txid < given.txid:
            self.commits.append(given)
        self.after()


@pytest.fixture
def table(request):
    return Table(request.node.nodeid)


def fails():
    raise ConnectionError


def test_a_commit_whose_answer_was_lost_counts(table):
    table.after = fails

    assert write_batch(table, attempt(1))
    assert table.commits == [attempt(1)]


def test_a_write_that_fails_before_its_commit_raises_what_it_raised(table):
    table.between = fails

    with pytest.raises(ConnectionError):
        write_batch(table, attempt(1))

    assert not table.commits


@pytest.mark.parametrize("after", [lambda: None, fails])
def test_who_wakes_after_another_has_written_the_batch_has_not_written(table, after):
    table.between = lambda: table.commits.append(attempt(1, number=2))
    table.after = after

    assert not write_batch(table, attempt(1))
    assert len(table.commits) == 1


@pytest.mark.parametrize("after", [lambda: None, fails])
def test_who_wakes_after_a_newer_owner_has_written_is_fenced(table, after):
    table.between = lambda: table.commits.append(attempt(1, epoch=2))
    table.after = after

    with pytest.raises(FencedError):
        write_batch(table, attempt(1))

    assert len(table.commits) == 1


def test_a_replay_asks_whether_the_rows_are_still_there(table):
    write_batch(table, attempt(1))

    assert not write_batch(table, attempt(1, epoch=2))
    assert table.checked == attempt(1)


def test_a_commit_that_is_not_there_afterwards_is_an_error(table):
    table.after = table.commits.clear

    with pytest.raises(StateLostError, match="txid 1 was committed and is not there"):
        write_batch(table, attempt(1))


def test_a_table_that_lost_what_this_program_wrote_is_not_written_again(table):
    write_batch(table, attempt(1))
    write_batch(table, attempt(2))
    table.commits.pop()

    for given in (attempt(2, number=2), attempt(3)):
        with pytest.raises(StateLostError, match="txid 2 was left .*last one is 1 now"):
            write_batch(table, given)
    table_writes._left.clear()  # started again, under a new epoch

    assert write_batch(table, attempt(2, epoch=2))


def test_a_txid_below_1_is_refused(table):
    with pytest.raises(ConfigError, match="option 'txid' is 0"):
        write_batch(table, attempt(0))


def warnings_of(table, caplog, every_ms, commits=200):
    pace = CommitPace()
    for number in range(commits):
        pace.committed(table, number * every_ms)
    return [record.getMessage() for record in caplog.records]


def test_commits_that_come_quickly_are_named_once(table, caplog):
    (warning,) = warnings_of(table, caplog, every_ms=1_000)

    assert warning.startswith("table 't': 60 commits in less than 60 s")


def test_commits_at_the_rate_that_is_documented_are_in_order(table, caplog):
    assert not warnings_of(table, caplog, every_ms=1_020)
