"""A query with two sources whose checkpoint or store went back: one decision for both.

The parts are those of the simulated people: real planners, a store in memory, a sink.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from kafka_tx.cli.changes import Change
from kafka_tx.cli.skip import _skip_in_source
from kafka_tx.errors import (
    CheckpointDisagreesError,
    OutOfOrderError,
    ReplayImpossibleError,
    StateError,
)
from kafka_tx.model import QueryShape, TopicPartition
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source.questions import Answer, Question
from kafka_tx.spark.queries import foreach
from kafka_tx.transactions.ledger import ledger
from kafka_tx.transactions.ledger.ledger import Ledger
from tests.properties.people_advice import (
    Refusal,
    _begin_anew,
    _go_on_where_the_sink_is,
    _set_offsets,
    follow,
)
from tests.properties.people_operations import fail_over, replicate
from tests.properties.simulated_people import Job, World
from tests.properties.simulated_streams import Checkpoint, Stream

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
BOTH = pytest.mark.parametrize("mode", ["transactional", "opaque"])


class Two(World):
    """Topics a and b, numbered by source A; the sink is in another database."""

    def __init__(self, mode):
        super().__init__(0)
        streams = Stream(("a",), "A", mode), Stream(("b",), "B", mode)
        self.job = Job(
            "two sources", "query", streams, 0, (1, "sink"), mode == "opaque"
        )
        self.sinks = {self.job.sink}

    def read_out(self, **options):
        """Start, and run until all is read or the query ends: its error."""
        self.stop()
        self.once = {name.replace("__", "."): given for name, given in options.items()}
        return self.goes_on()

    def goes_on(self):
        for _ in range(100):
            has_ended, run = self.step(), self.run
            assert run is not None
            if has_ended or run.is_idle:
                return run.error
        raise AssertionError("never at rest")

    def dies_after_the_sink(self):
        """It wrote, and neither Spark's log nor the store have heard of it."""
        self.stop()
        before = len(self.records())
        while len(self.records()) == before:
            assert not self.step()
        self.stop()

    def replicate(self):
        replicate(self, 0)

    def fail_over(self):
        fail_over(self, 0)
        self.stop()

    def once_each(self):
        self.check_all()
        return len(self.records())


@BOTH
@pytest.mark.parametrize("word", ["store", "checkpoint"])
def test_neither_word_decides_for_one_source_alone(mode, word):
    """From an older checkpoint, with a batch that Spark did not end in the sink."""
    two = Two(mode)
    two.brokers.append(B, 1)
    two.read_out()
    older = two.checkpoint.copied()
    two.brokers.append(B, 1)
    two.read_out()
    two.brokers.append(B, 3)
    two.dies_after_the_sink()
    two.checkpoint = older

    error = two.read_out(tx__onDisagreement=word)

    assert isinstance(error, CheckpointDisagreesError)
    assert "tx.onDisagreement decides nothing" in str(error)
    assert "start with a new checkpointLocation" in str(error)
    two.new_checkpoint()
    assert two.read_out() is None
    assert two.once_each() == 5


@BOTH
def test_a_checkpoint_does_not_number_the_batches_of_others(mode):
    """The store is lost, and the last batches held records of the other source."""
    two = Two(mode)
    for partition in (A, B, B):
        two.brokers.append(partition, 3)
        two.read_out()
    two.databases[0].empty()
    two.brokers.append(A, 3)

    assert "If the query" not in str(two.read_out())
    error = two.read_out(tx__onDisagreement="checkpoint")

    assert error.fields["case"] == "empty"
    assert "tx.onDisagreement decides nothing" in str(error)
    assert len(two.records()) == 9
    _begin_anew(Refusal(two, error, str(error)))
    assert two.read_out() is None
    assert two.once_each() == 12


@BOTH
@pytest.mark.parametrize("id_", ["A", "B"])
def test_a_checkpoint_that_knows_of_one_source_decides_nothing(mode, id_, names):
    """One id is reset, and the first batch alone is in the checkpoint of its source."""
    two = Two(mode)
    for partition in (A, B):
        two.brokers.append(partition, 3)
    two.read_out()
    older = two.checkpoint.copied()
    two.brokers.append(A if id_ == "B" else B, 3)
    two.read_out()
    reset(two, id_)
    two.brokers.append(A, 3)

    error = two.read_out(tx__onDisagreement="checkpoint")
    again = two.read_out()

    assert error.fields["case"] == again.fields["case"] == "undecided"
    assert "For 'A', use `kafka-tx offsets set --numbering" in str(error)
    assert len(two.records()) == 9
    two.checkpoint = older
    _go_on_where_the_sink_is(Refusal(two, error, str(error)))
    assert two.read_out() is None
    assert two.once_each() == 12


