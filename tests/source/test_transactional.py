"""Micro-batches as durable transactions: replays, restarts, contradictions."""

import uuid
from typing import Any

import pytest

from kafka_tx.errors import (
    BatchIdsAgainError,
    BrokerUnavailableError,
    CheckpointDisagreesError,
    DataLossError,
    FencedError,
    ReplayImpossibleError,
    StateUnavailableError,
)
from kafka_tx.model import BatchMetadata, LogPosition, OffsetRange, TopicPartition
from kafka_tx.options.source import parse_source
from kafka_tx.planning.deleted_topics import CONFIRMED_AFTER_MS
from kafka_tx.planning.offset_json import SourceOffset, TransactionMark
from kafka_tx.source.questions import Question
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.testing import CrashingStore
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ledger.manual_changes import (
    beside_unfinished,
    forgotten,
    moved,
)
from kafka_tx.transactions.ownership.memory import MemoryStore
from kafka_tx.transactions.ownership.retry_policy import RetryingStore, RetryPolicy
from tests.source.conftest import NUMBERING, mirror_into, offsets_in

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Job:
    """Runs of one query on one store; ``start()`` is what a restart makes."""

    def __init__(self, cluster, clock):
        self.cluster, self.clock = cluster, clock
        self.name = uuid.uuid4().hex
        self.id = "job"
        self.mirrored = []
        self.of_group = {}

    def start(self, **options):
        named = {name.replace("__", "."): value for name, value in options.items()}
        given = {
            "kafka.bootstrap.servers": "b:9092",
            "subscribe": "t",
            "startingOffsets": "earliest",
            "tx.id": self.id,
            "tx.sinkBatchIds": "ignored",
        }
        given = {n: v for n, v in (given | named).items() if v is not None}
        config = parse_source(given, streaming=True)
        assert config.transactions is not None
        return TransactionalMicroBatches(
            config,
            config.transactions,
            self.cluster,
            self.clock,
            self.ledger(),
            mirror=mirror_into(self.mirrored),
            committed=lambda _: self.of_group,
        )

    def ledger(self):
        return Ledger(MemoryStore(self.name, self.id))

    def state(self):
        return self.ledger().load()


@pytest.fixture
def job(cluster, clock):
    cluster.set(0, 0, 10)
    return Job(cluster, clock)


def marked(txid, *offsets, epoch=1, start=False):
    positions = {TopicPartition("t", n): o for n, o in enumerate(offsets)}
    mark = TransactionMark("job", txid, epoch, start, numbering=NUMBERING)
    return SourceOffset(positions, mark)


def test_transactions_are_numbered_from_one(job):
    run = job.start()

    start = run.initial()
    first = run.latest(start, everything=True)
    job.cluster.set(0, 0, 15)
    second = run.latest(first, everything=True)

    began = marked(0, 0, start=True)
    assert [start, first, second] == [began, marked(1, 10), marked(2, 15)]


def test_a_query_that_rests_asks_for_ends_only_and_sees_what_is_new(job, monkeypatch):
    asked, bounds = [], job.cluster.bounds
    ends = job.cluster.ends

    def whole(partitions):
        asked.append("whole")
        return bounds(partitions)

    def of_ends(partitions):
        asked.append("ends")
        return {P0: (bounds([P0])[P0].end, None)}

    run = job.start()
    first = run.latest(run.initial(), everything=True)
    for _ in range(3):  # it commits, it begins to rest, it owns the id by then
        assert run.latest(first, everything=True) is first
    monkeypatch.setattr(job.cluster, "bounds", whole)
    monkeypatch.setattr(job.cluster, "ends", of_ends)
    for _ in range(2):
        assert run.latest(first, everything=True) is first
    assert asked == ["ends", "ends"]

    monkeypatch.setattr(job.cluster, "ends", ends)
    job.cluster.set(0, 0, 15)
    assert run.latest(first, everything=True) == marked(2, 15)


def test_a_query_that_rests_notices_another_owner(job):
    run = job.start()
    first = run.latest(run.initial(), everything=True)
    for _ in range(4):
        run.latest(first, everything=True)
    other = job.start()
    other.latest(first, everything=True)

    job.clock.sleep_ms(5_000)

    with pytest.raises(FencedError):
        run.latest(first, everything=True)


def test_the_word_for_an_emptied_sink_names_its_source(job):
    """Each source of a query has its own: their stores count runs apart."""
    run = job.start()
    run.latest(run.latest(run.initial(), everything=True), everything=True)
    again = job.start(tx__sinkBatchIds="forgotten@7")  # of another source

    with pytest.raises(BatchIdsAgainError) as error:
        again.latest(again.initial(), everything=True)

    assert "tx.sinkBatchIds=forgotten@1 of the source 'job'" in str(error.value)
    emptied = job.start(tx__sinkBatchIds="forgotten@1")
    emptied.latest(emptied.initial(), everything=True)


