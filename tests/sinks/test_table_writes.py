"""A batch into a table that commits rows and attempt together."""

from __future__ import annotations

import pytest

from kafka_tx.errors import (
    ConfigError,
    FencedError,
    OutOfOrderError,
    StateGivenUpError,
    StateLostError,
)
from kafka_tx.sinks import table_writes
from kafka_tx.sinks.table_writes import (
    NEVER,
    TRIES,
    Commit,
    CommitPace,
    Floor,
    OvertakenError,
    Snapshot,
    attempt_in,
    last_written,
    record_commit,
    record_of,
    recorded_commits,
    write_batch,
)
from kafka_tx.transactions.layout.commit_stats import TableWrite
from tests.conformance.sink_suite import attempt


class Table:
    """A table and the batch for it; ``between`` happens before the commit."""

    what = "table 't'"

    def __init__(self, name):
        self.sink = "t", name
        self.commits = []
        self.between = self.after = lambda: None

    def stored(self, _):
        return self.commits[-1] if self.commits else NEVER

    def commit(self):
        return Commit(version=len(self.commits), files=1, rows=2)

    def check_stored(self, stored):
        self.checked = stored

    def has_rows(self):
        return True

    def write(self, given):
        self.between()
        if self.stored(given).txid < given.txid:
            self.commits.append(given)
        self.after()
        return True


@pytest.fixture
def table(request, monkeypatch):
    """A table of a program that has written nothing yet, whatever ran before."""
    monkeypatch.setattr(table_writes, "_left", {})
    monkeypatch.setattr(table_writes, "_noted", {})
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


@pytest.mark.parametrize("after", [attempt(2, epoch=2), attempt(2)])
def test_who_is_overtaken_after_its_commit_is_told_nothing_untrue(table, after):
    table.after = lambda: table.commits.append(after)

    with pytest.raises((FencedError, OutOfOrderError)) as raised:
        write_batch(table, attempt(1))

    assert table.commits == [attempt(1), after]
    assert "Nothing was changed" not in str(raised.value)
    assert "Nothing was written over it" in str(raised.value)


def test_a_replay_asks_whether_the_rows_are_still_there(table):
    write_batch(table, attempt(1))

    assert not write_batch(table, attempt(1, epoch=2))
    assert table.checked == attempt(1)


@pytest.mark.parametrize("is_refused_first", [True, False])
def test_a_replay_refuses_a_second_write_as_the_first_try_does(
    table, monkeypatch, is_refused_first
):
    write_batch(table, attempt(1))
    if is_refused_first:
        with pytest.raises(ConfigError, match="was written already"):
            write_batch(table, attempt(1))
    monkeypatch.setattr(table_writes, "_left", {})  # another program

    for epoch in (2, 3):
        assert not write_batch(table, attempt(1, epoch=epoch))
        with pytest.raises(ConfigError, match="was written already"):
            write_batch(table, attempt(1, epoch=epoch))

    assert write_batch(table, attempt(2, epoch=3))


def test_a_write_without_rows_is_no_first_one_of_a_replay_either(table):
    table.has_rows = lambda: False
    write_batch(table, attempt(1))
    assert not write_batch(table, attempt(1, epoch=2))
    del table.has_rows

    assert not write_batch(table, attempt(1, epoch=2))


def test_a_batch_without_rows_needs_no_commit_and_its_replay_neither(table):
    table.commits.append(attempt(1))
    table.write = lambda given: False

    assert not write_batch(table, attempt(2))
    assert not write_batch(table, attempt(2, epoch=2))
    del table.write

    assert write_batch(table, attempt(3, epoch=2))
    assert table.commits == [attempt(1), attempt(3, epoch=2)]


def test_a_commit_that_is_not_there_afterwards_is_an_error(table):
    table.after = table.commits.clear

    with pytest.raises(StateLostError, match="txid 1 was committed and is not there"):
        write_batch(table, attempt(1))


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_what_another_thread_writes_while_the_table_answers_is_no_loss(
    table, is_overtaken
):
    write_batch(table, attempt(1))
    stored, asked, other = table.stored, [], Table(table.sink[1])
    other.commits = table.commits

    def interleaved(given):
        found = stored(given)
        asked.append(found)
        if len(asked) == 1 + is_overtaken:
            assert write_batch(other, attempt(2))
        return found

    def overtaken(given):
        del table.write
        raise OvertakenError(str(given))

    table.stored = interleaved
    if is_overtaken:
        table.write = overtaken

    assert write_batch(table, attempt(3))
    assert [each.txid for each in table.commits] == [1, 2, 3]


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


