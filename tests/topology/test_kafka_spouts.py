import pickle
from dataclasses import replace
from typing import Any

import pytest

from kafka_tx.config import FromCommitted, PerPartition
from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    DataLossError,
    FailedException,
    KafkaError,
    ReplayImpossibleError,
)
from kafka_tx.model import (
    Assigned,
    AtOffset,
    AtTime,
    Latest,
    LogPosition,
    TopicPartition,
    TopicPattern,
    Topics,
    TransactionAttempt,
    Unavailable,
)
from kafka_tx.offsets.loss import LossReason
from kafka_tx.planning.deleted_topics import CONFIRMED_AFTER_MS
from kafka_tx.running.lag_watch import POLL_EVERY_MS
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import BatchBolt
from kafka_tx.topology.kafka.spout import KafkaBatchSpout
from kafka_tx.topology.run.messages import BatchFailed, BatchStopped
from kafka_tx.transactions.coordinator.uncommitted import MetadataChain
from tests.growing_log import Growing
from tests.kafka_spouts import OpaqueKafkaBatchSpout, reads
from tests.local_engine import LocalEngine, run_commit, run_processing
from tests.transactions.drive import opened

PARTITION = TopicPartition("t", 0)
BOTH = pytest.mark.parametrize("kind", [KafkaBatchSpout, OpaqueKafkaBatchSpout])


def spout_on(cluster, kind=KafkaBatchSpout, *, poll_ms=100, refresh_ms=5_000, **given):
    pauses = {"poll_ms": poll_ms, "refresh_ms": refresh_ms}
    return kind(reads(**given), cluster, cluster, cluster.clock, **pauses)


def ranges(metadata):
    return {str(r.topic_partition): (r.start, r.end) for r in metadata.ranges}


@BOTH
def test_batches_follow_each_other_without_gap_or_overlap(cluster, kind):
    cluster.fill("t", 10, 4)
    spout = spout_on(cluster, kind, max_records=7)

    first = spout.initialize_transaction(1, None)
    second = spout.initialize_transaction(2, first)
    third = spout.initialize_transaction(3, second)

    assert ranges(first) == {"t-0": (0, 5), "t-1": (0, 2)}
    assert ranges(second) == {"t-0": (5, 10), "t-1": (2, 4)}
    assert ranges(third) == {"t-0": (10, 10), "t-1": (4, 4)}
    assert [spout.is_empty(m) for m in (first, second, third)] == [False, False, True]


@pytest.mark.parametrize(
    ("subscription", "names"),
    [
        (Topics(("t", "u", "absent")), ["t-0", "t-1", "u-0"]),
        (TopicPattern("t|x.*"), ["t-0", "t-1", "xylo-0"]),
        (Assigned((TopicPartition("u", 0), TopicPartition("t", 1))), ["t-1", "u-0"]),
    ],
)
def test_several_topics_are_read_by_name_pattern_or_partition(
    cluster, subscription, names
):
    for topic, logs in {"u": [1], "t": [1, 1], "xylo": [1]}.items():
        cluster.fill(topic, *logs)

    spout = spout_on(cluster, subscription=subscription)

    assert [*ranges(spout.initialize_transaction(1, None))] == names


def test_planning_costs_a_few_requests_however_many_partitions(cluster):
    cluster.fill("t", *[5] * 500)
    spout = spout_on(cluster, start=Latest())

    spout.initialize_transaction(1, None)

    # Topics before and after; the memory log asks itself for bounds of the offsets.
    assert cluster.requests == {"topics": 1 + 1, "bounds": 1 + 1, "offsets": 1}


@BOTH
def test_a_partition_that_cannot_be_reached_contributes_nothing(cluster, kind):
    cluster.fill("t", 10, 10)
    spout = spout_on(cluster, kind, max_records_per_partition=4)
    first = spout.initialize_transaction(1, None)

    cluster.lose("t-1")
    second = spout.initialize_transaction(2, first)
    cluster.lose("t-1", lost=False)
    third = spout.initialize_transaction(3, second)

    assert ranges(second) == {"t-0": (4, 8), "t-1": (4, 4)}
    assert ranges(third) == {"t-0": (8, 10), "t-1": (4, 8)}


@BOTH
def test_new_partitions_start_at_the_earliest(cluster, kind):
    cluster.fill("t", 10)
    spout = spout_on(cluster, kind, start=Latest())
    first = spout.initialize_transaction(1, None)
    cluster.add_partitions("t", 2)
    cluster.more("t-1", 3)

    second = spout.initialize_transaction(2, first)

    assert ranges(first) == {"t-0": (10, 10)}
    assert ranges(second) == {"t-0": (10, 10), "t-1": (0, 3)}