def test_a_checkpoint_that_never_asked_finds_its_batch_done_by_another_one(job):
    """The sink has the txid with the same records, and leaves it out."""
    run = job.start(tx__sinkBatchIds=None)
    start = run.initial()
    first = run.latest(start, everything=True)
    run.number(Question("former", 0, start, first))
    run.finished(first)
    job.cluster.set(0, 0, 15)
    never = job.start(tx__sinkBatchIds=None)
    begin = never.initial()
    logged = never.latest(begin, everything=True)
    other = job.start(tx__sinkBatchIds=None)
    again = other.latest(other.initial(), everything=True)
    assert other.number(Question("other", 0, begin, again)).txid == 2
    other.finished(again)

    back = job.start(tx__sinkBatchIds=None)

    assert back.ranges(begin, logged) == [OffsetRange(P0, 10, 15)]
    assert back.number(Question("never", 0, begin, logged)).txid == 2
    job.cluster.set(0, 0, 20)
    assert back.latest(logged, everything=True) == marked(3, 20, epoch=4)


def test_ranges_are_stored_before_spark_hears_of_them(job):
    run = job.start()

    run.latest(run.initial(), everything=True)

    assert job.state().planned[1].ranges == (OffsetRange(P0, 0, 10),)


def test_asking_for_the_next_batch_commits_the_one_before(job):
    run = job.start()
    first = run.latest(run.initial(), everything=True)
    assert job.state().txid == 0

    run.latest(first, everything=True)

    assert job.state().txid == 1
    assert job.mirrored == [{P0: 10}]


def test_a_batch_costs_one_write_and_an_idle_planner_none(job, monkeypatch):
    writes = []
    write = MemoryStore.write

    def counted(self, epoch, put, delete=(), *, expect=None):
        writes.append(sorted(put))
        write(self, epoch, put, delete, expect=expect)

    run = job.start()
    first = run.latest(run.initial(), everything=True)
    job.cluster.set(0, 0, 20)
    monkeypatch.setattr(MemoryStore, "write", counted)

    second = run.latest(first, everything=True)

    assert len(writes) == 1
    assert (job.state().txid, [*job.state().unfinished]) == (1, [2])
    run.latest(second, everything=True)
    assert len(writes) == 2
    assert run.latest(second, everything=True) is second
    assert (len(writes), job.state().txid) == (2, 2)


def test_a_batch_is_committed_though_the_next_one_cannot_be_planned(job, monkeypatch):
    run = job.start()
    first = run.latest(run.initial(), everything=True)

    def away(*_args, **_named):
        raise BrokerUnavailableError("no broker answers")

    monkeypatch.setattr(run, "plan", away)

    with pytest.raises(BrokerUnavailableError):
        run.latest(first, everything=True)

    assert job.state().txid == 1
    assert job.mirrored == [{P0: 10}]


def test_an_owner_that_was_fenced_says_so_also_if_it_cannot_plan(job, monkeypatch):
    run = job.start()
    first = run.latest(run.initial(), everything=True)
    job.ledger().acquire()

    def lost(*_args, **_named):
        raise DataLossError("PARTITION_OFFSET_CHANGED", "records are gone", "")

    monkeypatch.setattr(run, "plan", lost)

    with pytest.raises(FencedError):
        run.latest(first, everything=True)


@pytest.mark.parametrize("write", [3, 4])
def test_what_was_committed_is_mirrored_once_though_its_answer_was_lost(job, write):
    lost = StateUnavailableError("no answer came", store="memory")
    store = CrashingStore(
        MemoryStore(job.name, "job"), at_write=write, landed=True, error=lost
    )
    job.ledger = lambda: Ledger(RetryingStore(store, RetryPolicy(job.clock)))
    run = job.start()  # writes: where it begins, the plan, the commit

    first = run.latest(run.initial(), everything=True)
    run.latest(first, everything=True)

    assert job.state().txid == 1
    assert job.mirrored == [{P0: 10}]


def test_what_the_listener_committed_is_not_committed_again(job):
    run = job.start()
    first = run.latest(run.initial(), everything=True)
    listener = Ledger(MemoryStore(job.name, "job"))
    assert listener.commit(1, 1, 123)

    assert run.latest(first, everything=True) is first
    assert job.state().committed.completed_ms == 123


def test_nothing_new_makes_no_transaction(job):
    run = job.start()
    first = run.latest(run.initial(), everything=True)

    assert run.latest(first, everything=True) is first
    assert job.state().unfinished == {}


def test_the_store_goes_before_starting_offsets(job):
    run = job.start()
    run.finished(run.latest(run.initial(), everything=True))

    assert job.start(startingOffsets="latest").initial() == marked(
        1, 10, epoch=2, start=True
    )


def test_a_new_checkpoint_replays_an_unfinished_transaction_exactly(job):
    run = job.start()
    run.latest(run.initial(), everything=True)
    job.cluster.set(0, 0, 99)

    again = job.start()
    start = again.initial()
    end = again.latest(start, everything=True)

    assert (start, end) == (marked(0, 0, epoch=2, start=True), marked(1, 10, epoch=2))
    assert again.ranges(start, end) == [OffsetRange(P0, 0, 10)]


def test_a_replay_never_reads_a_partition_added_later(job):
    run = job.start()
    run.latest(run.initial(), everything=True)
    job.cluster.set(1, 0, 50)

    again = job.start()
    start = again.initial()

    assert again.ranges(start, again.latest(start, everything=True)) == [
        OffsetRange(P0, 0, 10)
    ]