class Contested(Table):
    """One whose format refuses a commit if there was another since the look."""

    def __init__(self, name):
        super().__init__(name)
        self.version = self.base = 0

    def stored(self, given):
        self.base = self.version
        return super().stored(given)

    def write(self, given):
        self.between()
        if self.version != self.base:
            raise OvertakenError
        self.commits.append(given)
        self.version += 1
        return True

    def others(self):
        self.version += 1

    def owner(self, given):
        self.others()
        self.commits.append(given)


@pytest.fixture
def contested(request):
    return Contested(request.node.nodeid)


def test_a_batch_is_written_again_after_a_commit_in_between(contested):
    times = iter(range(TRIES - 1))
    contested.between = lambda: next(times, None) is not None and contested.others()

    assert write_batch(contested, attempt(1))
    assert contested.commits == [attempt(1)]


def test_who_is_overtaken_again_and_again_gives_up_and_the_batch_comes_again(contested):
    contested.between = contested.others

    with pytest.raises(StateGivenUpError, match="faster at each of 10 tries"):
        write_batch(contested, attempt(1))
    assert not contested.commits
    contested.between = lambda: None  # as it says: the others commit less often

    assert write_batch(contested, attempt(1, epoch=2))
    assert contested.commits == [attempt(1, epoch=2)]


def test_who_is_overtaken_reads_before_it_writes_again(contested):
    contested.between = lambda: contested.owner(attempt(1, number=2))

    assert not write_batch(contested, attempt(1))
    assert len(contested.commits) == 1

    contested.between = lambda: contested.owner(attempt(2, epoch=2))
    with pytest.raises(FencedError):
        write_batch(contested, attempt(2))


def test_a_record_of_a_commit_says_whose_it_is():
    kept = record_of("a", attempt(3, epoch=2))

    found = attempt_in(kept, "a")
    assert found is not None
    assert found == attempt(3, epoch=2)
    assert (found.source, found.numbering, found.plan) == ("orders", "one", "plan3")
    for foreign in (None, {}, {"sink": "b"}, {**kept, "attempt": "x"}, "text"):
        assert attempt_in(foreign, "a") is None
    assert attempt_in(kept, "b") is None


def history(*attempts, first=1, parent=None):
    """Snapshots from the newest to the oldest; numbers and orders count up."""
    made = []
    for number, given in enumerate(attempts, start=first):
        made.append(Snapshot(number, parent, (number,), given))
        parent = number
    return made[::-1]


def test_the_newest_attempt_in_the_history_counts():
    one, two = attempt(1), attempt(2)

    assert last_written(history(), None) == NEVER
    assert last_written(history(None), None) == NEVER
    assert last_written(history(one, None, two, None), None) == two


def test_a_floor_counts_with_its_snapshot():
    floor = Floor(attempt(5), snapshot=3, order=(3,))

    assert last_written(history(attempt(1), None, None, None), floor) == attempt(5)
    later = history(attempt(1), None, None, attempt(6))
    assert last_written(later, floor) == attempt(6)


def test_a_floor_whose_snapshot_was_rolled_back_counts_no_more():
    floor = Floor(attempt(5), snapshot=3, order=(3,))

    assert last_written(history(attempt(1), None), floor) == attempt(1)
    assert last_written(history(None, None), floor) == NEVER
    again = [*history(None, first=4, parent=2), *history(attempt(1), None)]
    assert last_written(again, floor) == attempt(1)
    assert last_written([], floor) == NEVER


def test_a_floor_whose_snapshot_has_expired_is_believed():
    floor = Floor(attempt(5), snapshot=3, order=(3,))

    assert last_written(history(None, first=4, parent=3), floor) == attempt(5)
    assert last_written(history(None, first=9, parent=8), floor) == attempt(5)
    rolled_back = history(None, first=2, parent=1)
    assert last_written(rolled_back, floor) == NEVER


def test_what_was_written_is_noted_for_a_while_once_for_each_sink(table):
    given = attempt(1)
    write_batch(table, given)
    where = given.source, given.numbering

    record_commit(table, given, 0.5)
    record_commit(table, given, None)

    (write,) = recorded_commits(*where, 1)
    name, sink = table.sink
    assert write == TableWrite(
        txid=1, table=name, sink=sink, version="1", files=1, rows=2
    )
    assert recorded_commits(*where, 2) == ()
    for txid in range(2, 300):
        record_commit(table, attempt(txid), 0.5)
    assert recorded_commits(*where, 1) == ()
    assert recorded_commits(*where, 299) != ()