@BOTH
@pytest.mark.parametrize("order", [("B",), ("A", "B")])
def test_one_source_does_not_begin_anew_without_the_others(mode, order, names):
    """It would read again what the sink has, under txids that are new to the sink."""
    two = Two(mode)
    for partition in (A, B, A):
        two.brokers.append(partition, 3)
        two.read_out()
    two.new_checkpoint()
    for id_ in order:
        reset(two, id_)
    two.brokers.append(B, 3)

    error = two.read_out()

    assert error.fields.get("case") == ("another" if order == ("B",) else None)
    assert len(two.records()) == 9
    _go_on_where_the_sink_is(Refusal(two, error, str(error)))
    assert two.read_out() is None
    assert two.once_each() == 12


@BOTH
def test_the_first_txid_of_a_store_that_began_anew_is_not_the_former_one(mode, names):
    """Both sources have it open, one of them with other records since."""
    two = Two(mode)
    for partition in (A, B):
        two.brokers.append(partition, 3)
    two.dies_after_the_sink()
    reset(two, "B")
    two.brokers.append(B, 1)
    two.new_checkpoint()

    error = two.read_out()

    assert error.fields["case"] == "another"
    assert len(two.records()) == 6


def reset(two, id_):
    two.stop()
    store = two.databases[0].store(id_)
    store.write(store.acquire(), {}, store.read())


@pytest.fixture
def names(monkeypatch):
    """Each numbering has a name of its own."""
    made = (f"{number:012x}" for number in itertools.count())
    monkeypatch.setattr(ledger, "new_name", lambda: next(made))


def test_a_batch_that_is_gone_is_left_by_all_sources_at_once():
    """B's topic is another one since the sink has the batch; A's part is in the log."""
    two = Two("transactional")
    two.read_out()
    two.brokers.append(A, 1)
    two.brokers.append(B, 4)
    two.dies_after_the_sink()
    two.brokers.make("b", 1)
    two.brokers.append(B, 6)

    error = two.read_out(failOnDataLoss="false")
    assert isinstance(error, ReplayImpossibleError)
    assert re.findall(r"--id (\w+)", str(error)) == ["B", "A"] * 2
    _set_offsets(Refusal(two, error, str(error)))
    assert two.read_out() is None

    assert two.once_each() == 1 + 4 + 6


@BOTH
def test_a_new_checkpoint_starts_after_each_source_has_skipped_its_part(mode, capsys):
    """As the command says: the new batch shall not have parts of the skipped one."""
    two = Two(mode)
    two.read_out()
    two.brokers.append(A, 1)
    two.brokers.append(B, 4)
    two.dies_after_the_sink()

    def state_of(id_):
        return Ledger(two.databases[0].store(id_)).load()

    def skip(id_):
        store = two.databases[0].store(id_)
        (txid,) = state_of(id_).unfinished
        _skip_in_source(store, txid, Change(yes=True), state_of)
        two.new_checkpoint()
        two.brokers.append(B, 1)

    skip("A")
    assert re.search(r"First skip txid \d+ of 'B', too", capsys.readouterr().out)
    assert two.read_out().fields["case"] == "parted"
    skip("B")
    assert two.read_out() is None

    assert two.once_each() == 1 + 4 + 2


@BOTH
def test_a_part_of_a_batch_that_another_source_has_committed_is_finished_by_a_start(
    mode,
):
    two = Two(mode)
    two.read_out()
    two.brokers.append(A, 1)
    two.brokers.append(B, 4)
    two.dies_after_the_sink()
    stores = [two.databases[0].store(id_) for id_ in "AB"]
    done, left = map(Ledger, stores)
    (txid,), (txid_left,) = done.load().unfinished, left.load().unfinished
    done.commit(done.acquire(), txid, 0)

    with pytest.raises(StateError, match="Start the query: this finishes txid"):
        _skip_in_source(stores[1], txid_left, Change(yes=True), lambda _: done.load())
    assert two.read_out() is None

    assert not left.load().unfinished
    assert two.once_each() == 1 + 4