def test_opaque_plans_an_unfinished_transaction_anew(job):
    run = job.start(tx__mode="opaque")
    run.latest(run.initial(), everything=True)
    job.cluster.set(0, 0, 99)

    again = job.start(tx__mode="opaque")
    start = again.initial()
    end = again.latest(start, everything=True)

    assert end == marked(1, 99, epoch=2)
    assert again.ranges(start, end) == [OffsetRange(P0, 0, 99)]


def test_a_logged_batch_is_replayed_from_the_store(job):
    run = job.start()
    start = run.initial()
    end = run.latest(start, everything=True)
    job.cluster.set(0, 0, 99)

    again = job.start()

    assert again.ranges(start, end) == [OffsetRange(P0, 0, 10)]
    again.latest(end, everything=True)
    assert job.state().txid == 1


def test_the_batch_committed_last_can_be_replayed_once_more(job):
    run = job.start()
    start = run.initial()
    end = run.latest(start, everything=True)
    run.finished(end)

    again = job.start()

    assert again.ranges(start, end) == [OffsetRange(P0, 0, 10)]
    again.finished(end)
    assert job.state().txid == 1


def test_a_checkpoint_one_step_ahead_finishes_the_transaction(job):
    run = job.start()
    end = run.latest(run.initial(), everything=True)

    again = job.start()

    assert again.latest(end, everything=True) is end
    assert job.state().txid == 1


def test_a_transactional_replay_without_its_records_stops(job):
    run = job.start()
    start = run.initial()
    end = run.latest(start, everything=True)
    job.cluster.set(0, 4, 99)

    with pytest.raises(
        ReplayImpossibleError, match=r"t-0 \[0, 10\).*\[4, 99\)"
    ) as error:
        job.start().ranges(start, end)
    assert error.value.fields["wanted"] == (0, 10)
    assert job.state().txid == 0


def test_an_opaque_replay_reads_what_is_left_and_counts_the_rest(job):
    run = job.start(tx__mode="opaque")
    start = run.initial()
    end = run.latest(start, everything=True)
    job.cluster.set(0, 4, 99)

    again = job.start(tx__mode="opaque")

    assert again.ranges(start, end) == [OffsetRange(P0, 4, 10)]
    assert again.skipped == {(P0, "retention"): 4}
    stored = job.state().planned[1]
    assert (stored.skipped, stored.attempts) == ({(P0, "retention"): 4}, 2)


def test_what_was_skipped_is_the_same_however_often_the_batch_is_tried(job):
    job.cluster.set(0, 4, 99)
    run = job.start(tx__mode="opaque", failOnDataLoss="false")
    start = run.initial()
    job.cluster.set(0, 6, 99)
    end = run.latest(start, everything=True)  # the first try: Spark does not log it

    for begin, attempts in ((6, 2), (9, 3)):
        job.cluster.set(0, begin, 99)
        run = job.start(tx__mode="opaque", failOnDataLoss="false")
        end = run.latest(start, everything=True)
        run.ranges(start, end)
        stored = job.state().planned[1]
        assert stored.skipped == {(P0, "retention"): begin - 4}
        assert stored.attempts == attempts

    run.finished(end)
    (held,) = job.state().commit_stats
    assert (held.txid, held.attempts) == (1, 3)
    assert held.skipped == {(P0, "retention"): 5}


@pytest.mark.parametrize(
    ("log", "skipped"), [((13, 20), ("retention", 3)), ((0, 6), ("cut", 4))]
)
def test_what_a_batch_skipped_is_known_again_where_only_sparks_log_has_the_batch(
    job, log, skipped
):
    options = {"tx__mode": "opaque", "failOnDataLoss": "false"}
    run, kept = job.start(**options), MemoryStore(job.name, job.id)
    first = run.latest(run.initial(), everything=True)
    run.finished(first)
    copy = kept.snapshot()
    job.cluster.set(0, *log)
    second = run.latest(first, everything=True)

    kept.restore(copy)
    job.start(**options).ranges(first, second)

    reason, count = skipped
    assert job.state().planned[2].skipped == {(P0, reason): count}


@pytest.mark.parametrize("mode", ["transactional", "opaque"])
def test_a_replay_counts_its_tries(job, mode):
    run = job.start(tx__mode=mode)
    start = run.initial()
    end = run.latest(start, everything=True)
    run.ranges(start, end)
    assert job.state().planned[1].attempts == 1

    for attempts in (2, 3):
        again = job.start(tx__mode=mode)
        for _ in range(2):
            assert again.ranges(start, end) == [OffsetRange(P0, 0, 10)]
        assert job.state().planned[1].attempts == attempts


def test_what_another_checkpoint_replayed_in_part_is_not_what_this_one_wrote(job):
    """Sinks may hold the whole: the part must not be committed in its place."""
    run = job.start(tx__mode="opaque")
    first = run.latest(run.initial(), everything=True)
    job.cluster.set(0, 0, 20)
    second = run.latest(first, everything=True)
    job.cluster.set(0, 0, 14)
    other = job.start(tx__mode="opaque", tx__onDisagreement="store")
    elsewhere = marked(0, 0, start=True), marked(1, 7, epoch=9)
    assert other.ranges(*elsewhere) == [OffsetRange(P0, 10, 14)]
    job.cluster.set(0, 0, 20)

    with pytest.raises(
        CheckpointDisagreesError, match="ran with another checkpoint since"
    ):
        job.start(tx__mode="opaque").latest(second, everything=True)


