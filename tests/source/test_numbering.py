"""Which transaction a batch of Spark is: what the user's process asks the planner."""

from dataclasses import replace

import pytest

from kafka_tx.errors import CheckpointDisagreesError, ConfigError, FencedError
from kafka_tx.model import OffsetRange
from kafka_tx.options.source import parse_source
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source.microbatches import MicroBatches
from kafka_tx.source.questions import Answer, Question, moves
from tests.source.test_transactional import P0, Job, marked


@pytest.fixture
def job(cluster, clock):
    cluster.set(0, 0, 10)
    return Job(cluster, clock)


@pytest.fixture
def run(job):
    return job.start()


@pytest.fixture
def first(run):
    """The end of a first batch, which has records."""
    return run.latest(run.initial(), everything=True)


def asked(batch_id, start, end, query="q"):
    return Question(query, batch_id, start, end)


def txid(run, *question, **named):
    return run.number(asked(*question, **named)).txid


def test_questions_and_answers_travel_as_offsets():
    for start in (None, marked(1, 10)):
        question = asked(3, start, marked(2, 20))
        assert Question.from_json(question.to_json()) == question
    assert Question.from_json(marked(1, 10).to_json()) is None
    assert Question.from_json({"t": {"0": 5}}) is None
    assert Answer.from_json(Answer(4, 2).to_json()) == Answer(4, 2)


def test_a_batch_with_records_has_the_txid_of_its_end(run, first):
    assert run.number(asked(0, None, first)) == Answer(1, 1)


def test_a_later_run_tells_its_own_epoch(job, first):
    assert job.start().number(asked(0, None, first)) == Answer(1, 2)


def test_an_overtaken_planner_tells_nothing(job, run, first):
    other = job.start()
    other.latest(other.initial(), everything=True)

    with pytest.raises(FencedError):
        run.number(asked(0, None, first))


def test_a_batch_without_records_gets_a_txid_of_its_own(job, run, first):
    assert txid(run, 1, first, first) == 2
    assert job.state().planned[2].ends() == {P0: 10}
    assert txid(run, 1, first, first) == 2
    job.cluster.set(0, 0, 15)

    assert run.latest(first, everything=True) == marked(3, 15)
    assert (job.state().txid, job.state().committed.carried) == (2, 1)


def test_batches_without_records_follow_each_other(job, run, first):
    assert txid(run, 1, first, first) == 2
    assert run.latest(first, everything=True) is first
    assert txid(run, 2, first, first) == 3
    assert run.latest(first, everything=True) is first

    assert (job.state().txid, job.state().committed.carried) == (3, 1)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_replay_of_one_is_known_by_its_name(job, run, first, is_committed):
    txid(run, 1, first, first)
    if is_committed:
        run.latest(first, everything=True)

    again = job.start()

    assert again.number(asked(1, first, first)) == Answer(2, 2)


def test_a_replay_that_was_never_numbered_is_numbered_now(job, run, first):
    run.latest(first, everything=True)

    assert job.start().number(asked(1, first, first)) == Answer(2, 2)


def test_a_batch_without_records_may_be_the_first_of_a_checkpoint(job, run):
    start = run.initial()

    assert txid(run, 0, None, start) == 1
    assert run.latest(start, everything=True) == marked(2, 10)


def test_the_first_one_is_the_same_for_those_who_do_not_know_the_query(job, run):
    start = run.initial()
    assert txid(run, 0, None, start, query="connect:0@1") == 1

    again = job.start()

    assert again.number(asked(0, None, start)) == Answer(1, 2)


def test_a_stored_one_of_another_numbering_is_another(job, run):
    """Two checkpoints may give it the same name; the sink has that of the former."""
    start = run.initial()
    assert txid(run, 0, None, start) == 1
    former = replace(start, mark=replace(start.mark, numbering="former"))

    with pytest.raises(
        CheckpointDisagreesError, match="the numbering of the checkpoint"
    ):
        job.start().number(asked(0, None, former))

    once = job.start(tx__onDisagreement="checkpoint")
    assert once.number(asked(0, None, former)).numbering == "former"


