"""A start judges what is stored before it takes an id over."""

import re

import pytest

from kafka_tx.errors import (
    CheckpointDisagreesError,
    DataLossError,
    FencedError,
    OtherTopicsError,
    OwnerLivesError,
    ReplayImpossibleError,
)
from kafka_tx.model import OffsetRange, QueryShape, TopicPartition
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source.questions import Question
from kafka_tx.source.stored_batches import SILENT_MS
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.transactions.layout.txid_layout import ALIVE, CALL
from kafka_tx.transactions.ledger.manual_changes import moved
from kafka_tx.transactions.ownership.memory import MemoryStore
from tests.source.test_transactional import P0, Job, marked

U0 = TopicPartition("u", 0)


@pytest.fixture
def job(cluster, clock):
    cluster.set(0, 0, 10)
    return Job(cluster, clock)


@pytest.fixture
def owner(job):
    """The query that is at work; it has finished its first batch."""
    run = job.start()
    run.finished(run.latest(run.initial(), everything=True))
    return run


def test_a_former_topic_can_be_left_out_after_a_batch_with_both(job, owner):
    """As `docs/source.md` says, with the same checkpoint; and taken up again."""
    job.cluster.set(0, 0, 4, topic="u")
    both = job.start(subscribe="t,u")
    with_both = both.latest(marked(1, 10), everything=True)
    both.finished(with_both)
    job.cluster.set(0, 0, 5, topic="u")
    job.cluster.set(0, 0, 12)

    alone = job.start(subscribe="u")
    end = alone.latest(with_both, everything=True)
    assert alone.ranges(with_both, end) == [OffsetRange(U0, 4, 5)]
    alone.finished(end)
    assert alone.latest(end, everything=True) == end

    again = job.start(subscribe="t,u")
    last = again.latest(end, everything=True)
    assert OffsetRange(P0, 10, 12) in again.ranges(end, last)


def grow(job, end):
    job.cluster.set(0, 0, end)


def trim(job):
    job.cluster.set(0, 15, 20)


def start_behind(job):
    run = job.start()
    return run.latest(marked(0, 0), everything=True)


def start_with_a_batch_that_is_not_stored(job):
    run = job.start()
    return run.ranges(marked(0, 0), marked(1, 7))


def start_without_its_records(job):
    trim(job)
    run = job.start()
    return run.latest(run.initial(), everything=True)


def start_otherwise(**subscription):
    def start(job):
        job.cluster.set(0, 0, 4, topic="u")
        run = job.start(startingOffsets="latest", **{"subscribe": None, **subscription})
        return run.latest(run.initial(), everything=True)

    return start


def start_on_a_topic_that_does_not_exist(job):
    job.cluster.logs.clear()
    return start_otherwise(subscribe="typo")(job)


def start_with_a_checkpoint_of_the_former_topic(job):
    job.cluster.set(0, 0, 4, topic="u")
    return job.start(subscribe="u").latest(marked(1, 10), everything=True)


def start_with_a_checkpoint_without_tx_id(job):
    job.cluster.set(0, 0, 4, topic="u")
    start = SourceOffset({U0: 2})
    run = job.start(subscribe="u", tx__onDisagreement="checkpoint")
    return run.latest(start, everything=True)


def replay_a_batch_of_another_topic(job):
    job.cluster.set(0, 0, 4, topic="u")
    return job.start(subscribe="u").ranges(marked(0, 0), marked(1, 10))


@pytest.mark.parametrize(
    ("start", "refusal"),
    [
        (start_behind, CheckpointDisagreesError),
        (start_with_a_batch_that_is_not_stored, CheckpointDisagreesError),
        (start_without_its_records, DataLossError),
        (start_otherwise(subscribe="u"), OtherTopicsError),
        (start_otherwise(subscribePattern="u.*"), OtherTopicsError),
        (start_otherwise(assign='{"t": [1], "u": [0]}'), OtherTopicsError),
        (start_on_a_topic_that_does_not_exist, OtherTopicsError),
        (start_with_a_checkpoint_of_the_former_topic, OtherTopicsError),
        (start_with_a_checkpoint_without_tx_id, OtherTopicsError),
        (replay_a_batch_of_another_topic, OtherTopicsError),
    ],
)
def test_a_start_that_is_refused_fences_nobody_and_writes_nothing(
    job, owner, start, refusal
):
    store, mirrored = MemoryStore(job.name, "job"), list(job.mirrored)
    before = store.snapshot()

    with pytest.raises(refusal):
        start(job)

    assert store.snapshot() == before
    assert job.mirrored == mirrored
    grow(job, 20)
    assert owner.latest(marked(1, 10), everything=True) == marked(2, 20)