@pytest.mark.parametrize("mode", ["transactional", "opaque"])
def test_a_replay_reads_no_records_that_took_the_offsets_of_lost_ones(job, mode):
    """What was handed out before may be in the sink."""
    job.cluster.ids, job.cluster.epochs = {"t": "same"}, {P0: 3}
    run = job.start(tx__mode=mode)
    start = run.initial()
    end = run.latest(start, everything=True)
    job.cluster.set(0, 0, 20)
    job.cluster.epochs, job.cluster.ended = {P0: 4}, {(P0, 3): 6}

    again = job.start(tx__mode=mode)

    if mode == "transactional":
        with pytest.raises(
            ReplayImpossibleError, match=r"holds \[0, 20\), and from 6 on other records"
        ):
            again.ranges(start, end)
        return
    assert again.ranges(start, end) == [OffsetRange(P0, 0, 6)]
    assert again.skipped == {(P0, "cut"): 4}
    after = again.latest(end, everything=True)
    assert again.ranges(end, after) == [OffsetRange(P0, 6, 20)]
    assert job.state().committed.leader_epochs == {P0: 3}


def test_the_store_keeps_leader_epochs_and_a_restart_compares_them(job):
    job.cluster.ids, job.cluster.epochs = {"t": "same"}, {P0: 3}
    run = job.start()
    end = run.latest(run.initial(), everything=True)
    assert [r.leader_epoch for r in run.ranges(run.initial(), end)] == [3]
    run.finished(end)
    job.cluster.set(0, 0, 20)
    job.cluster.epochs, job.cluster.ended = {P0: 4}, {(P0, 3): 6}

    assert job.state().committed.leader_epochs == {P0: 3}
    with pytest.raises(DataLossError, match="from 10 to 6"):
        job.start().latest(end, everything=True)


@pytest.mark.parametrize("mode", ["transactional", "opaque"])
def test_a_replay_of_a_topic_made_anew_does_not_read_other_records(job, mode):
    job.cluster.ids = {"t": "first"}
    run = job.start(tx__mode=mode)
    start = run.initial()
    end = run.latest(start, everything=True)
    job.cluster.ids = {"t": "second"}

    again = job.start(tx__mode=mode)

    if mode == "opaque":
        assert again.ranges(start, end) == []
    else:
        with pytest.raises(ReplayImpossibleError):
            again.ranges(start, end)


def test_a_replay_waits_for_a_partition_without_leader(job):
    run = job.start()
    start = run.initial()
    end = run.latest(start, everything=True)
    job.cluster.down = {P0}

    assert job.start().ranges(start, end) == [OffsetRange(P0, 0, 10)]


def test_a_replay_waits_while_nobody_tells_whose_the_log_is(job):
    job.cluster.ids = {"t": "known"}
    run = job.start()
    start = run.initial()
    end = run.latest(start, everything=True)
    job.cluster.ids = {}
    job.cluster.set(0, 0, 4)

    (waiting,) = job.start().ranges(start, end)

    assert waiting == OffsetRange(P0, 0, 10)
    assert waiting.topic_id == "known", "whoever reads it asks until that is told"


def test_a_topic_made_anew_between_runs_is_a_loss(job):
    job.cluster.ids = {"t": "first"}
    run = job.start()
    run.finished(run.latest(run.initial(), everything=True))
    job.cluster.ids = {"t": "second"}
    job.cluster.set(0, 0, 50)

    again = job.start()

    with pytest.raises(DataLossError, match="PARTITION_OFFSET_CHANGED"):
        again.latest(again.initial(), everything=True)


def test_a_second_owner_fences_the_first(job):
    first = job.start()
    end = first.latest(first.initial(), everything=True)
    second = job.start()
    second.latest(second.initial(), everything=True)

    with pytest.raises(FencedError, match="KAFKA_TX_FENCED"):
        first.latest(end, everything=True)


def test_the_mirror_is_brought_up_to_date_at_the_start(job):
    run = job.start()
    run.latest(run.initial(), everything=True)
    Ledger(MemoryStore(job.name, "job")).commit(1, 1, 0)  # died before the mirror

    again = job.start()
    again.latest(again.initial(), everything=True)

    assert job.mirrored[-1] == {P0: 10}


def test_the_leader_epoch_of_a_groups_offset_counts_from_the_first_batch_on(job):
    job.of_group = {P0: LogPosition(10, None, 3)}
    job.cluster.ids, job.cluster.epochs = {"t": "same"}, {P0: 4}
    job.cluster.set(0, 0, 20)
    job.cluster.ended[P0, 3] = 6
    fails = job.start(startingOffsets="committed")
    with pytest.raises(DataLossError, match="from 10 to 6"):
        fails.latest(fails.initial(), everything=True)

    run = job.start(startingOffsets="committed", failOnDataLoss="false")
    start = run.initial()
    end = run.latest(start, everything=True)

    assert run.ranges(start, end)[0].start == 6


def test_the_mirror_of_a_fenced_owner_is_told_so(job):
    owned: list[Any] = []
    run = job.start()
    run._batches._mirror = owned.append
    first = run.latest(run.initial(), everything=True)
    run.latest(first, everything=True)
    assert offsets_in(owned[-1]()) == {P0: 10}

    again = job.start()
    again.latest(first, everything=True)

    assert owned[-1]() is None