@BOTH
def test_a_store_that_never_saw_a_finished_batch_handed_out_went_back(mode):
    """Its copy was made when the batch was planned for one source, not for all."""
    two = Two(mode)
    two.brokers.append(B, 3)
    two.read_out()
    two.brokers.append(B, 1)
    two.stop()
    while "2" not in _planned(two, "B"):
        two.step()
    copy = two.databases[0].copied()
    two.goes_on()
    two.databases[0].put_back(copy)
    two.brokers.append(A, 1)

    error = two.read_out()

    assert error.fields["case"] == "ahead"
    assert "Spark has finished transaction 2 of 'B'" in str(error)
    assert "If the query's function no longer uses for_each_transaction" in str(error)
    assert len(two.records()) == 4


def test_a_sink_may_have_what_a_store_planned_that_went_back(names):
    """It says that nobody had the batch; and its topic is another one by now."""
    two = Two("transactional")
    two.brokers.append(A, 3)
    two.brokers.append(B, 3)
    two.read_out()
    two.brokers.append(B, 1)
    two.stop()
    while "2" not in _planned(two, "B"):
        two.step()
    two.replicate()
    two.dies_after_the_sink()
    two.fail_over()
    two.brokers.make("b", 1)
    two.brokers.append(A, 2)

    error = two.read_out(failOnDataLoss="false")
    follow(two)

    assert isinstance(error, ReplayImpossibleError)
    assert "a sink may have the batch" in str(error)
    assert two.refusal
    assert len(two.records()) == 7


def test_a_former_deployment_does_not_plan_what_another_has_written():
    """Opaque, and both have logged txid 2 with other ends; the second one wrote it."""
    two = Two("opaque")
    two.read_out()
    two.brokers.append(A, 2)
    two.stop()
    while len(two.checkpoint.offsets) < 2:
        two.step()
    former, two.checkpoint = two.checkpoint, Checkpoint("another")
    two.brokers.append(A, 1)
    two.dies_after_the_sink()
    two.checkpoint = former

    error = two.read_out()

    assert error.fields["case"] == "apart"
    two.new_checkpoint()
    assert two.read_out() is None
    assert two.once_each() == 3


@BOTH
def test_an_older_checkpoint_is_told_from_an_older_store_by_what_the_store_has(mode):
    """The sink is a batch ahead of the checkpoint, whose last batch comes again."""
    two = Two(mode)
    for _ in range(2):
        two.brokers.append(A, 1)
        two.read_out()
    older = two.checkpoint.copied()
    older.commits.discard(max(older.commits))
    two.brokers.append(A, 1)
    two.dies_after_the_sink()
    two.checkpoint = older

    error = two.read_out()

    assert isinstance(error, OutOfOrderError)
    held = two.held().txid
    assert f"If it shows txid {held} of 'A', finished or not, a query goes" in str(
        error
    )
    assert str(held) in _planned(two, "A")
    two.new_checkpoint()
    assert two.read_out() is None
    assert two.once_each() == 3


def test_a_source_does_not_wait_for_one_that_is_in_another_query():
    """A batch without records of B waits for its part of an id that was renamed."""
    two = Two("transactional")
    a, b = two.job.streams
    two.brokers.append(A, 1)
    two.read_out()
    former, two.checkpoint = two.checkpoint, Checkpoint("another")
    two.job = replace(two.job, streams=(replace(a, tx_id="A2"), b), sink=(1, "another"))
    two.sinks = {two.job.sink}
    two.dies_after_the_sink()
    two.job, two.checkpoint = replace(two.job, streams=(a, b)), former
    two.brokers.append(B, 1)

    error = two.read_out()

    assert error.fields["case"] == "parted"
    assert "is one batch with 'A2'" in str(error)


def _planned(two, id_):
    texts = two.databases[0].store(id_).read()
    return {path.rpartition("/")[2] for path in texts if path.startswith("meta/")}


class Query:
    """A running query, as one that asks its planners sees it."""

    is_running = True
    tx_ids = ("A", "B")

    def __init__(self, plans):
        self._plans = plans

    def shape(self):
        return QueryShape(self.tx_ids, ("files",))

    def question(self, tx_id, batch_id):
        return Question("q", batch_id, None, SourceOffset({A: 1}))

    def other_ends(self):
        return {"files": "end"}

    def ask(self, tx_id, question):
        return Answer(1, 1, self._plans[tx_id], "n")


def plan(**plans):
    query = Query(plans)
    return foreach._Run(query, "A").tries.attempt(0).plan  # type: ignore[arg-type]


def test_the_plan_that_sinks_compare_is_of_all_sources():
    assert plan(A="a", B="b") == plan(A="a", B="b") != ""
    assert plan(A="a", B="b") != plan(A="a", B="other")
    assert plan(A="a", B="b") != plan(A="other", B="b")
    assert plan(A="", B="") == ""