def test_a_stored_batch_that_is_gone_fences_nobody(job, owner):
    grow(job, 20)
    owner.latest(marked(1, 10), everything=True)
    trim(job)
    before = MemoryStore(job.name, "job").snapshot()

    with pytest.raises(ReplayImpossibleError):
        job.start().ranges(marked(1, 10), marked(2, 20))

    assert MemoryStore(job.name, "job").snapshot() == before


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize(
    ("begin", "end", "options"),
    [
        (marked(6, 10), marked(7, 20, epoch=8), {"tx__onDisagreement": "checkpoint"}),
        (marked(1, 10), marked(2, 20, epoch=8), {}),
    ],
)
def test_offsets_set_as_advised_after_a_store_went_back_use_no_txid_again(
    job, begin, end, options
):
    """What the refused start has made of the checkpoint is stored before that."""
    job.cluster.logs.clear()
    run = job.start(failOnDataLoss="false", **options)

    with pytest.raises(ReplayImpossibleError, match="the txid is not used again"):
        run.ranges(begin, end)

    state = job.state()
    assert moved(state, {P0: 20}, {}, 0).txid == end.mark.txid
    assert state.epoch > end.mark.epoch


def test_a_start_that_asks_where_to_begin_fences_nobody_yet(job, owner):
    job.start().initial()

    grow(job, 20)
    assert owner.latest(marked(1, 10), everything=True) == marked(2, 20)


def between(job, monkeypatch, happens, times=1):
    """Something happens between the judging of the next start and its taking over."""
    acquire, left = MemoryStore.acquire, [times]

    def late(store, *given, **more):
        if type(store) is MemoryStore and left[0]:
            left[0] -= 1
            happens()
        return acquire(store, *given, **more)

    monkeypatch.setattr(MemoryStore, "acquire", late)


def test_a_new_checkpoint_goes_on_from_where_the_owner_came_meanwhile(
    job, owner, monkeypatch
):
    def go_on():
        owner.finished(owner.latest(marked(1, 10), everything=True))
        grow(job, 30)

    grow(job, 20)
    run = job.start()
    start = run.initial()
    between(job, monkeypatch, go_on)
    end = run.latest(start, everything=True)

    assert end.positions == {P0: 30}
    assert (end.mark.txid, end.mark.epoch) == (3, 2)
    (wanted,) = run.ranges(start, end)
    assert (wanted.start, wanted.end) == (20, 30)
    with pytest.raises(FencedError):
        owner.latest(marked(2, 20), everything=True)


def test_a_checkpoint_that_the_owner_has_left_behind_meanwhile_is_refused(
    job, owner, monkeypatch
):
    grow(job, 20)
    run = job.start()
    between(
        job,
        monkeypatch,
        lambda: owner.finished(owner.latest(marked(1, 10), everything=True)),
    )

    with pytest.raises(CheckpointDisagreesError, match="behind|older than the store"):
        run.latest(marked(1, 10), everything=True)

    grow(job, 30)
    assert owner.latest(marked(2, 20), everything=True) == marked(3, 30)


def test_of_two_that_start_at_once_one_is_the_owner(job, owner, monkeypatch):
    grow(job, 20)
    other, run = job.start(), job.start()
    started = []
    between(
        job,
        monkeypatch,
        lambda: started.append(other.latest(marked(1, 10), everything=True)),
    )

    end = run.latest(marked(1, 10), everything=True)

    assert (started[0].mark.epoch, end.mark.epoch) == (2, 3)
    with pytest.raises(FencedError):
        other.latest(started[0], everything=True)


def test_an_owner_that_changes_the_store_each_time_is_not_fenced(
    job, owner, monkeypatch
):
    at = [marked(1, 10)]

    def go_on():
        grow(job, max(at[0].positions.values()) + 1)
        at[0] = owner.latest(at[0], everything=True)
        owner.finished(at[0])

    run = job.start()
    start = run.initial()
    between(job, monkeypatch, go_on, times=1_000)

    with pytest.raises(OwnerLivesError, match="is at work"):
        run.latest(start, everything=True)

    go_on()
    assert job.state().epoch == 1


# --- other topics ---


def refused(run):
    with pytest.raises(OtherTopicsError) as error:
        run.latest(run.initial(), everything=True)
    return str(error.value)