# --- checkpoint and store contradict each other ---


def test_a_checkpoint_from_before_tx_id_becomes_transaction_zero(job):
    run = job.start()

    end = run.latest(SourceOffset({P0: 4}), everything=True)

    assert end == marked(1, 10)
    assert job.state().planned[1].ranges == (OffsetRange(P0, 4, 10),)


def test_a_batch_logged_before_tx_id_becomes_the_first_transaction(job):
    run = job.start()
    start, end = SourceOffset({P0: 4}), SourceOffset({P0: 8})

    assert run.ranges(start, end) == [OffsetRange(P0, 4, 8)]


@pytest.fixture
def ahead(job):
    """A store at txid 3 and a checkpoint still at txid 1."""
    run = job.start()
    first = run.latest(run.initial(), everything=True)
    end = first
    for length in (20, 30):
        job.cluster.set(0, 0, length)
        end = run.latest(end, everything=True)
    run.finished(end)
    assert job.state().txid == 3
    job.cluster.set(0, 0, 40)
    return first


def test_an_older_checkpoint_disagrees(job, ahead):
    with pytest.raises(CheckpointDisagreesError, match=r"tx\.onDisagreement"):
        job.start().latest(ahead, everything=True)


@pytest.mark.parametrize("advice", ["a new checkpointLocation", "onDisagreement=store"])
def test_offsets_set_by_hand_are_where_both_ways_out_go_on(job, advice):
    run = job.start()
    first = run.latest(run.initial(), everything=True)
    run.finished(first)
    job.cluster.set(0, 0, 20)
    run.latest(first, everything=True)  # its txid is given up
    by_hand = job.ledger()
    moved_to = moved(by_hand.load(), {P0: 15}, {}, 0)
    by_hand.adopt(by_hand.acquire(), moved_to)

    with pytest.raises(CheckpointDisagreesError) as error:
        job.start().latest(first, everything=True)
    assert advice in str(error.value)
    assert error.value.fields["case"] == "behind"
    if advice == "onDisagreement=store":
        again, start = job.start(tx__onDisagreement="store"), first
    else:
        again = job.start()
        start = again.initial()
    end = again.latest(start, everything=True)

    assert again.ranges(start, end) == [OffsetRange(P0, 15, 20)]
    assert end.mark.txid == 3


def test_a_forgotten_topic_goes_on_where_its_log_begins(job):
    """As ``kafka-tx offsets forget`` says, after retention has removed its begin."""
    job.cluster.set(0, 0, 6, topic="u")
    run = job.start(subscribe="t,u")
    run.finished(run.latest(run.initial(), everything=True))
    job.cluster.set(0, 4, 9, topic="u")

    def set_by_hand(wanted):
        ledger = job.ledger()
        ledger.adopt(ledger.acquire(), wanted(ledger.load()))

    def ranges_with_a_new_checkpoint():
        again = job.start(subscribe="t,u")
        start = again.initial()
        return again.ranges(start, again.latest(start, everything=True))

    set_by_hand(lambda state: forgotten(state, {"u"}, 0))
    with pytest.raises(DataLossError, match="starts from 4 instead of 0"):
        ranges_with_a_new_checkpoint()
    begin = {TopicPartition("u", 0): 4}
    set_by_hand(lambda state: moved(state, begin, {}, 0))

    assert ranges_with_a_new_checkpoint() == [OffsetRange(TopicPartition("u", 0), 4, 9)]


@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize("decides", ["store", "nobody"])
def test_a_query_reads_a_forgotten_topic_anew_in_both_ways_out(
    job, is_planned, decides
):
    job.cluster.set(0, 0, 6, topic="u")
    run = job.start(subscribe="t,u")
    first = run.latest(run.initial(), everything=True)
    run.finished(first)
    job.cluster.set(0, 0, 9, topic="u")
    if is_planned:
        run.latest(first, everything=True)  # its txid is dropped
    ledger = job.ledger()
    ledger.adopt(ledger.acquire(), forgotten(ledger.load(), {"u"}, 0))

    if decides == "store":
        again, start = job.start(subscribe="t,u", tx__onDisagreement="store"), first
    else:
        again = job.start(subscribe="t,u")
        start = again.initial()
    end = again.latest(start, everything=True)

    assert again.ranges(start, end) == [OffsetRange(TopicPartition("u", 0), 0, 9)]
    assert end.mark.txid == 2 + is_planned


def test_a_sink_gets_the_same_unfinished_txid_after_another_topic_was_forgotten(job):
    """It wrote the batch, and Spark's listener was not attached."""
    job.cluster.set(0, 0, 6, topic="u")
    run = job.start(subscribe="t,u")
    run.finished(run.latest(run.initial(), everything=True))
    job.cluster.set(0, 0, 20)
    run = job.start()
    run.latest(run.initial(), everything=True)
    planned = job.state().next
    ledger = job.ledger()
    state = ledger.load()
    wanted = forgotten(state, {"u"}, 0)
    named = {TopicPartition("u", 0)}
    store = MemoryStore(job.name, job.id)
    wanted = beside_unfinished(store, state, wanted, named)
    ledger.adopt(ledger.acquire(), wanted, keeps_later=True)

    again = job.start()
    start = again.initial()
    end = again.latest(start, everything=True)

    assert again.ranges(start, end) == [OffsetRange(P0, 10, 20)]
    assert end.mark.txid == planned.txid == 2
    assert job.state().next.fingerprint() == planned.fingerprint()
    job.cluster.set(0, 0, 25)
    again.latest(end, everything=True)
    assert job.state().position.offsets == {P0: 20}


