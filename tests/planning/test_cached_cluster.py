import pytest

from kafka_tx.errors import BrokerUnavailableError
from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Topics
from kafka_tx.planning import log_bounds
from kafka_tx.planning.cached_cluster import CachedCluster
from kafka_tx.topology.kafka.spout import KafkaBatchSpout
from tests.kafka_spouts import OpaqueKafkaBatchSpout, reads
from tests.topology.conftest import Cluster

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TEN = {A: LogPosition(10, "id-1", 0)}


class SlowCluster(Cluster):
    """Every answer takes 50 ms."""

    def _ask(self, what):
        super()._ask(what)
        self.clock.advance(50)


@pytest.fixture
def slow():
    cluster = SlowCluster()
    cluster.fill("t", 10, 10)
    return cluster


def polls_of(cluster):
    return CachedCluster(cluster, Topics(("t",)), cluster.clock)


def test_an_answer_counts_ten_times_as_long_as_it_took(slow):
    polls = polls_of(slow)
    polls.bounds([A])
    slow.more("t-0", 5)

    slow.clock.advance(899)
    assert polls.bounds([A]) == {A: LogBounds(0, 10, "id-1", 0)}
    slow.clock.advance(1)
    assert polls.bounds([A]) == {A: LogBounds(0, 15, "id-1", 0)}


def test_no_answer_counts_longer_than_a_second(slow):
    polls = polls_of(slow)
    slow._ask = lambda _: slow.clock.advance(5_000)
    assert len(polls.found().partitions) == 2
    slow.add_partitions("t", 3)

    assert len(polls.found().partitions) == 3


def test_a_quick_answer_is_never_used_again(cluster):
    cluster.fill("t", 10)
    polls = polls_of(cluster)

    assert polls.bounds([A]) == {A: LogBounds(0, 10, "id-1", 0)}
    cluster.more("t-0", 1)
    assert polls.bounds([A]) == {A: LogBounds(0, 11, "id-1", 0)}


def test_an_answer_without_a_wanted_partition_is_not_enough(slow):
    polls = polls_of(slow)
    polls.bounds([A])

    assert set(polls.bounds([A, B])) == {A, B}


def test_what_is_forgotten_is_asked_again(slow):
    polls = polls_of(slow)
    polls.bounds([A])
    polls.found()

    polls.forget()
    polls.survey()
    polls.bounds([A])

    assert slow.requests == {"bounds": 2, "topics": 2}, "bounds come with their topics"


def test_while_a_log_holds_full_batches_brokers_are_asked_now_and_then(slow):
    spout = spout_on(slow, max_records=4)
    metadata = None
    for txid in (1, 2, 3, 4):
        assert spout.is_ready()
        metadata = spout.initialize_transaction(txid, metadata)

    assert slow.requests == {"bounds": 1, "topics": 2}, "topics before and after"


def test_a_batch_that_would_not_be_full_polls_anew(slow):
    spout = spout_on(slow, max_records=12)
    first = spout.initialize_transaction(1, None)
    slow.more("t-0", 100)

    assert spout.is_ready()
    second = spout.initialize_transaction(2, first)

    assert sum(map(len, second.ranges)) == 12
    assert slow.requests["bounds"] == 2


def test_too_few_records_left_of_an_answer_are_no_batch(slow):
    spout = spout_on(slow, min_records=5, max_records_per_partition=8)
    first = spout.initialize_transaction(1, None)
    assert sum(first.ends().values()) == 16

    assert not spout.is_ready()


def test_a_plan_that_is_made_again_polls_anew(slow):
    spout = spout_on(slow, max_records=4)
    spout.initialize_transaction(1, None)
    slow.lose("t-0")

    again = spout.initialize_transaction(1, None)

    assert again.ends().keys() == {B}


def spout_on(cluster, kind=KafkaBatchSpout, **limits):
    return kind(reads(**limits), cluster, cluster, cluster.clock, poll_ms=1)


def test_of_what_is_planned_to_its_end_only_the_end_is_asked(slow):
    polls = polls_of(slow)
    polls.found()
    polls.bounds([A, B])
    slow.requests.clear()

    assert polls.bounds_beyond(TEN | {B: LogPosition(7, "id-1", 0)}) == dict.fromkeys(
        [A, B], LogBounds(0, 10, "id-1", 0)
    )

    assert slow.requests["offsets"] == 1


def test_a_topic_made_anew_as_long_as_before_does_not_keep_the_former_start(slow):
    slow.trim(A, 5)
    polls = polls_of(slow)
    polls.found()
    assert polls.bounds([A])[A] == LogBounds(5, 10, "id-1", 0)
    slow.fill("t", 10, 10)
    assert polls.bounds_beyond(TEN)[A] == LogBounds(5, 10, "id-1", 0), "not known yet"

    polls.fresh_found()

    assert polls.bounds([A])[A] == LogBounds(0, 10, "id-2", 0)
    assert polls.bounds_beyond(TEN)[A] == LogBounds(0, 10, "id-2", 0)


def test_a_poll_that_fails_leaves_the_bounds_to_the_former_topic(slow):
    slow.trim(A, 5)
    polls = polls_of(slow)
    polls.found()
    polls.bounds([A])
    slow.fill("t", 10, 10)
    polls.fresh_found()
    slow.is_down = True
    with pytest.raises(BrokerUnavailableError):
        polls.bounds([A])
    slow.is_down = False

    assert polls.bounds_beyond(TEN)[A] == LogBounds(0, 10, "id-2", 0)


@pytest.mark.parametrize("more", [3, 10, 60])
def test_no_range_mixes_a_topic_with_one_made_anew_while_its_answers_count(slow, more):
    """The plan before is of one; the next one is of the other, whole and once."""
    spout = spout_on(slow, kind=OpaqueKafkaBatchSpout)
    plan = spout.initialize_transaction(1, None)
    slow.fill("t", more, more)
    ids = {
        plan.topic_ids["t"]: "former",
        slow.topics(Topics(("t",)))["t"].topic_id: "latter",
    }
    ranges = []

    for txid in range(2, 60):
        if spout.is_ready():
            plan = spout.initialize_transaction(txid, plan)
            part = plan.ranges[0]
            ranges.append((ids[part.topic_id], part.start, part.end))
        slow.clock.advance(300)

    planned = [found for found in ranges if found[1] < found[2]]
    assert planned == [("latter", 0, more)]


def test_the_start_of_a_quiet_log_is_asked_for_now_and_then(cluster):
    cluster.fill("t", 10)
    polls = polls_of(cluster)
    polls.bounds_beyond(TEN)
    cluster.trim(A, 10)

    cluster.clock.advance(log_bounds.WHOLE_POLL_MS - 1)
    assert polls.bounds_beyond(TEN) == {A: LogBounds(0, 10, "id-1", 0)}
    cluster.clock.advance(1)
    assert polls.bounds_beyond(TEN) == {A: LogBounds(10, 10, "id-1", 0)}