@BOTH
@pytest.mark.parametrize("has_begun", [False, True])
def test_a_topic_that_appears_after_the_start_is_read_from_its_beginning(
    cluster, kind, has_begun
):
    """Though the first batch, which asks where to start, is planned only then."""
    spout = spout_on(cluster, kind, start=Latest())
    if has_begun:
        assert not spout.is_ready()
    cluster.fill("t", 10)
    cluster.clock.advance(60_000)
    assert spout.is_ready()

    first = spout.initialize_transaction(1, None)

    assert ranges(first) == {"t-0": (0 if has_begun else 10, 10)}
    assert not first.skipped


@BOTH
def test_a_start_that_is_given_counts_however_late_the_topic_is_seen(cluster, kind):
    """Brokers may not name it yet, or a right comes late."""
    at = PerPartition(positions={TopicPartition("t", 0): AtOffset(7)})
    spout = spout_on(cluster, kind, start=at)
    assert not spout.is_ready()
    cluster.fill("t", 10)
    cluster.clock.advance(60_000)
    assert spout.is_ready()

    assert ranges(spout.initialize_transaction(1, None)) == {"t-0": (7, 10)}


@BOTH
@pytest.mark.parametrize("start", [Latest(), FromCommitted(otherwise=Latest())])
def test_a_first_batch_that_is_planned_again_starts_where_it_did(cluster, kind, start):
    cluster.fill("t", 10)
    spout = spout_on(cluster, kind, start=start)
    first = spout.initialize_transaction(1, None)
    spout.initialize_transaction(2, first)
    cluster.more("t-0", 5)

    again = spout.initialize_transaction(1, None)

    assert (ranges(first), ranges(again)) == ({"t-0": (10, 10)}, {"t-0": (10, 15)})


@BOTH
def test_a_record_that_comes_as_no_one_matches_the_start_time_is_read(
    cluster, kind, monkeypatch
):
    cluster.fill("t", 10)
    monkeypatch.setattr(cluster, "_at", Growing(cluster))
    config = replace(reads(start=AtTime(2**40)), start_without_match="latest")
    spout = kind(config, cluster, cluster, cluster.clock)

    assert ranges(spout.initialize_transaction(1, None)) == {"t-0": (10, 11)}


@BOTH
def test_a_first_batch_that_waits_for_a_leader_does_not_move_its_start(cluster, kind):
    cluster.fill("t", 10, 10)
    spout = spout_on(cluster, kind, start=Latest())
    cluster.lose("t-1")
    for _ in range(2):
        with pytest.raises(KafkaError, match="t-1"):
            spout.initialize_transaction(1, None)
        cluster.more("t-0", 5)
    cluster.lose("t-1", lost=False)

    first = spout.initialize_transaction(1, None)

    assert ranges(first) == {"t-0": (10, 20), "t-1": (10, 10)}


@BOTH
def test_a_start_in_a_topic_that_is_made_anew_meanwhile_is_asked_for_again(
    cluster, kind
):
    cluster.fill("t", 10)
    spout = spout_on(cluster, kind, start=Latest())
    spout.initialize_transaction(1, None)
    cluster.fill("t", 20)

    assert ranges(spout.initialize_transaction(1, None)) == {"t-0": (20, 20)}


def test_a_restarted_opaque_spout_begins_where_its_first_plan_did(cluster):
    """It counts what that plan has skipped, and what has gone since then."""
    at = PerPartition(positions={TopicPartition("t", 0): AtOffset(2)})
    cluster.fill("t", 10)
    cluster.trim(PARTITION, 5)
    spout = spout_on(cluster, OpaqueKafkaBatchSpout, start=at, max_records=3)
    first = spout.initialize_transaction(1, None)
    chain: Any = MetadataChain("opaque", *opened({}))
    chain.apply(chain.keep(TransactionAttempt(1, 7), first))
    spout.open()
    cluster.trim(PARTITION, 6)

    again = spout.initialize_transaction(1, chain.start)

    assert ranges(first) == {"t-0": (5, 8)}
    assert ranges(again) == {"t-0": (6, 9)}
    assert first.skipped == {(PARTITION, LossReason.TRIMMED): 3}
    assert again.skipped == {(PARTITION, LossReason.TRIMMED): 4}


# --- readiness ---


@BOTH
def test_a_spout_is_ready_when_there_is_something_to_read(cluster, kind):
    cluster.fill("t", 2)
    spout = spout_on(cluster, kind, poll_ms=100)
    assert spout.is_ready()

    spout.initialize_transaction(1, None)
    assert not spout.is_ready()

    cluster.more("t-0", 1)
    assert not spout.is_ready()  # it asks again after 5 ms
    cluster.clock.advance(5)
    assert spout.is_ready()