def test_the_store_may_decide(job, ahead):
    run = job.start(tx__onDisagreement="store")

    end = run.latest(ahead, everything=True)

    assert end == marked(4, 40, epoch=2)
    assert run.ranges(ahead, end) == [OffsetRange(P0, 30, 40)]


def test_the_checkpoint_may_decide_and_txids_go_on(job, ahead):
    run = job.start(tx__onDisagreement="checkpoint")

    end = run.latest(ahead, everything=True)

    assert end == marked(4, 40, epoch=2)
    assert run.ranges(ahead, end) == [OffsetRange(P0, 10, 40)]


def test_a_lost_store_disagrees_with_its_checkpoint(job):
    with pytest.raises(CheckpointDisagreesError):
        job.start().latest(marked(7, 5), everything=True)


def test_a_logged_batch_that_the_store_knows_otherwise_disagrees(job):
    run = job.start()
    run.latest(run.initial(), everything=True)

    with pytest.raises(CheckpointDisagreesError):
        job.start().ranges(marked(0, 0), marked(1, 7))


def test_a_logged_batch_of_an_older_checkpoint_is_not_run_if_the_store_decides(
    job, ahead
):
    run = job.start(tx__onDisagreement="store")

    assert run.ranges(ahead, marked(2, 20)) == []
    run.finished(marked(2, 20))
    assert job.state().txid == 3


def test_a_mark_that_is_next_but_ends_elsewhere_commits_nothing(job):
    run = job.start()
    run.latest(run.initial(), everything=True)

    run.finished(marked(1, 7))

    assert job.state().txid == 0


def test_a_new_checkpoint_asks_only_for_what_is_subscribed(job):
    job.cluster.set(0, 0, 4, topic="other")
    run = job.start(subscribe="t,other")
    run.finished(run.latest(run.initial(), everything=True))
    del job.cluster.logs[TopicPartition("other", 0)]

    again = job.start()
    start = again.initial()

    assert start == marked(1, 10, epoch=2, start=True)
    assert again.latest(start, everything=True) is start


def test_a_topic_that_was_not_subscribed_for_a_run_goes_on_where_it_was(job):
    other = TopicPartition("other", 0)
    job.cluster.set(0, 0, 4, topic="other")
    run = job.start(subscribe="t,other")
    run.finished(run.latest(run.initial(), everything=True))
    without = job.start(failOnDataLoss="false")
    job.cluster.set(0, 0, 12)
    without.finished(without.latest(without.initial(), everything=True))
    job.cluster.set(0, 0, 6, topic="other")

    again = job.start(subscribe="t,other")
    start = again.initial()
    end = again.latest(start, everything=True)

    assert again.ranges(start, end) == [OffsetRange(other, 4, 6)]


@pytest.mark.parametrize("mode", ["transactional", "opaque"])
@pytest.mark.parametrize("length", [3, 10, 25])
def test_a_topic_made_anew_is_read_once_also_over_a_crash(job, mode, length):
    job.cluster.ids = {"t": "first"}
    options = {"tx__mode": mode, "failOnDataLoss": "false"}
    run = job.start(**options)
    start = run.latest(run.initial(), everything=True)
    run.finished(start)
    job.cluster.ids = {"t": "second"}
    job.cluster.set(0, 0, length)
    end = job.start(**options).latest(start, everything=True)

    again = job.start(**options)  # it crashed in the batch

    assert again.ranges(start, end) == [OffsetRange(P0, 0, length)]
    assert again.latest(end, everything=True) is end


@pytest.mark.parametrize("mode", ["transactional", "opaque"])
def test_the_first_batch_is_replayed_whole_also_when_it_is_committed(job, mode):
    run = job.start(tx__mode=mode)
    end = run.latest(run.initial(), everything=True)
    run.finished(end)

    again = job.start(tx__mode=mode)

    assert again.ranges(again.initial(), end) == [OffsetRange(P0, 0, 10)]


@pytest.mark.parametrize("side", ["store", "checkpoint"])
def test_an_older_store_decides_only_where_sinks_went_back_with_it(job, side):
    kept = MemoryStore(job.name, "job")
    run = job.start()
    end = run.latest(run.initial(), everything=True)
    copy = kept.snapshot()
    for length in (20, 30):
        job.cluster.set(0, 0, length)
        end = run.latest(end, everything=True)
    kept.restore(copy)

    with pytest.raises(CheckpointDisagreesError, match="Do not start with a new") as e:
        job.start().latest(end, everything=True)
    assert "Txid 3 or later: set tx.onDisagreement=checkpoint" in str(e.value)
    assert "Txid 0 or 1, because the sinks went back" in str(e.value)
    job.cluster.set(0, 0, 40)
    after = job.start(tx__onDisagreement=side).latest(end, everything=True)
    txid, position = (4, 40) if side == "checkpoint" else (1, 10)
    assert (after.mark.txid, after.positions) == (txid, {P0: position})


