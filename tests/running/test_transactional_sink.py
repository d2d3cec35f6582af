"""Sinks of other people: what the base class does around their steps."""

from __future__ import annotations

import pytest

from kafka_tx import (
    BatchBolt,
    MemoryTransactionalSpout,
    OvertakenError,
    TransactionalSink,
    TransactionalTopologyBuilder,
    TransactionAttempt,
)
from kafka_tx.errors import (
    ConfigError,
    FencedError,
    StateCorruptedError,
    StateGivenUpError,
    StateUnavailableError,
)
from kafka_tx.running import transactional_sink
from kafka_tx.sinks import table_writes
from kafka_tx.testing import ManualClock
from tests.conformance.sink_suite import attempt
from tests.local_engine import run_commit, run_processing


class Shelf(TransactionalSink):
    """Rows and the attempt's text, which change together."""

    def __init__(self, name):
        self.name = name
        self.rows: list[str] = []
        self.text: str | None = None
        self.failures: list[str] = []

    def read_attempt(self):
        return None if self.text is None else TransactionAttempt.of_json(self.text)

    def write(self, staged, attempt, former):
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "before":
            raise ConnectionError("nobody answers")
        if self.read_attempt() != former:
            raise OvertakenError("another one wrote")
        self.rows += staged
        self.text = attempt.as_json()
        if failure == "after":
            raise ConnectionError("the answer was lost")


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    made = ManualClock()
    monkeypatch.setattr(transactional_sink, "SystemClock", lambda: made)
    monkeypatch.setattr(made, "sleep_ms", made.advance)
    return made


@pytest.fixture
def shelf(request):
    table_writes._left.clear()
    return Shelf(request.node.name)


@pytest.mark.parametrize("failures", [["before"], ["after"], ["before", "after"]])
def test_an_outcome_that_is_unknown_is_looked_up_before_it_is_tried_again(
    shelf, failures
):
    shelf.failures = failures

    assert shelf(["a"], attempt(1))
    assert shelf(["b"], attempt(2))

    assert shelf.rows == ["a", "b"]


def test_an_answer_that_is_lost_beside_the_read_after_it_is_ours(shelf, monkeypatch):
    look, failures = shelf.read_attempt, [False, True, False]

    def fails():
        if shelf.text and failures and failures.pop(0):
            raise TimeoutError
        return look()

    shelf.failures = ["after"]
    failures[:] = [True]
    monkeypatch.setattr(shelf, "read_attempt", fails)

    assert shelf(["a"], attempt(1))
    assert shelf.rows == ["a"]


def test_a_storage_that_stays_away_is_given_up_and_the_text_names_the_setting(shelf):
    shelf.failures = ["before"] * 1000

    with pytest.raises(StateGivenUpError, match=r"nobody answers\. .*Set retry_ms of"):
        shelf(["a"], attempt(1))

    shelf.failures = []
    assert shelf(["a"], attempt(1))


def test_without_retries_the_error_says_what_cannot_be_used(shelf, monkeypatch):
    monkeypatch.setattr(Shelf, "retry_ms", 0)
    shelf.failures = ["before"]

    with pytest.raises(StateUnavailableError, match="sink '.*' cannot be used: nobody"):
        shelf(["a"], attempt(1))


def test_what_is_staged_is_written_if_nobody_came_in_between(shelf, monkeypatch):
    staged: list[str] = []

    def stage(self, rows, given):
        staged.append(str(given))
        if len(staged) == 1:
            self.text = attempt(1, number=2).as_json()  # another one of the owner
        return [f"{row}!" for row in rows]

    monkeypatch.setattr(Shelf, "stage", stage)

    assert not shelf(["a"], attempt(1))
    assert shelf(["b"], attempt(2))
    assert staged == ["1:1000000000001", "2:1000000000001"]
    assert shelf.rows == ["b!"]


def test_an_attempt_that_was_fenced_while_it_staged_writes_nothing(shelf, monkeypatch):
    def stage(self, rows, given):
        self.text = attempt(1, epoch=2).as_json()
        return rows

    monkeypatch.setattr(Shelf, "stage", stage)

    with pytest.raises(FencedError):
        shelf(["a"], attempt(1))
    assert shelf.rows == []


def test_an_attempt_that_somebody_has_changed_stops_the_sink_until_it_is_back(shelf):
    shelf(["a"], attempt(1))
    stored = shelf.text

    for text in ("1:1", '{"attempt": "x"}', "[]"):
        shelf.text = text
        with pytest.raises(StateCorruptedError, match="legal: the text that as_json"):
            shelf(["b"], attempt(2))
    shelf.text = stored

    assert shelf(["b"], attempt(2))
    assert shelf.rows == ["a", "b"]


def test_a_sink_needs_a_name():
    shelf = Shelf("")
    del shelf.name

    with pytest.raises(ConfigError, match="option 'name' is None"):
        shelf([], attempt(1))


def test_sinks_of_one_name_and_two_kinds_are_two(shelf):
    class Other(Shelf):
        pass

    shelf(["a"], attempt(1))

    assert Other(shelf.name)(["a"], attempt(1))


class ToShelf(BatchBolt):
    """Gives the words of a batch to a sink."""

    sink: Shelf

    def prepare(self, context, collector):
        self.attempt, self.words = context.attempt, []

    def execute(self, row):
        self.words += row.line.split()

    def finish_batch(self):
        self.sink(self.words, self.attempt)


def test_a_committer_calls_it_once_for_each_batch(shelf):
    spout = MemoryTransactionalSpout(
        {0: [("the cow",), ("the moon",)]}, "line string", 2
    )
    builder = TransactionalTopologyBuilder("words", "lines", spout)
    ToShelf.sink = shelf
    builder.set_committer_bolt("shelf", ToShelf).global_grouping("lines")
    topology = builder.build()
    plan = spout.initialize_transaction(1, None)

    for number in (1, 2):  # the second one is a replay
        given = TransactionAttempt.of(1, epoch=1, number=number)
        processed = run_processing(topology, given, spout.batch(given, plan))
        run_commit(processed)
        assert processed.failure is None

    assert sorted(shelf.rows) == ["cow", "moon", "the", "the"]


def test_what_it_has_written_is_noted_for_status_and_metrics(shelf):
    shelf(["a"], attempt(1))
    shelf(["b"], attempt(2))
    shelf(["b"], attempt(2, epoch=2))

    noted = [
        write
        for txid in (1, 2)
        for write in table_writes.recorded_commits("orders", "one", txid)
        if (write.table, write.sink) == (shelf.name, "Shelf")
    ]
    first, second = noted
    assert (first.txid, second.txid) == (1, 2)
    assert first.seconds is not None
    assert second.seconds is None  # an earlier try has written it