@BOTH
def test_a_small_batch_waits_until_the_one_before_is_committed(cluster, kind):
    cluster.fill("t", 10)
    spout = spout_on(cluster, kind, poll_ms=100)
    first = spout.initialize_transaction(1, None)
    spout.batch(TransactionAttempt(1, 1), first)
    cluster.more("t-0", 10)
    cluster.clock.advance(100)
    asked = dict(cluster.requests)

    assert not spout.is_ready()
    assert cluster.requests == asked, "a poll could not change that"
    assert spout.is_drained() is False  # records are there all the same
    spout.observed(TransactionAttempt(1, 1), first, {})
    assert not spout.is_ready()  # its commit phase would be slower beside another batch
    spout.committed(1, first)

    assert spout.is_ready()


@BOTH
def test_a_batch_may_be_read_beside_a_slow_one_that_is_no_larger(cluster, kind):
    cluster.fill("t", 10)
    spout = spout_on(cluster, kind, poll_ms=100)
    first = spout.initialize_transaction(1, None)
    spout.batch(TransactionAttempt(1, 1), first)
    records = sum(map(len, first.ranges))

    cluster.more("t-0", records - 1)
    cluster.clock.advance(500)
    assert not spout.is_ready()
    cluster.more("t-0", 1)
    cluster.clock.advance(100)
    assert spout.is_ready()

    second = spout.initialize_transaction(2, first)
    spout.batch(TransactionAttempt(2, 1), second)
    cluster.more("t-0", records)
    cluster.clock.advance(499)
    assert not spout.is_ready()


@BOTH
@pytest.mark.parametrize("limit", ["max_records", "max_records_per_partition"])
def test_full_batches_are_read_side_by_side(cluster, kind, limit):
    cluster.fill("t", 10)
    spout = spout_on(cluster, kind, poll_ms=100, **{limit: 4})
    first = spout.initialize_transaction(1, None)
    spout.batch(TransactionAttempt(1, 1), first)

    assert spout.is_ready()


@BOTH
def test_a_spout_that_is_opened_again_is_ready_for_what_was_never_committed(
    cluster, kind
):
    cluster.fill("t", 2)
    spout = spout_on(cluster, kind)
    spout.initialize_transaction(1, None)
    assert not spout.is_ready()

    spout.open()

    assert spout.is_ready()


def test_a_new_partition_makes_a_spout_ready(cluster):
    cluster.fill("t", 2)
    spout = spout_on(cluster, refresh_ms=5_000)
    spout.initialize_transaction(1, None)
    assert not spout.is_ready()
    cluster.add_partitions("t", 2)

    cluster.clock.advance(4_900)
    assert not spout.is_ready()
    cluster.clock.advance(100)
    assert spout.is_ready()


@BOTH
def test_a_spout_is_drained_when_every_partition_says_so_now(cluster, kind):
    cluster.fill("t", *[1] * 500)
    spout = spout_on(cluster, kind, poll_ms=10, refresh_ms=60_000)
    first = spout.initialize_transaction(1, None)
    for _ in range(8):
        spout.is_ready()
        cluster.clock.advance(2_000)
    spout.is_ready()
    assert spout.is_drained()

    cluster.more("t-7", 1)
    assert not spout.is_ready()  # it looks every two seconds only
    assert not spout.is_drained()
    assert spout.is_ready()
    second = spout.initialize_transaction(2, first)
    cluster.add_partitions("t", 501)
    assert not spout.is_drained()
    assert spout.is_ready()
    spout.initialize_transaction(3, second)
    assert spout.is_drained()


@BOTH
def test_a_topic_that_is_not_subscribed_any_more_holds_nobody_up(cluster, kind):
    cluster.fill("t", 2)
    cluster.fill("u", 2)
    before = spout_on(cluster, kind, subscription=Topics(("t", "u")))
    first = before.initialize_transaction(1, None)

    after = spout_on(cluster, kind)
    after.initialize_transaction(2, first)
    cluster.lose("u-0")

    assert after.is_drained()


@BOTH
def test_a_spout_is_not_drained_while_nobody_knows(cluster, kind):
    cluster.fill("t", 2, 2)
    spout = spout_on(cluster, kind)
    spout.initialize_transaction(1, None)

    cluster.is_down = True
    assert not spout.is_drained()
    cluster.is_down = False
    cluster.lose("t-1")
    assert not spout.is_drained()
    cluster.lose("t-1", lost=False)
    assert spout.is_drained()