def option_in(text):
    """What the text says to start with."""
    named = re.search(r": (subscribe\w*|assign)=(.+?)\. (That|Once)", text)
    assert named
    return {"subscribe": None, named[1]: named[2]}


def read(run):
    """What the next batch reads; Spark finishes it."""
    start = run.initial()
    end = run.latest(start, everything=True)
    ranges = run.ranges(start, end)
    run.finished(end)
    return ranges


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize(
    "subscription",
    [
        {"subscribe": "u"},
        {"subscribe": None, "subscribePattern": "u.*"},
        {"subscribe": None, "assign": '{"u": [0]}'},
    ],
)
def test_who_moves_an_id_to_another_topic_and_back_does_as_the_text_says(
    job, subscription
):
    job.cluster.set(0, 0, 4, topic="u")
    grow(job, 12)
    both = option_in(refused(job.start(**subscription)))

    assert read(job.start(**both)) == [OffsetRange(P0, 10, 12), OffsetRange(U0, 0, 4)]

    job.cluster.set(0, 0, 5, topic="u")
    assert read(job.start(**subscription)) == [OffsetRange(U0, 4, 5)]
    grow(job, 13)
    assert read(job.start()) == [OffsetRange(P0, 12, 13)]


@pytest.mark.usefixtures("owner")
def test_a_query_begins_where_somebody_has_set_the_offsets_of_its_new_topic(job):
    job.cluster.set(0, 3, 9, topic="u")
    assert "`kafka-tx offsets set`" in refused(job.start(subscribe="u"))
    ledger = job.ledger()
    ledger.adopt(ledger.acquire(), moved(ledger.load(), {U0: 7}, {}, 0))

    assert read(job.start(subscribe="u")) == [OffsetRange(U0, 7, 9)]


def test_the_successor_of_a_deleted_topic_is_read_as_the_text_says(job):
    job.cluster.ids = {"t": "id-t", "u": "id-u"}
    read(job.start())
    job.cluster.logs.clear()
    job.cluster.set(0, 0, 4, topic="u")
    both = option_in(refused(job.start(subscribe="u")))
    with pytest.raises(DataLossError):
        read(job.start(**both))

    assert read(job.start(failOnDataLoss="false", **both)) == [
        OffsetRange(U0, 0, 4, "id-u")
    ]
    job.cluster.set(0, 0, 6, topic="u")
    assert read(job.start(subscribe="u")) == [OffsetRange(U0, 4, 6, "id-u")]


def test_a_pattern_that_matches_nothing_yet_starts(job):
    pattern = {"subscribe": None, "subscribePattern": "u.*"}
    for _ in range(2):
        run = job.start(**pattern)
        start = run.initial()
        assert run.latest(start, everything=True) is start
    job.cluster.set(0, 0, 4, topic="u")

    assert read(job.start(**pattern)) == [OffsetRange(U0, 0, 4)]


@pytest.mark.parametrize("mode", ["transactional", "opaque"])
def test_two_sources_with_one_id_are_told_so(job, mode):
    job.cluster.set(0, 0, 4, topic="u")
    first, second = (job.start(subscribe=name, tx__mode=mode) for name in "tu")
    start = first.initial()

    text = refused(second)

    assert "this query opens the id twice" in text
    assert "another run uses this id" in text
    assert first.latest(start, everything=True).positions == {P0: 10}


@pytest.mark.parametrize("asks", ["latest", "ranges"])
def test_a_planned_batch_of_a_topic_that_is_left_out_is_neither_lost_nor_taken(
    job, asks
):
    job.cluster.set(0, 0, 4, topic="u")
    owner = job.start(subscribe="t,u")
    begin = owner.initial()
    end = owner.latest(begin, everything=True)
    before = MemoryStore(job.name, "job").snapshot()
    other = job.start(subscribe="u")

    if asks == "latest":
        text = refused(other)
    else:
        with pytest.raises(OtherTopicsError) as error:
            other.ranges(begin, end)
        text = str(error.value)

    assert "opens the id twice" in text
    assert "offsets set" not in text
    assert MemoryStore(job.name, "job").snapshot() == before
    owner.finished(end)
    assert job.state().txid == 1


def test_a_planned_batch_of_a_topic_that_is_left_out_is_read_as_the_text_says(job):
    job.cluster.set(0, 0, 4, topic="u")
    former = job.start(subscribe="t,u")
    former.latest(former.initial(), everything=True)
    both = option_in(refused(job.start(subscribe="u")))

    assert read(job.start(**both)) == [OffsetRange(P0, 0, 10), OffsetRange(U0, 0, 4)]
    job.cluster.set(0, 0, 5, topic="u")
    assert read(job.start(subscribe="u")) == [OffsetRange(U0, 4, 5)]