def test_a_first_one_of_version_0_2_0_is_known_by_its_query(job, run):
    start = run.initial()
    run.number(asked(0, None, start))
    batch = replace(job.state().planned[1], spark_batch="q/0")
    job.ledger().plan(1, batch, replace=True)

    assert job.start().number(asked(0, None, start)) == Answer(1, 2)


def test_a_new_checkpoint_goes_on_above_an_unfinished_one(job, run, first):
    txid(run, 1, first, first)

    again = job.start()
    start = again.initial()

    assert start == marked(1, 10, epoch=2, start=True)
    assert txid(again, 0, None, start, query="another") == 3
    job.cluster.set(0, 0, 15)
    assert again.latest(start, everything=True) == marked(4, 15, epoch=2)


def test_records_that_were_never_read_are_not_numbered_twice(job, run, first):
    """Transactional: the txid after has its records already; what asks is older."""
    job.cluster.set(0, 0, 15)
    run.latest(first, everything=True)

    with pytest.raises(CheckpointDisagreesError):
        run.number(asked(1, first, first))


def test_opaque_gives_the_txid_of_what_was_never_read(job):
    run = job.start(tx__mode="opaque")
    first = run.latest(run.initial(), everything=True)
    job.cluster.set(0, 0, 15)
    run.latest(first, everything=True)

    assert txid(run, 1, first, first) == 2
    assert run.latest(first, everything=True) == marked(3, 15)


@pytest.mark.parametrize(
    ("start", "txid_of_next"),
    [(marked(1, 10), 3), (marked(1, 10, epoch=2), 2), (None, 2)],
    ids=["its own", "another one", "a new one"],
)
def test_what_stands_in_for_records_is_done_with_in_its_own_checkpoint(
    job, start, txid_of_next
):
    """Elsewhere sinks may have the records: they take them back."""
    run = job.start(tx__mode="opaque")
    first = run.latest(run.initial(), everything=True)
    job.cluster.set(0, 0, 15)
    run.latest(first, everything=True)
    assert txid(run, 1, first, first) == 2

    again = job.start(tx__mode="opaque")
    end = again.latest(start or again.initial(), everything=True)

    assert end == marked(txid_of_next, 15, epoch=end.mark.epoch)


def test_a_batch_logged_before_tx_id_is_the_first_transaction(job):
    run = job.start()
    start, end = (
        SourceOffset(replace(marked(0, n), mark=None).positions) for n in (4, 9)
    )

    assert txid(run, 7, start, end) == 1
    assert job.start().number(asked(7, start, end)) == Answer(1, 2)
    job.cluster.set(0, 0, 15)
    again = job.start()
    assert again.latest(end, everything=True) == marked(2, 15, epoch=3)
    assert txid(again, 7, start, end) == 1


def test_the_first_batch_of_a_checkpoint_logged_before_tx_id_is_the_first_too(job):
    """Unfinished, and dying once more: Spark asks where the query begins each time."""
    end = SourceOffset({P0: 9})

    for epoch in (1, 2):
        again = job.start()
        assert again.ranges(again.initial(), end) == [OffsetRange(P0, 0, 9)]
        assert again.number(asked(0, None, end)) == Answer(1, epoch)
    job.cluster.set(0, 0, 15)
    again = job.start()
    assert again.latest(end, everything=True) == marked(2, 15, epoch=3)


def test_without_tx_id_there_are_no_transactions(cluster, clock):
    options = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
    batches = MicroBatches(parse_source(options, streaming=True), cluster, clock)

    with pytest.raises(ConfigError, match="no tx.id"):
        batches.number(asked(0, None, SourceOffset({P0: 3})))