@BOTH
def test_a_new_partition_without_a_leader_is_no_reason_for_empty_batches(cluster, kind):
    cluster.fill("t", 2)
    spout = spout_on(cluster, kind)
    first = spout.initialize_transaction(1, None)
    cluster.add_partitions("t", 2)
    cluster.lose("t-1")

    for _ in range(3):
        cluster.clock.advance(5_000)
        assert not spout.is_ready()
        assert not spout.is_drained()
    cluster.lose("t-1", lost=False)
    cluster.clock.advance(5_000)
    assert spout.is_ready()
    assert ranges(spout.initialize_transaction(2, first))["t-1"] == (0, 0)
    assert spout.is_drained()


def test_a_topic_that_is_not_there_has_nothing_to_be_waited_for(cluster):
    spout = spout_on(cluster)

    assert spout.is_drained()
    cluster.fill("t", 0)
    assert not spout.is_drained()


@BOTH
def test_a_deleted_topic_holds_nothing_that_could_be_waited_for(cluster, kind):
    cluster.fill("t", 2)
    cluster.fill("u", 2)
    spout = spout_on(cluster, kind, subscription=TopicPattern(".*"))
    spout.initialize_transaction(1, None)

    cluster.delete("t")
    assert spout.is_drained()
    cluster.delete("u")
    assert spout.is_drained()


@BOTH
def test_a_hidden_topic_may_hold_anything(cluster, kind, monkeypatch):
    cluster.fill("t", 2)
    cluster.fill("u", 2)
    spout = spout_on(cluster, kind, subscription=TopicPattern(".*"))
    first = spout.initialize_transaction(1, None)

    hide(cluster, "t", monkeypatch)

    assert not spout.is_drained()
    plans = plan_for_a_while(cluster, spout, first)
    assert ranges(plans[-1])["t-0"] == (2, 2)


@BOTH
def test_a_deleted_topic_that_was_read_leaves_the_batches(cluster, kind):
    cluster.fill("gone", 2, 2)
    cluster.fill("t", 2)
    spout = spout_on(cluster, kind, subscription=TopicPattern(".*"))
    first = spout.initialize_transaction(1, None)
    cluster.delete("gone")

    plans = plan_for_a_while(cluster, spout, first)

    assert ranges(plans[0])["gone-1"] == (2, 2)  # the answer may be an old one
    assert ranges(plans[-1]) == {"t-0": (2, 2)}
    cluster.requests.clear()
    spout.initialize_transaction(99, plans[-1])
    assert not cluster.requests["topic_ids"]
    cluster.fill("gone", 3)
    last = spout.initialize_transaction(100, plans[-1])
    assert ranges(last) == {"t-0": (2, 2), "gone-0": (0, 3)}
    assert spout.is_drained()


@BOTH
def test_what_was_left_unread_stays_where_that_is_a_failure(cluster, kind):
    """After a start nobody knows where the log ended that is gone."""
    cluster.fill("gone", 2)
    cluster.fill("t", 2)
    spout = spout_on(cluster, kind, subscription=TopicPattern(".*"))
    first = spout.initialize_transaction(1, None)
    spout.open()
    cluster.delete("gone")

    plans = plan_for_a_while(cluster, spout, first)

    stays = kind is KafkaBatchSpout
    assert ("gone-0" in ranges(plans[-1])) == stays
    cluster.fill("gone", 2)
    if stays:
        cluster.clock.advance(CONFIRMED_AFTER_MS)
        with pytest.raises(DataLossError, match="created again"):
            plan_for_a_while(cluster, spout, plans[-1])


def test_a_cluster_that_knows_no_topic_moves_nothing(cluster):
    """It may be another one behind the same name."""
    cluster.fill("t", 2)
    cluster.fill("u", 2)
    spout = spout_on(cluster, subscription=TopicPattern(".*"))
    first = spout.initialize_transaction(1, None)
    cluster.delete("t")
    cluster.delete("u")

    plans = plan_for_a_while(cluster, spout, first)

    assert ranges(plans[-1]) == {"t-0": (2, 2), "u-0": (2, 2)}


def test_a_topic_made_anew_with_fewer_partitions_loses_the_others(cluster):
    cluster.fill("t", 2, 2)
    cluster.fill("u", 2)
    spout = spout_on(cluster, OpaqueKafkaBatchSpout, subscription=TopicPattern(".*"))
    first = spout.initialize_transaction(1, None)
    cluster.fill("t", 1)

    plans = plan_for_a_while(cluster, spout, first)

    assert ranges(plans[-1]) == {"t-0": (1, 1), "u-0": (2, 2)}
    assert spout.is_drained()
    cluster.clock.advance(60_000)
    assert not spout.is_ready()