def test_a_store_that_went_back_before_the_topics_changed_is_told_as_that(job, owner):
    kept = MemoryStore(job.name, "job")
    copy = kept.snapshot()
    job.cluster.set(0, 0, 4, topic="u")
    read(job.start(subscribe="t,u"))
    job.cluster.set(0, 0, 5, topic="u")
    run = job.start(subscribe="u")
    end = run.latest(run.initial(), everything=True)
    run.finished(end)
    kept.restore(copy)

    with pytest.raises(CheckpointDisagreesError, match="store is older"):
        job.start(subscribe="u").latest(end, everything=True)


# --- bounded runs ---


@pytest.fixture
def living(clock, monkeypatch):
    """Planners whose heart beats while others sleep."""
    sleep_ms = clock.sleep_ms
    planners: list[TransactionalMicroBatches] = []

    def sleep(duration_ms):
        sleep_ms(duration_ms)
        for planner in planners:
            planner.answer()

    monkeypatch.setattr(clock, "sleep_ms", sleep)
    return planners


def bounded(job, **options):
    run = job.start(**options)
    run.prepare_available_now()
    return run


def test_of_bounded_runs_that_overlap_the_first_one_gets_through(job, living):
    """As of a schedule whose interval is shorter than a run."""
    start = None
    for finished in range(5):
        run = bounded(job)
        start = start or run.initial()
        end = run.latest(start, everything=True)
        living[:] = [run]
        for _ in range(3):
            with pytest.raises(OwnerLivesError, match="KAFKA_TX_OWNER_LIVES.*at work"):
                bounded(job).latest(start, everything=True)
        run.finished(end)
        assert run.latest(end, everything=True) is end
        run.let_go()
        living.clear()
        assert (job.state().txid, job.state().epoch) == (finished + 1, finished + 1)
        start = end
        grow(job, 20 + finished)


def test_a_bounded_run_that_has_read_all_lives_on_for_a_batch_without_records(
    job, living
):
    """Late windows: Spark runs such a batch after the last records."""
    run = bounded(job)
    end = run.latest(run.initial(), everything=True)
    run.finished(end)
    assert run.latest(end, everything=True) is end
    run.has_read_all()
    assert ALIVE not in MemoryStore(job.name, "job").read()

    run.number(Question("query", 1, end, end))

    living.append(run)
    grow(job, 20)
    with pytest.raises(OwnerLivesError):
        bounded(job).latest(end, everything=True)


def test_a_source_that_has_read_all_lives_on_while_others_of_its_query_read(job):
    run = bounded(job)
    start = run.initial()
    end = run.latest(start, everything=True)
    two = QueryShape(("job",), ("files",))
    run.number(Question("query", 0, start, end, two))
    run.finished(end)
    assert run.latest(end, everything=True) is end

    run.has_read_all()
    assert ALIVE in MemoryStore(job.name, "job").read()

    run.let_go()
    assert ALIVE not in MemoryStore(job.name, "job").read()


def test_an_owner_that_has_nothing_to_do_reads_now_and_then_and_writes_nothing(
    job, clock, owner, monkeypatch
):
    store, reads = MemoryStore(job.name, "job"), []
    before, read, get = store.snapshot(), MemoryStore.read, MemoryStore.get

    def counted(method):
        def call(store, *at):
            reads.append(at)
            return method(store, *at)

        return call

    monkeypatch.setattr(MemoryStore, "read", counted(read))
    monkeypatch.setattr(MemoryStore, "get", counted(get))
    for _ in range(60):
        clock.sleep_ms(1_000)
        owner.latest(marked(1, 10), everything=True)
        owner.answer()

    assert store.snapshot() == before
    assert len(reads) <= 16  # every four seconds; the first look asks for the epoch


def test_the_next_look_of_an_idle_owner_answers(job, clock, owner, monkeypatch):
    sleep_ms, run = clock.sleep_ms, bounded(job)

    def sleep(duration_ms):
        sleep_ms(duration_ms)
        owner.latest(marked(1, 10), everything=True)

    monkeypatch.setattr(clock, "sleep_ms", sleep)
    with pytest.raises(OwnerLivesError):
        run.latest(marked(1, 10), everything=True)

    assert CALL not in MemoryStore(job.name, "job").read()