def test_a_first_batch_says_where_it_began_for_a_store_that_is_put_back(job):
    kept = MemoryStore(job.name, "job")
    run = job.start()
    run.finished(run.latest(run.initial(), everything=True))
    copy = kept.snapshot()
    job.cluster.set(0, 0, 20)
    second = job.start()
    first = second.latest(second.initial(), everything=True)
    second.finished(first)
    job.cluster.set(0, 0, 30)
    third = job.start()
    end = third.latest(third.initial(), everything=True)
    kept.restore(copy)

    again = job.start(tx__onDisagreement="checkpoint")

    assert again.ranges(again.initial(), end) == [OffsetRange(P0, 20, 30)]


@pytest.mark.parametrize("mode", ["transactional", "opaque"])
def test_a_store_put_back_learns_again_what_was_out_of_sight(job, mode):
    kept, other = MemoryStore(job.name, "job"), TopicPartition("other", 0)
    copy = kept.snapshot()
    job.cluster.set(0, 0, 4, topic="other")
    run = job.start(subscribe="t,other", tx__mode=mode)
    start = end = run.latest(run.initial(), everything=True)
    options = {"tx__mode": mode, "failOnDataLoss": "false"}
    for length in (12, 14):
        start, without = end, job.start(**options)
        job.cluster.set(0, 0, length)
        end = without.latest(start, everything=True)
    kept.restore(copy)
    once = job.start(tx__onDisagreement="checkpoint", **options)
    assert once.ranges(start, end) == [OffsetRange(P0, 12, 14)]
    job.cluster.set(0, 0, 6, topic="other")

    again = job.start(subscribe="t,other", **options)
    after = again.latest(end, everything=True)

    assert again.ranges(end, after) == [OffsetRange(other, 4, 6)]


def test_available_now_does_not_end_while_a_partition_has_no_leader(job):
    job.cluster.set(1, 0, 5)
    run = job.start()
    start = run.initial()
    job.cluster.down = {P1}
    run.prepare_available_now()

    first = run.latest(start, everything=False)
    with pytest.raises(BrokerUnavailableError, match="where t-1 ends"):
        run.latest(first, everything=False)
    job.cluster.down = set()
    second = run.latest(first, everything=False)

    assert [first, second] == [marked(1, 10, 0), marked(2, 10, 5)]
    assert run.latest(second, everything=False) is second