def plan_for_a_while(cluster, spout, previous):
    """Plan batches until what stands long enough was told twice."""
    plans = []
    for txid in range(2, 10):
        plans.append(spout.initialize_transaction(txid, previous))
        previous = plans[-1]
        cluster.clock.advance(CONFIRMED_AFTER_MS // 3)
    return plans


def hide(cluster, hidden, monkeypatch):
    """Let the user see nothing of a topic, neither in lists nor by name."""
    topics, ids = cluster.topics, cluster.topic_ids

    def without(reported):
        return {name: found for name, found in reported.items() if name != hidden}

    def no_bounds(partitions):
        found = type(cluster).bounds(cluster, partitions)
        return {
            p: Unavailable("hidden") if p.topic == hidden else bounds
            for p, bounds in found.items()
        }

    monkeypatch.setattr(cluster, "topics", lambda wanted: without(topics(wanted)))
    monkeypatch.setattr(cluster, "topic_ids", lambda names: without(ids(names)))
    monkeypatch.setattr(cluster, "bounds", no_bounds)


def test_too_few_records_wait_until_the_delay_is_over(cluster):
    cluster.fill("t", 2)
    spout = spout_on(cluster, min_records=5, max_delay_ms=1_000)
    spout.initialize_transaction(1, None)
    cluster.more("t-0", 4)

    cluster.clock.advance(900)
    assert not spout.is_ready()
    cluster.clock.advance(100)
    assert spout.is_ready()


def test_enough_records_do_not_wait(cluster):
    cluster.fill("t", 2)
    spout = spout_on(cluster, min_records=5, max_delay_ms=1_000_000)
    spout.initialize_transaction(1, None)
    cluster.more("t-0", 5)

    assert spout.is_ready()


def test_while_no_broker_answers_a_spout_is_not_ready(cluster):
    cluster.fill("t", 2)
    spout = spout_on(cluster)
    spout.initialize_transaction(1, None)

    cluster.is_down = True

    assert not spout.is_ready()
    with pytest.raises(BrokerUnavailableError):
        spout.initialize_transaction(2, None)


@BOTH
@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_logs_are_polled_while_a_batch_is_read_and_nobody_asks_for_the_next(
    cluster, kind, is_restarted
):
    """Also while a transactional batch is replayed that an earlier run has planned."""
    cluster.fill("t", 2)
    spout = spout_on(cluster, kind)
    metadata = spout.initialize_transaction(1, None)
    if is_restarted:
        spout.open()
    spout.batch(TransactionAttempt(1, 1), metadata)
    before = ends(spout)

    cluster.more("t-0", 4)
    cluster.clock.advance(POLL_EVERY_MS)

    assert ends(spout) == {**before, PARTITION: before[PARTITION] + 4}


def ends(spout):
    return {partition: log.end for partition, log in spout.bounds().items()}


@BOTH
@pytest.mark.parametrize("was_planned", [False, True])
def test_a_spout_that_is_not_asked_notices_that_no_broker_answers(
    cluster, kind, was_planned
):
    cluster.fill("t", 2)
    spout = spout_on(cluster, kind)
    if was_planned:
        spout.initialize_transaction(1, None)
    spout.bounds()

    cluster.is_down = True
    cluster.clock.advance(POLL_EVERY_MS)

    with pytest.raises(BrokerUnavailableError):
        spout.bounds()


def test_metrics_ask_no_broker_while_the_spout_polls(cluster):
    cluster.fill("t", 2)
    spout = spout_on(cluster)
    spout.initialize_transaction(1, None)
    for _ in range(100):
        cluster.clock.advance(100)
        spout.is_ready()
        asked = dict(cluster.requests)
        spout.bounds()
        assert cluster.requests == asked


def test_before_the_first_plan_no_partition_is_without_an_answer(cluster):
    """Or it would look as if no broker answered."""
    cluster.fill("t", 2)
    spout = spout_on(cluster)

    assert spout.is_ready()

    assert spout.bounds() == {}


def test_a_refused_password_is_not_waited_out(cluster, monkeypatch):
    cluster.fill("t", 2)
    spout = spout_on(cluster)
    spout.initialize_transaction(1, None)

    def refuse(_):
        raise AuthenticationError("wrong password")

    monkeypatch.setattr(cluster, "bounds", refuse)

    with pytest.raises(AuthenticationError):
        spout.is_ready()


# --- losses ---


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_replay_never_reads_a_topic_that_was_re_created(cluster, is_restarted):
    cluster.fill("t", 10)
    spout = spout_on(cluster, max_records=4)
    metadata = spout.initialize_transaction(1, None)
    spout.batch(TransactionAttempt(1, 1), metadata)
    if is_restarted:
        spout = spout_on(cluster, max_records=4)
    spout.batch(TransactionAttempt(1, 2), metadata)

    cluster.fill("t", 20)

    with pytest.raises(ReplayImpossibleError, match="re-created: its id was id-1"):
        spout.batch(TransactionAttempt(1, 3), metadata)


def test_a_replay_that_reads_nothing_of_a_re_created_topic_goes_on(cluster):
    """A person could do nothing about it, and nothing is at stake."""
    cluster.fill("t", 0)
    spout = spout_on(cluster)
    metadata = spout.initialize_transaction(1, None)
    spout.batch(TransactionAttempt(1, 1), metadata)

    cluster.fill("t", 20)

    spout.batch(TransactionAttempt(1, 2), metadata)


def test_the_first_try_of_a_new_batch_asks_the_brokers_nothing_more(cluster):
    cluster.fill("t", 10)
    spout = spout_on(cluster)
    metadata = spout.initialize_transaction(1, None)
    asked = dict(cluster.requests)

    spout.batch(TransactionAttempt(1, 1), metadata)

    assert cluster.requests == asked


def test_a_transactional_spout_fails_on_records_trimmed_before_they_were_planned(
    cluster,
):
    cluster.fill("t", 10)
    spout = spout_on(cluster, max_records=2)
    first = spout.initialize_transaction(1, None)
    cluster.trim(PARTITION, 6)

    with pytest.raises(DataLossError):
        spout.initialize_transaction(2, first)


def test_an_opaque_spout_goes_on_and_counts_once_what_it_skipped(cluster):
    cluster.fill("t", 10)
    spout = spout_on(cluster, OpaqueKafkaBatchSpout, max_records=2)
    first = spout.initialize_transaction(1, None)
    cluster.trim(PARTITION, 6)

    spout.initialize_transaction(2, first)
    again = spout.initialize_transaction(2, first)

    assert ranges(again) == {"t-0": (6, 8)}
    assert again.skipped == {(TopicPartition("t", 0), LossReason.TRIMMED): 4}
    assert not spout.initialize_transaction(3, again).skipped


def test_a_re_created_topic_is_noticed_by_its_id(cluster):
    cluster.fill("t", 10)
    exact, opaque = (
        spout_on(cluster, kind) for kind in (KafkaBatchSpout, OpaqueKafkaBatchSpout)
    )
    metadata = exact.initialize_transaction(1, None)
    assert metadata.positions() == {PARTITION: LogPosition(10, "id-1", 0)}
    cluster.fill("t", 10)

    for spout in (exact, opaque):  # what brokers say of topics may be an old answer
        assert ranges(spout.initialize_transaction(2, metadata)) == {"t-0": (10, 10)}
    cluster.clock.advance(5_000)

    assert exact.is_ready()  # although the new log is as long as the old one
    with pytest.raises(DataLossError, match="created again"):
        exact.initialize_transaction(2, metadata)
    assert ranges(opaque.initialize_transaction(2, metadata)) == {"t-0": (0, 10)}


# --- lost ends ---


def test_an_old_answer_of_a_broker_moves_nothing(cluster):
    cluster.fill("t", 10)
    spout = spout_on(cluster, OpaqueKafkaBatchSpout)
    first = spout.initialize_transaction(1, None)
    cluster.cut(PARTITION, 4)
    cluster.clock.advance(100)
    assert not spout.is_ready()

    second = spout.initialize_transaction(2, first)
    cluster.more("t-0", 8)

    assert ranges(second) == {"t-0": (10, 10)}
    third = spout.initialize_transaction(3, second)
    assert ranges(third) == {"t-0": (10, 12)}


@BOTH
def test_a_log_that_lost_its_end_is_decided_upon_when_that_is_settled(cluster, kind):
    cluster.fill("t", 10)
    spout = spout_on(cluster, kind)
    first = spout.initialize_transaction(1, None)
    cluster.cut(PARTITION, 4)
    while not spout.is_ready():
        cluster.clock.advance(100)
    cluster.more("t-0", 2)

    if kind is KafkaBatchSpout:
        with pytest.raises(DataLossError, match="failOnDataLoss=false"):
            spout.initialize_transaction(2, first)
        return
    second = spout.initialize_transaction(2, first)
    assert ranges(second) == {"t-0": (6, 6)}
    assert second.skipped == {(PARTITION, LossReason.CUT): 4}
    assert not spout.is_ready()


@BOTH
def test_records_that_took_the_offsets_of_lost_ones_are_decided_upon(cluster, kind):
    cluster.fill("t", 10)
    spout = spout_on(cluster, kind)
    first = spout.initialize_transaction(1, None)
    cluster.elect(PARTITION, 6)
    cluster.more("t-0", 9)
    cluster.clock.advance(5_000)

    assert spout.is_ready()
    if kind is KafkaBatchSpout:
        with pytest.raises(DataLossError, match="reading goes on at 6"):
            spout.initialize_transaction(2, first)
        return
    second = spout.initialize_transaction(2, first)
    assert ranges(second) == {"t-0": (6, 15)}
    assert second.skipped == {(PARTITION, LossReason.CUT): 4}


@BOTH
def test_a_new_leader_that_has_all_records_changes_nothing(cluster, kind):
    cluster.fill("t", 10)
    spout = spout_on(cluster, kind)
    first = spout.initialize_transaction(1, None)
    cluster.elect(PARTITION)
    cluster.clock.advance(5_000)
    assert not spout.is_ready()
    cluster.more("t-0", 2)
    cluster.clock.advance(5_000)

    assert spout.is_ready()
    second = spout.initialize_transaction(2, first)
    assert ranges(second) == {"t-0": (10, 12)}
    assert second.leader_epochs() == {PARTITION: 1}


@BOTH
def test_a_batch_is_not_read_of_records_that_took_the_offsets_of_lost_ones(
    cluster, kind
):
    cluster.fill("t", 10)
    spout = spout_on(cluster, kind)
    planned = spout.initialize_transaction(1, None)
    cluster.elect(PARTITION, 6)
    cluster.more("t-0", 9)
    attempt = TransactionAttempt(1, 1)
    error = ReplayImpossibleError if kind is KafkaBatchSpout else FailedException

    with pytest.raises(error, match="from offset 6 on"):
        list(spout.batch(attempt, planned).read(0, 1, {}))


# --- planned out ---


def test_a_partition_that_a_replay_leaves_out_is_read_when_it_is_back(cluster):
    cluster.fill("t", 10, 10)
    spout = spout_on(cluster, OpaqueKafkaBatchSpout, poll_ms=100)
    first = spout.initialize_transaction(1, None)
    cluster.more("t-1", 5)
    spout.initialize_transaction(2, first)
    cluster.lose("t-1")

    again = spout.initialize_transaction(2, first)
    cluster.lose("t-1", lost=False)
    cluster.clock.advance(5_000)

    assert ranges(again) == {"t-0": (10, 10), "t-1": (10, 10)}
    assert spout.is_ready()
    assert ranges(spout.initialize_transaction(3, again))["t-1"] == (10, 15)


# --- nothing there ---


@BOTH
def test_a_topic_that_is_not_there_yet_is_waited_for(cluster, kind):
    spout = spout_on(cluster, kind)
    for _ in range(100):
        assert not spout.is_ready()
        cluster.clock.advance(100)

    cluster.fill("t", 3)
    cluster.clock.advance(5_000)

    assert spout.is_ready()
    assert ranges(spout.initialize_transaction(1, None)) == {"t-0": (0, 3)}


def test_many_partitions_are_polled_less_often_the_longer_there_is_nothing(cluster):
    cluster.fill("t", *[1] * 200)
    spout = spout_on(cluster, poll_ms=10, refresh_ms=10**9)
    spout.initialize_transaction(1, None)
    spout.is_ready()
    asked = cluster.requests["bounds"]

    for _ in range(1_000):
        cluster.clock.advance(10)
        assert not spout.is_ready()

    assert 11 <= cluster.requests["bounds"] - asked <= 18  # every 1,200 ms, in the end


@pytest.mark.parametrize("partitions", [1, 25, 400])
def test_news_in_a_quiet_topology_is_seen_within_the_documented_time(
    cluster, partitions
):
    """Records within 100 ms or 4 ms a partition; new partitions within 5 s or 16 ms."""
    records_ms = max(100, 4 * partitions)
    partitions_ms = max(5_000, 16 * partitions) + records_ms
    cluster.fill("t", *[0] * partitions)
    spout = spout_on(cluster)
    plan = spout.initialize_transaction(1, None)

    for number in range(2):
        ready_after_ms(cluster, spout, 4 * partitions_ms + number * records_ms // 3)
        cluster.more("t-0", 1)
        assert ready_after_ms(cluster, spout, 10**6) <= records_ms
        plan = spout.initialize_transaction(2, plan)
    ready_after_ms(cluster, spout, 4 * partitions_ms)
    cluster.add_partitions("t", partitions + 1)
    assert ready_after_ms(cluster, spout, 10**6) <= partitions_ms


def ready_after_ms(cluster, spout, most_ms):
    """How long it takes until the spout says that it is ready, if it does."""
    began_ms = cluster.clock.monotonic_ms()
    while not spout.is_ready():
        waited_ms = cluster.clock.monotonic_ms() - began_ms
        if waited_ms >= most_ms:
            return waited_ms
        cluster.clock.advance(10)
    return cluster.clock.monotonic_ms() - began_ms


# --- whole attempts ---


class Sum(BatchBolt):
    committed: list = []  # noqa: RUF012 - shared on purpose

    def prepare(self, context, collector):
        self.attempt, self.seen = context.attempt, []

    def execute(self, row):
        self.seen.append(row.str)

    def finish_batch(self):
        self.committed.append((self.attempt.txid, sorted(self.seen)))


@pytest.fixture
def committed():
    Sum.committed.clear()
    return Sum.committed


def topology_on(spout):
    builder = TransactionalTopologyBuilder("t", "spout", spout, 3)
    builder.set_committer_bolt("sum", Sum).global_grouping("spout")
    return builder.build()


def attempt_at(topology, metadata, txid, attempt_id):
    attempt = TransactionAttempt(txid, attempt_id)
    batch = topology.spout.batch(attempt, metadata)
    processed = run_processing(topology, attempt, batch, LocalEngine(travels=True))
    if processed.failure is None:
        topology.spout.observed(attempt, metadata, processed.facts)
    return processed


@BOTH
def test_every_record_is_in_exactly_one_batch(cluster, committed, kind):
    cluster.fill("t", 10, 7, 0)
    spout = spout_on(cluster, kind, max_records=5)
    topology = topology_on(spout)
    metadata = None

    for txid in range(1, 8):
        metadata = spout.initialize_transaction(txid, metadata)
        processed = attempt_at(topology, metadata, txid, 1)
        run_commit(processed)
        spout.committed(txid, metadata)

    records = [record for _, seen in committed for record in seen]
    assert sorted(records) == sorted(cluster.values("t", 3))
    assert spout.is_empty(metadata)


def test_the_size_of_records_is_learned_from_batches(cluster, committed):
    cluster.fill("t", 1_000)
    spout = spout_on(cluster, max_bytes=2_048)
    topology = topology_on(spout)

    first = spout.initialize_transaction(1, None)
    attempt_at(topology, first, 1, 1)
    second = spout.initialize_transaction(2, first)

    assert ranges(first) == {"t-0": (0, 2)}
    assert ranges(second) == {"t-0": (2, 2 + 2_048 // 5)}


def test_a_replay_that_would_hold_other_records_stops_the_topology(cluster):
    cluster.fill("t", 5)
    spout = spout_on(cluster)
    topology = topology_on(spout)
    metadata = spout.initialize_transaction(1, None)
    assert attempt_at(topology, metadata, 1, 1).failure is None
    assert attempt_at(topology, metadata, 1, 2).failure is None

    cluster.compact(PARTITION, [3])
    processed = attempt_at(topology, metadata, 1, 3)

    assert isinstance(processed.failure, BatchStopped)
    assert isinstance(processed.failure.error, ReplayImpossibleError)


def test_what_a_committed_batch_held_is_forgotten(cluster):
    cluster.fill("t", 5)
    spout = spout_on(cluster)
    topology = topology_on(spout)
    metadata = spout.initialize_transaction(1, None)
    attempt_at(topology, metadata, 1, 1)

    spout.committed(1, metadata)

    cluster.compact(PARTITION, [3])
    assert attempt_at(topology, metadata, 1, 2).failure is None


def test_an_opaque_batch_whose_records_are_gone_is_planned_anew(cluster):
    cluster.fill("t", 5)
    spout = spout_on(cluster, OpaqueKafkaBatchSpout)
    topology = topology_on(spout)
    metadata = spout.initialize_transaction(1, None)
    cluster.trim(PARTITION, 2)

    failed = attempt_at(topology, metadata, 1, 1)
    metadata = spout.initialize_transaction(1, None)
    processed = attempt_at(topology, metadata, 1, 2)

    assert isinstance(failed.failure, BatchFailed)
    assert processed.failure is None
    assert ranges(metadata) == {"t-0": (2, 5)}


@BOTH
def test_only_reader_and_scheme_travel(cluster, kind):
    spout = spout_on(cluster, kind)

    assert pickle.loads(pickle.dumps(spout.empty_batch())) is not None
    assert spout.fields.names == ("str",)


def test_closing_a_spout_closes_its_view_of_the_cluster(cluster):
    spout_on(cluster).close()

    assert cluster.requests["close"] == 1