def test_two_bounded_runs_that_ask_at_once_are_both_answered(
    job, clock, owner, living, monkeypatch
):
    living.append(owner)
    sleep_ms, others = clock.sleep_ms, [bounded(job)]

    def sleep(duration_ms):
        if others:
            with pytest.raises(OwnerLivesError):
                others.pop().latest(marked(1, 10), everything=True)
        sleep_ms(duration_ms)

    monkeypatch.setattr(clock, "sleep_ms", sleep)
    with pytest.raises(OwnerLivesError):
        bounded(job).latest(marked(1, 10), everything=True)

    assert job.state().epoch == 1


def test_an_answer_that_comes_too_late_is_still_heard(job, owner, living, monkeypatch):
    """A frozen owner goes on after the last look at its signs."""

    def thaw():
        owner.answer()
        living.append(owner)

    grow(job, 20)
    between(job, monkeypatch, thaw)
    with pytest.raises(OwnerLivesError):
        bounded(job).latest(marked(1, 10), everything=True)

    assert owner.latest(marked(1, 10), everything=True) == marked(2, 20)


def test_a_frozen_owner_is_replaced_and_its_answer_refused(job, owner):
    grow(job, 20)
    run = bounded(job)
    run.latest(marked(1, 10), everything=True)
    store = MemoryStore(job.name, "job")
    before = store.snapshot()

    store.write(2, {CALL: before.values[ALIVE]})
    with pytest.raises(FencedError):
        owner.answer()

    assert CALL not in before.values
    assert store.get(ALIVE) == before.values[ALIVE]


def test_an_owner_that_comes_while_a_start_asks_lives(job, owner, monkeypatch):
    grow(job, 20)
    write, other = MemoryStore.write, [job.start()]

    def late(store, epoch, put, *given, **more):
        if CALL in put and other:
            other.pop().latest(marked(1, 10), everything=True)
        return write(store, epoch, put, *given, **more)

    monkeypatch.setattr(MemoryStore, "write", late)
    with pytest.raises(OwnerLivesError):
        bounded(job).latest(marked(1, 10), everything=True)


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_bounded_run_waits_only_for_one_that_may_live(job, clock, owner, ends_well):
    if ends_well:
        owner.let_go()
    grow(job, 20)
    run, began_ms = bounded(job), clock.monotonic_ms()

    assert run.latest(marked(1, 10), everything=True).positions == {P0: 20}

    waited_ms = clock.monotonic_ms() - began_ms
    assert waited_ms < 100 if ends_well else SILENT_MS <= waited_ms < SILENT_MS + 1_000


def test_an_owner_that_lets_go_while_a_bounded_run_waits_is_followed_at_once(
    job, clock, owner, monkeypatch
):
    grow(job, 20)
    run, began_ms, sleep_ms = bounded(job), clock.monotonic_ms(), clock.sleep_ms
    let_go: list[None] = []

    def sleep(duration_ms):
        sleep_ms(duration_ms)
        if not let_go:
            let_go.append(owner.let_go())

    monkeypatch.setattr(clock, "sleep_ms", sleep)

    assert run.latest(marked(1, 10), everything=True).positions == {P0: 20}
    assert clock.monotonic_ms() - began_ms < 1_000


@pytest.mark.parametrize(
    ("word", "is_bounded", "lives"),
    [("fence", True, False), ("refuse", False, True), (None, False, False)],
)
def test_an_option_says_what_becomes_of_an_owner_that_lives(
    job, owner, living, word, is_bounded, lives
):
    living.append(owner)
    grow(job, 20)
    options = {"tx__ifOwned": word} if word else {}
    run = bounded(job, **options) if is_bounded else job.start(**options)

    if lives:
        with pytest.raises(OwnerLivesError):
            run.latest(marked(1, 10), everything=True)
    else:
        run.latest(marked(1, 10), everything=True)
        with pytest.raises(FencedError):
            owner.latest(marked(1, 10), everything=True)


def test_of_two_bounded_runs_after_a_crash_one_is_refused(
    job, owner, living, monkeypatch
):
    grow(job, 20)
    one, other = bounded(job), bounded(job)

    def start_one():
        one.latest(marked(1, 10), everything=True)
        living.append(one)

    between(job, monkeypatch, start_one)
    with pytest.raises(OwnerLivesError):
        other.latest(marked(1, 10), everything=True)

    assert one.latest(marked(2, 20, epoch=2), everything=True).positions == {P0: 20}