def test_another_plan_of_the_same_txid_is_another_batch():
    assert moves(marked(3, 3, epoch=3), marked(3, 2, epoch=6))
    assert moves(marked(3, 3, epoch=3), marked(3, 3, epoch=6))
    assert not moves(marked(3, 3, epoch=3), marked(3, 3, epoch=3))


def test_an_empty_first_batch_ahead_of_the_store_is_a_contradiction(run, first):
    run.finished(first)

    with pytest.raises(CheckpointDisagreesError) as caught:
        txid(run, 0, None, marked(9, 40, start=True), query="put back")

    assert caught.value.fields["case"] == "ahead"


# --- opaque: checkpoints and stores that were put back ---


@pytest.fixture
def opaque(job):
    """A run whose first batch is committed, and where it ended."""
    run = job.start(tx__mode="opaque")
    first = run.latest(run.initial(), everything=True)
    run.finished(first)
    return run, first


def test_a_txid_that_was_planned_anew_is_read_where_the_store_decides(job):
    """The checkpoint has finished it with other records, and nobody committed that."""
    run = job.start(tx__mode="opaque")
    finished = run.latest(run.initial(), everything=True)
    another = job.start(tx__mode="opaque")
    another.latest(another.initial(), everything=True)
    job.cluster.set(0, 0, 15)

    again = job.start(tx__mode="opaque", tx__onDisagreement="store")
    end = again.latest(finished, everything=True)

    assert end == marked(1, 15, epoch=3)
    assert again.ranges(finished, end) == [OffsetRange(P0, 0, 15)]
    assert again.number(asked(1, finished, end)) == Answer(1, 3)


def test_what_stands_in_for_records_is_not_committed_by_a_checkpoint_elsewhere(
    job, opaque
):
    """A sink may have the records: their txid must come again, not the next one."""
    run, first = opaque
    job.cluster.set(0, 0, 15)
    with_records = run.latest(first, everything=True)
    assert txid(job.start(tx__mode="opaque"), 1, first, first) == 2

    again = job.start(tx__mode="opaque", tx__onDisagreement="store")

    assert again.latest(with_records, everything=True) == marked(2, 15, epoch=3)
    assert job.state().txid == 1


def test_what_stands_in_for_records_is_not_committed_for_another_query(job, opaque):
    """Not even by a batch without records of one that is at the same place."""
    run, first = opaque
    job.cluster.set(0, 0, 15)
    run.latest(first, everything=True)
    assert txid(job.start(tx__mode="opaque"), 1, first, first) == 2

    again = job.start(tx__mode="opaque")

    assert txid(again, 1, first, first, query="another") == 2
    assert job.state().txid == 1
    assert again.latest(first, everything=True) == marked(3, 15, epoch=3)


def test_its_own_checkpoint_commits_what_stands_in_for_records(job, opaque):
    run, first = opaque
    job.cluster.set(0, 0, 15)
    run.latest(first, everything=True)
    assert txid(job.start(tx__mode="opaque"), 1, first, first) == 2

    again = job.start(tx__mode="opaque")

    assert txid(again, 2, first, first) == 3
    assert job.state().txid == 2


def test_a_batch_in_place_of_the_logged_one_is_judged_each_time(job, opaque):
    """The store decides which it is, and retention what is left of it."""
    run, first = opaque
    job.cluster.set(0, 0, 20)
    run.latest(first, everything=True)
    logged = marked(1, 3, epoch=1), marked(2, 7, epoch=1)  # of a copy that was used
    again = job.start(tx__mode="opaque", tx__onDisagreement="store")

    assert again.ranges(*logged) == [OffsetRange(P0, 10, 20)]
    job.cluster.set(0, 15, 30)

    assert again.ranges(*logged) == [OffsetRange(P0, 15, 20)]
    end = again.latest(logged[1], everything=True)
    assert end == marked(2, 30, epoch=2)
    assert again.ranges(logged[1], end) == [OffsetRange(P0, 15, 30)]