def batches_for_a_while(job, run, end):
    """Batches until what stands long enough was told twice."""
    for length in range(20, 26):
        job.cluster.set(0, 0, length)
        job.clock.sleep_ms(CONFIRMED_AFTER_MS // 2)
        start, end = end, run.latest(end, everything=True)
        run.ranges(start, end)
        yield end


@pytest.mark.parametrize("mode", ["transactional", "opaque"])
def test_a_deleted_topic_leaves_store_and_checkpoint(job, mode):
    gone = TopicPartition("gone", 0)
    job.cluster.ids = {"t": "id-t", "gone": "id-gone"}
    job.cluster.set(0, 0, 4, topic="gone")
    run = job.start(subscribe="t,gone", tx__mode=mode, failOnDataLoss="false")
    end = run.latest(run.initial(), everything=True)
    del job.cluster.logs[gone]

    ends = list(batches_for_a_while(job, run, end))
    run.finished(ends[-1])

    assert ends[0].mark.unseen == {gone: 4}  # the answer may be an old one
    assert ends[-1].mark.unseen == {}
    assert "gone" not in str(ends[-1].to_json())
    assert job.state().committed.offsets.keys() == {P0}
    assert job.state().committed.topic_ids == {"t": "id-t"}
    job.cluster.ids["gone"] = "id-new"
    job.cluster.set(0, 0, 3, topic="gone")
    after = run.latest(ends[-1], everything=True)
    (read,) = run.ranges(ends[-1], after)
    assert read == OffsetRange(gone, 0, 3, "id-new")


def test_a_hidden_topic_is_not_taken_for_deleted(job, monkeypatch):
    hidden = TopicPartition("hidden", 0)
    job.cluster.ids = {"t": "id-t", "hidden": "id-hidden"}
    job.cluster.set(0, 0, 4, topic="hidden")
    run = job.start(subscribe="t,hidden", failOnDataLoss="false")
    end = run.latest(run.initial(), everything=True)
    del job.cluster.logs[hidden]
    monkeypatch.setattr(job.cluster, "topic_ids", lambda names: {"t": "id-t"})

    for later in batches_for_a_while(job, run, end):
        end = later
    assert end.mark.unseen == {hidden: 4}
    job.cluster.set(0, 0, 6, topic="hidden")
    after = run.latest(end, everything=True)

    assert run.ranges(end, after) == [OffsetRange(hidden, 4, 6, "id-hidden")]


def test_a_batch_says_where_it_began_if_not_at_the_end_before_it(job):
    kept = MemoryStore(job.name, "job")
    run = job.start()
    old = run.latest(run.initial(), everything=True)
    copy = kept.snapshot()
    job.cluster.set(0, 0, 20)
    run.finished(run.latest(old, everything=True))
    job.cluster.set(0, 0, 30)
    by_store = job.start(tx__onDisagreement="store")
    end = by_store.latest(old, everything=True)  # its checkpoint was put back, too
    assert by_store.ranges(old, end) == [OffsetRange(P0, 20, 30)]
    kept.restore(copy)

    again = job.start(tx__onDisagreement="checkpoint")

    assert again.ranges(old, end) == [OffsetRange(P0, 20, 30)]


def test_a_store_put_back_keeps_a_batch_that_is_out_of_sight(job):
    kept, other = MemoryStore(job.name, "job"), TopicPartition("other", 0)
    job.cluster.set(0, 0, 4, topic="other")
    options = {"subscribe": "t,other", "failOnDataLoss": "false"}
    run = job.start(**options)
    start = run.latest(run.initial(), everything=True)
    run.finished(start)
    copy = kept.snapshot()
    job.cluster.set(0, 0, 6, topic="other")
    end = job.start(**options).latest(start, everything=True)
    kept.restore(copy)
    del job.cluster.logs[other]
    with pytest.raises(
        ReplayImpossibleError, match=r"other-0 \[4, 6\).* the txid is not used again"
    ):
        job.start(**options).ranges(start, end)
    assert moved(job.state(), {other: 4}, {}, 0).txid == end.mark.txid
    job.cluster.set(0, 0, 6, topic="other")

    again = job.start(**options)
    assert again.ranges(start, end) == [OffsetRange(other, 4, 6)]


@pytest.mark.parametrize("owners", [1, 2])
def test_a_plan_that_the_store_lost_is_not_finished_by_its_txid(job, owners):
    """Its sink went back, too; who plans it anew dies before Spark hears of it."""
    kept = MemoryStore(job.name, "job")
    run = job.start()
    old = run.latest(run.initial(), everything=True)
    run.finished(old)
    copy = kept.snapshot()
    job.cluster.set(0, 0, 20)
    run = run if owners == 1 else job.start()
    done = run.latest(old, everything=True)
    run.finished(done)
    kept.restore(copy)
    job.start(tx__onDisagreement="store").latest(done, everything=True)

    with pytest.raises(CheckpointDisagreesError) as error:
        job.start().latest(done, everything=True)
    assert "Txid 2 or later: set tx.onDisagreement=checkpoint" in str(error.value)
    assert "Txid 1, because the sinks went back" in str(error.value)

    again = job.start(tx__onDisagreement="store")
    end = again.latest(done, everything=True)
    assert again.ranges(done, end) == [OffsetRange(P0, 10, 20)]


# --- another mode ---


def test_an_opaque_owner_leaves_an_unfinished_transactional_batch_alone(job):
    run = job.start()
    first = run.latest(run.initial(), everything=True)
    job.cluster.set(0, 0, 20)

    for opaque in (job.start(tx__mode="opaque"), job.start(tx__mode="opaque")):
        with pytest.raises(
            CheckpointDisagreesError, match="tx.mode to 'transactional'"
        ):
            opaque.latest(opaque.initial(), everything=True)  # with a new checkpoint
        with pytest.raises(CheckpointDisagreesError, match="transaction 1 of 'job'"):
            opaque.ranges(marked(0, 0, start=True), first)

    again = job.start()
    assert again.ranges(marked(0, 0, start=True), first) == [OffsetRange(P0, 0, 10)]
    again.finished(first)
    assert job.start(tx__mode="opaque").latest(first, everything=True).mark.txid == 2


def test_a_transactional_owner_takes_an_opaque_batch_as_its_own(job):
    """A sink that an opaque attempt has written takes back what that wrote."""
    run = job.start(tx__mode="opaque")
    start = run.initial()
    first = run.latest(start, everything=True)

    again = job.start()

    assert again.ranges(start, first) == [OffsetRange(P0, 0, 10)]
    assert again.number(Question("q", 0, start, first)).mode == "transactional"


def test_a_batch_that_was_opaque_and_cannot_be_read_again_may_be_opaque_again(job):
    """The plan of now does not tell which records sinks have of the former one."""
    run = job.start(tx__mode="opaque")
    run.latest(run.initial(), everything=True)
    job.cluster.set(0, 0, 15)
    fixed = job.start()
    start = fixed.initial()
    end = fixed.latest(start, everything=True)
    job.cluster.set(0, 3, 15)

    with pytest.raises(ReplayImpossibleError, match="set tx.mode to 'opaque'"):
        job.start().ranges(start, end)

    again = job.start(tx__mode="opaque")
    assert again.ranges(start, end) == [OffsetRange(P0, 3, 15)]
    assert again.number(Question("q", 0, start, end)).mode == "opaque"


def test_a_checkpoint_with_an_opaque_plan_that_another_replaced_goes_on(job):
    run = job.start(tx__mode="opaque")
    start = run.initial()
    first = run.latest(start, everything=True)
    job.cluster.set(0, 0, 15)
    other = job.start(tx__mode="opaque")
    other.latest(other.initial(), everything=True)

    again = job.start()

    assert again.ranges(start, first) == [OffsetRange(P0, 0, 10)]
    assert again.number(Question("q", 0, start, first)).txid == 1


def test_equal_offsets_of_a_topic_made_anew_are_another_batch():
    ranges = (OffsetRange(P0, 0, 10),)
    plans = {BatchMetadata(1, ranges, {"t": id_}).fingerprint() for id_ in "xyx"}

    assert len(plans) == 2
