"""Where micro-batches begin and end, without durable transactions."""

import json

import pytest

from kafka_tx.errors import (
    BrokerUnavailableError,
    DataLossError,
    OffsetsError,
    UnknownTopicError,
)
from kafka_tx.model import LogBounds, LogPosition, OffsetRange, TopicPartition
from kafka_tx.options.source import parse_source
from kafka_tx.planning.log_bounds import WHOLE_POLL_MS
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source.microbatches import MicroBatches
from kafka_tx.testing import ManualClock
from tests.fake_cluster import FakeCluster

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))


def source(cluster, clock, committed=None, **options):
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
    if "assign" in options or "subscribePattern" in options:
        del given["subscribe"]
    named = {name.replace("__", "."): value for name, value in options.items()}
    config = parse_source(given | named, streaming=True)
    return MicroBatches(config, cluster, clock, committed)


def at(*offsets):
    return SourceOffset({TopicPartition("t", n): o for n, o in enumerate(offsets)})


def test_a_new_query_begins_at_the_end_by_default(cluster, clock):
    cluster.set(0, 3, 10)

    assert source(cluster, clock).initial() == at(10)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, (3, 0)),
        ({"startingOffsets": '{"t":{"0":5,"1":-1}}'}, (5, 7)),
        ({"startingTimestamp": "6"}, (6, 6)),
        ({"startingOffsetsByTimestamp": '{"t":{"0":4,"1":2}}'}, (4, 2)),
        (
            {"startingTimestamp": "8", "startingOffsetsByTimestampStrategy": "latest"},
            (8, 7),
        ),
    ],
)
def test_start_rules(cluster, clock, options, expected):
    cluster.set(0, 3, 10)
    cluster.set(1, 0, 7)

    assert source(cluster, clock, **options).initial() == at(*expected)


def test_a_start_time_after_the_last_record_is_an_error(cluster, clock):
    cluster.set(0, 3, 10)

    with pytest.raises(OffsetsError, match="No offset matched"):
        source(cluster, clock, startingTimestamp="99").initial()


@pytest.mark.parametrize("given", ['{"t":{"0":5}}', '{"t":{"0":5,"1":5,"2":5}}'])
def test_given_offsets_must_name_every_partition_and_no_other(cluster, clock, given):
    cluster.set(0, 0, 10)
    cluster.set(1, 0, 10)

    with pytest.raises(
        OffsetsError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"
    ):
        source(cluster, clock, startingOffsets=given).initial()

    every = '{"t":{"0":5,"1":-2}}'  # as the error says
    assert source(cluster, clock, startingOffsets=every).initial() == at(5, 0)


def test_an_unknown_topic_is_named(cluster, clock):
    with pytest.raises(UnknownTopicError, match=r"not found on b:9092: t\."):
        source(cluster, clock).initial()


def test_an_unknown_partition_is_named(cluster, clock):
    cluster.set(0, 0, 10)

    with pytest.raises(UnknownTopicError, match="t-1"):
        source(cluster, clock, assign='{"t":[0,1]}').initial()


def test_only_assigned_partitions_are_read(cluster, clock):
    cluster.set(0, 0, 10)
    cluster.set(1, 0, 10)
    batches = source(cluster, clock, assign='{"t":[1]}', startingOffsets="earliest")

    start = batches.initial()
    end = batches.latest(start, everything=True)

    assert end == SourceOffset({P1: 10})


def test_committed_takes_the_groups_offsets_and_the_rule_for_the_rest(cluster, clock):
    cluster.set(0, 0, 10)
    cluster.set(1, 2, 10)
    batches = source(
        cluster,
        clock,
        lambda _: {P0: LogPosition(6, None)},
        startingOffsets="committed",
    )

    assert batches.initial() == at(6, 2)


def test_committed_or_error_names_what_has_no_offset(cluster, clock):
    cluster.set(0, 0, 10)

    with pytest.raises(OffsetsError, match=r"KAFKA_TX_NO_COMMITTED_OFFSET.*t-0"):
        source(cluster, clock, startingOffsets="committed:error").initial()


def test_a_batch_ends_where_the_log_ends(cluster, clock):
    cluster.set(0, 0, 10)
    batches = source(cluster, clock)

    end = batches.latest(at(4), everything=True)

    assert end == at(10)
    assert batches.ranges(at(4), end) == [OffsetRange(P0, 4, 10)]


def test_nothing_new_gives_back_the_very_same_offset(cluster, clock):
    cluster.set(0, 0, 10)
    start = at(10)

    assert source(cluster, clock).latest(start, everything=True) is start


def test_the_limit_is_shared_in_proportion(cluster, clock):
    cluster.set(0, 0, 100)
    cluster.set(1, 0, 300)
    batches = source(cluster, clock, maxOffsetsPerTrigger="40")

    assert batches.latest(at(0, 0), everything=False) == at(10, 30)
    assert batches.latest(at(0, 0), everything=True) == at(100, 300)


def test_too_few_records_wait_until_the_longest_delay(cluster, clock):
    cluster.set(0, 0, 50)
    batches = source(cluster, clock, minOffsetsPerTrigger="100", maxTriggerDelay="10s")

    first = batches.latest(at(0), everything=False)
    waiting = batches.latest(first, everything=False)
    cluster.set(0, 0, 60)
    too_few = batches.latest(first, everything=False)
    clock.advance(10_000)
    late = batches.latest(first, everything=False)

    assert (first, late) == (at(50), at(60))
    assert waiting is first
    assert too_few is first


def test_available_now_never_waits_and_stops_where_it_began(cluster, clock):
    cluster.set(0, 0, 50)
    batches = source(cluster, clock, minOffsetsPerTrigger="100")
    batches.prepare_available_now()
    cluster.set(0, 0, 80)
    cluster.set(1, 0, 5)

    first = batches.latest(at(10), everything=False)

    assert first.positions[P0] == 50
    assert first.positions.get(P1, 0) == 0
    assert batches.latest(first, everything=False) is first


def test_where_the_end_is_frozen_brokers_are_asked_once_a_second(cluster, clock):
    cluster.set(0, 0, 50)
    batches = source(cluster, clock, maxOffsetsPerTrigger="10", failOnDataLoss="false")
    batches.prepare_available_now()
    cluster.set(0, 20, 50)  # retention

    first = batches.latest(at(0), everything=False)
    clock.advance(1_000)
    second = batches.latest(first, everything=False)

    assert (first, second) == (at(10), at(30))
    assert batches.ranges(first, second) == [OffsetRange(P0, 20, 30)]


def test_an_answer_that_does_not_reach_the_frozen_end_is_not_used_again(cluster, clock):
    cluster.set(0, 0, 50)
    cluster.set(1, 0, 50)
    batches = source(cluster, clock)
    batches.prepare_available_now()
    clock.advance(1_000)
    cluster.down = {P1}

    first = batches.latest(at(0, 0), everything=False)
    cluster.down = set()
    second = batches.latest(first, everything=False)

    assert (first, second) == (at(50, 0), at(50, 50))


class Election(ManualClock):
    """Partitions have leaders again after so many seconds, with new records."""

    def __init__(self, cluster, after_s):
        super().__init__()
        self.cluster, self.after_s = cluster, after_s

    def sleep_ms(self, duration_ms):
        super().sleep_ms(duration_ms)
        if self.monotonic_ms() >= self.after_s * 1_000 and self.cluster.down:
            self.cluster.down = set()
            self.cluster.set(1, 0, 60)


@pytest.mark.parametrize(("lost_at_once", "ends_at"), [(True, 60), (False, 50)])
def test_available_now_does_not_end_while_a_partition_has_no_leader(
    cluster, lost_at_once, ends_at
):
    cluster.set(0, 0, 50)
    cluster.set(1, 0, 50)
    batches = source(cluster, Election(cluster, 20), startingOffsets="earliest")
    begin = batches.initial()
    if lost_at_once:
        cluster.down = {P1}
    batches.prepare_available_now()
    cluster.down = {P1}

    first = batches.latest(begin, everything=False)
    second = batches.latest(first, everything=False)

    assert (dict(first.positions), dict(second.positions)) == (
        {P0: 50, P1: 0},
        {P0: 50, P1: ends_at},
    )


def test_available_now_fails_where_it_cannot_know_that_all_is_read(cluster):
    cluster.set(0, 0, 50)
    cluster.set(1, 0, 50)
    clock = Election(cluster, 60)
    batches = source(cluster, clock, startingOffsets="earliest")
    begin = batches.initial()
    cluster.down = {P0, P1}
    batches.prepare_available_now()

    with pytest.raises(BrokerUnavailableError, match="where t-0, t-1 ends"):
        batches.latest(begin, everything=False)

    assert clock.monotonic_ms() < 60_000


@pytest.mark.parametrize("unknown", ["ids", "epochs"])
def test_available_now_does_not_end_while_nobody_knows_the_log(cluster, unknown):
    """Its end is reported, and not whether the position belongs to it."""
    clock = Election(cluster, 60)
    cluster.ids = {"t": "one"}
    cluster.set(0, 0, 10)
    cluster.set(1, 0, 10)
    cluster.epochs = {P0: 3, P1: 3}
    first = source(cluster, clock, startingOffsets="earliest")
    end = first.latest(first.initial(), everything=True)
    cluster.set(0, 0, 50)
    if unknown == "ids":
        cluster.ids = {}
    else:
        cluster.epochs[P0] = 2  # a former leader
    batches = source(cluster, clock)
    batches.prepare_available_now()

    with pytest.raises(BrokerUnavailableError, match="belongs to this log"):
        batches.latest(end, everything=False)


def test_available_now_waits_for_no_deleted_partition(cluster, clock):
    cluster.set(0, 0, 50)
    cluster.set(0, 0, 50, "u")
    batches = source(cluster, clock, subscribe="t,u", failOnDataLoss="false")
    batches.prepare_available_now()
    del cluster.logs[TopicPartition("u", 0)]

    first = batches.latest(at(0), everything=False)

    assert batches.latest(first, everything=False) is first


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_made_anew_within_a_run_is_seen_at_once(cluster, clock, fails):
    cluster.ids = {"t": "first"}
    cluster.set(0, 0, 4)
    batches = source(cluster, clock, maxOffsetsPerTrigger="2", failOnDataLoss=fails)
    batches.prepare_available_now()
    first = batches.latest(at(0), everything=False)
    cluster.ids = {"t": "second"}
    cluster.set(0, 0, 2)

    if fails == "true":
        with pytest.raises(DataLossError, match="created again"):
            batches.latest(first, everything=False)
        return
    second = batches.latest(first, everything=False)
    assert batches.ranges(first, second) == [OffsetRange(P0, 0, 2)]
    assert batches.latest(second, everything=False) is second


def test_durable_batches_are_planned_with_what_logs_hold_now(cluster, clock):
    cluster.set(0, 0, 50)
    batches = source(
        cluster,
        clock,
        maxOffsetsPerTrigger="10",
        failOnDataLoss="false",
        tx__id="t",
        tx__store="memory:",
    )
    batches.prepare_available_now()
    cluster.set(0, 20, 50)  # retention

    end = batches.latest(at(0), everything=False)

    assert batches.ranges(at(0), end) == [OffsetRange(P0, 20, 30)]


def test_an_answer_that_knows_less_than_the_query_is_not_used_again(cluster, clock):
    cluster.set(0, 0, 50)
    batches = source(cluster, clock)
    batches.prepare_available_now()
    cluster.set(1, 0, 5)

    end = batches.latest(at(10, 5), everything=False)

    assert end == at(50, 5)


def test_a_new_partition_is_read_from_its_beginning(cluster, clock):
    cluster.set(0, 0, 10)
    cluster.set(1, 0, 4)
    batches = source(cluster, clock)

    end = batches.latest(at(10), everything=True)

    assert batches.ranges(at(10), end) == [OffsetRange(P1, 0, 4)]


def test_a_partition_without_leader_contributes_nothing(cluster, clock):
    cluster.set(0, 0, 10)
    cluster.set(1, 0, 10)
    cluster.down = {P1}
    batches = source(cluster, clock)

    end = batches.latest(at(4, 5), everything=True)

    assert end == at(10, 5)
    assert batches.ranges(at(4, 5), end) == [OffsetRange(P0, 4, 10)]


def test_a_log_of_which_nobody_tells_whose_it_is_contributes_nothing(cluster, clock):
    cluster.ids = {"t": "known"}
    cluster.set(0, 0, 10)
    batches = source(cluster, clock)
    start = batches.latest(at(0), everything=True)
    cluster.set(0, 0, 20)
    cluster.ids = {}

    assert batches.latest(start, everything=True) == start

    cluster.ids = {"t": "known"}
    assert batches.latest(start, everything=True).positions == {P0: 20}


@pytest.mark.parametrize(
    ("end", "goes_on"), [(7, (7, 7)), (10, (10, 10)), (12, (10, 12))]
)
def test_where_brokers_tell_no_ids_a_topic_made_anew_is_taken_for_the_same(
    cluster, clock, end, goes_on
):
    cluster.set(0, 0, 10)
    batches = source(cluster, clock, failOnDataLoss="false")
    start = batches.latest(at(0), everything=True)

    cluster.set(0, 0, end)
    found = batches.plan(start.positions, everything=True)

    assert found.ranges == (OffsetRange(P0, *goes_on),)


def test_a_new_partition_without_leader_waits_for_it(cluster, clock):
    cluster.set(0, 0, 10)
    cluster.set(1, 0, 10)
    cluster.down = {P1}
    batches = source(cluster, clock)

    assert P1 not in batches.latest(at(4), everything=True).positions

    cluster.down = set()
    start = at(10)
    end = batches.latest(start, everything=True)
    assert batches.ranges(start, end) == [OffsetRange(P1, 0, 10)]


def test_an_older_metadata_answer_is_no_loss(cluster, clock):
    cluster.set(0, 0, 10)
    cluster.set(1, 0, 10)
    cluster.answers = [{}, {P0: (0, 10)}]
    batches = source(cluster, clock)

    assert batches.latest(at(4, 4), everything=True) == at(10, 10)


def test_a_deleted_topic_stops_the_query(cluster, clock):
    with pytest.raises(
        DataLossError, match=r"KAFKA_DATA_LOSS\.PARTITIONS_DELETED.*t-0"
    ):
        source(cluster, clock).latest(at(4), everything=True)


def test_a_deleted_topic_is_dropped_if_losses_are_allowed(cluster, clock):
    cluster.set(0, 0, 5, topic="other")
    batches = source(cluster, clock, failOnDataLoss="false", subscribe="t,other")
    start = SourceOffset({P0: 4, TopicPartition("other", 0): 2})

    end = batches.latest(start, everything=True)

    assert end == SourceOffset({TopicPartition("other", 0): 5})


def test_records_removed_by_retention_stop_the_query(cluster, clock):
    cluster.set(0, 6, 10)

    with pytest.raises(DataLossError, match=r"START_OFFSET_RESET.*was 4.*reset to 6"):
        source(cluster, clock).latest(at(4), everything=True)


def test_records_removed_by_retention_are_counted_if_losses_are_allowed(cluster, clock):
    cluster.set(0, 6, 10)
    batches = source(cluster, clock, failOnDataLoss="false")

    end = batches.latest(at(4), everything=True)

    assert batches.ranges(at(4), end) == [OffsetRange(P0, 6, 10)]
    assert batches.skipped == {(P0, "retention"): 2}


def test_waiting_does_not_count_the_same_loss_twice(cluster, clock):
    cluster.set(0, 0, 10)
    options = {"minOffsetsPerTrigger": "50", "failOnDataLoss": "false"}
    batches = source(cluster, clock, **options)
    start = batches.latest(at(4), everything=False)
    cluster.set(0, 15, 20)

    batches.latest(start, everything=False)
    batches.latest(start, everything=False)
    cluster.set(0, 15, 100)
    batches.latest(start, everything=False)

    assert batches.skipped == {(P0, "retention"): 5}


def test_a_log_that_ends_too_early_stops_the_query_once_that_is_settled(cluster, clock):
    cluster.set(0, 0, 3)

    with pytest.raises(DataLossError, match=r"PARTITION_OFFSET_CHANGED.*from 8 to 3"):
        source(cluster, clock).latest(at(8), everything=True)
    assert clock.monotonic_ms() == 10_000  # a leader may be the former one for so long


def test_a_log_that_lost_its_end_is_not_read_again(cluster, clock):
    cluster.ids = {"t": "same"}
    cluster.set(0, 0, 10)
    batches = source(cluster, clock, failOnDataLoss="false")
    start = batches.latest(at(0), everything=True)
    cluster.set(0, 0, 6)

    end = batches.latest(start, everything=True)
    skipped = batches.skipped
    cluster.set(0, 0, 12)
    after = batches.latest(end, everything=True)

    assert (end, after) == (at(6), at(12))
    assert batches.ranges(start, end) == []
    assert batches.ranges(end, after) == [OffsetRange(P0, 6, 12)]
    assert skipped == {(P0, "cut"): 4}
    assert not batches.skipped


def elect(cluster, epoch, end, *, former_ended=None):
    """A new leader, with its log."""
    cluster.ids = {"t": "same"}
    cluster.set(0, 0, end)
    cluster.epochs[P0] = epoch
    if former_ended is not None:
        cluster.ended[P0, epoch - 1] = former_ended


def test_records_that_took_the_offsets_of_lost_ones_stop_the_query(cluster, clock):
    elect(cluster, 3, 10)
    end = source(cluster, clock).latest(at(0), everything=True)
    stored = SourceOffset.from_json(json.loads(json.dumps(end.to_json())))
    elect(cluster, 4, 20, former_ended=6)

    with pytest.raises(DataLossError, match=r"PARTITION_OFFSET_CHANGED.*from 10 to 6"):
        source(cluster, clock).latest(stored, everything=True)
    assert clock.monotonic_ms() == 0


def test_a_log_that_reaches_the_end_of_a_repeated_batch_again_is_read_once(
    cluster, clock
):
    """A restart repeats the batch, of which a new leader has lost four records."""
    elect(cluster, 3, 10)
    began = at(0)
    planned = source(cluster, clock).latest(began, everything=True)
    stored = SourceOffset.from_json(json.loads(json.dumps(planned.to_json())))
    elect(cluster, 4, 10, former_ended=6)
    batches = source(cluster, clock, failOnDataLoss="false")

    repeated = batches.ranges(began, stored)
    after = batches.latest(stored, everything=True)
    others = batches.ranges(stored, after)

    assert [(r.start, r.end) for r in (*repeated, *others)] == [(0, 6), (6, 10)]
    assert batches.latest(after, everything=True) is after


def test_records_that_took_the_offsets_of_lost_ones_are_read(cluster, clock):
    elect(cluster, 3, 10)
    batches = source(cluster, clock, failOnDataLoss="false")
    start = batches.latest(at(0), everything=True)
    elect(cluster, 4, 20, former_ended=6)

    end = batches.latest(start, everything=True)

    assert batches.ranges(start, end) == [OffsetRange(P0, 6, 20)]
    assert batches.skipped == {(P0, "cut"): 4}
    assert end.leader_epochs == {P0: 4}
    assert batches.latest(end, everything=True) is end


def test_the_leader_epoch_of_a_groups_offset_counts_from_the_first_batch_on(
    cluster, clock
):
    """The ordinary consumer that the query replaces had read what was lost."""
    elect(cluster, 4, 20, former_ended=6)

    def of_group(_):
        return {P0: LogPosition(10, None, 3)}

    options = {"startingOffsets": "committed"}
    start = source(cluster, clock, of_group, **options).initial()
    stored = SourceOffset.from_json(json.loads(json.dumps(start.to_json())))
    with pytest.raises(DataLossError, match=r"PARTITION_OFFSET_CHANGED.*from 10 to 6"):
        source(cluster, clock, of_group, **options).latest(stored, everything=True)
    batches = source(cluster, clock, of_group, failOnDataLoss="false", **options)
    end = batches.latest(stored, everything=True)

    assert batches.ranges(stored, end) == [OffsetRange(P0, 6, 20)]
    assert batches.skipped == {(P0, "cut"): 4}


@pytest.mark.parametrize(("ids", "epochs"), [({}, {P0: 4}), ({"t": "same"}, {})])
def test_where_leader_epochs_mean_nothing_offsets_decide(cluster, clock, ids, epochs):
    elect(cluster, 3, 10)
    cluster.ids = ids
    start = source(cluster, clock).latest(at(0), everything=True)
    elect(cluster, 4, 20, former_ended=6)
    cluster.ids, cluster.epochs = ids, epochs

    assert source(cluster, clock).latest(start, everything=True) == at(20)


def test_a_new_leader_is_asked_once_and_nothing_is_asked_of_the_same_one(
    cluster, clock
):
    elect(cluster, 3, 10)
    batches = source(cluster, clock)
    start = batches.latest(at(0), everything=True)
    elect(cluster, 3, 11)
    start = batches.latest(start, everything=True)
    assert not cluster.epochs_asked
    elect(cluster, 4, 11, former_ended=11)

    for _ in range(3):
        assert batches.latest(start, everything=True) is start
    elect(cluster, 4, 12)
    end = batches.latest(start, everything=True)

    assert cluster.epochs_asked == [{P0: 3}]
    assert (end, end.leader_epochs) == (at(12), {P0: 4})


def test_while_a_new_leader_does_not_answer_its_log_contributes_nothing(cluster, clock):
    elect(cluster, 3, 10)
    batches = source(cluster, clock)
    start = batches.latest(at(0), everything=True)
    elect(cluster, 4, 20)

    assert batches.latest(start, everything=True) is start
    cluster.ended[P0, 3] = 10
    assert batches.latest(start, everything=True) == at(20)


def test_a_topic_made_anew_begins_with_leader_epochs_of_its_own(cluster, clock):
    elect(cluster, 3, 10)
    batches = source(cluster, clock, failOnDataLoss="false")
    start = batches.latest(at(0), everything=True)
    cluster.ids, cluster.down = {"t": "another"}, {P0}
    end = batches.latest(start, everything=True)
    assert (end, end.leader_epochs) == (at(0), {})
    cluster.down, cluster.epochs = set(), {P0: 0}

    assert batches.latest(end, everything=True) == at(10)


def test_a_batch_that_was_logged_is_read_as_far_as_its_log_goes(cluster, clock):
    elect(cluster, 3, 10)
    start = at(0)
    end = source(cluster, clock).latest(start, everything=True)
    elect(cluster, 4, 20, former_ended=6)
    batches = source(cluster, clock, failOnDataLoss="false")

    with pytest.raises(DataLossError, match="from 10 to 6"):
        source(cluster, clock).ranges(start, end)
    assert batches.ranges(start, end) == [OffsetRange(P0, 0, 6)]
    after = batches.latest(end, everything=True)
    assert batches.ranges(end, after) == [OffsetRange(P0, 6, 20)]


def test_a_broker_that_lags_behind_for_seconds_costs_nothing(cluster, clock):
    cluster.set(0, 0, 10)
    batches = source(cluster, clock, failOnDataLoss="false")
    start = batches.latest(at(0), everything=True)
    cluster.later = [(clock.monotonic_ms() + 5_000, {P0: (0, 14)})]
    cluster.set(0, 0, 6)
    cluster.clock = clock

    end = batches.latest(start, everything=True)

    assert end == at(14)
    assert batches.ranges(start, end) == [OffsetRange(P0, 10, 14)]
    assert not batches.skipped


def test_where_a_lost_end_left_off_is_known_to_a_later_process(cluster, clock):
    cluster.set(0, 0, 6)
    end = source(cluster, clock, failOnDataLoss="false").latest(at(10), everything=True)
    cluster.set(0, 0, 20)

    logged = SourceOffset.from_json(end.to_json())
    again = source(cluster, clock, failOnDataLoss="false").ranges(at(10), logged)

    assert again == []


def test_a_topic_with_another_id_is_made_anew_also_if_it_is_longer(cluster, clock):
    cluster.set(0, 0, 5)
    cluster.ids = {"t": "first"}
    batches = source(cluster, clock)
    start = batches.latest(at(0), everything=True)
    cluster.ids = {"t": "second"}
    cluster.set(0, 0, 9)

    with pytest.raises(DataLossError, match="PARTITION_OFFSET_CHANGED"):
        batches.latest(start, everything=True)


@pytest.mark.parametrize("length", [3, 8, 20])
def test_a_topic_made_anew_is_read_from_its_beginning_if_allowed(
    cluster, clock, length
):
    cluster.ids = {"t": "first"}
    cluster.set(0, 0, 8)
    batches = source(cluster, clock, failOnDataLoss="false")
    start = batches.latest(at(0), everything=True)
    cluster.ids = {"t": "second"}
    cluster.set(0, 0, length)

    end = batches.latest(start, everything=True)
    logged = SourceOffset.from_json(end.to_json())
    later = source(cluster, clock, failOnDataLoss="false")

    assert end == at(length)
    assert logged.to_json() != start.to_json()  # or Spark would see nothing new
    assert batches.ranges(start, end) == [OffsetRange(P0, 0, length)]
    assert later.ranges(start, logged) == [OffsetRange(P0, 0, length)]
    assert batches.latest(end, everything=True) is end


def read_before(cluster, clock, topic_id="first", offsets=8, **options):
    """The end of a first batch, as Spark's log has it."""
    cluster.ids = {"t": topic_id}
    cluster.set(0, 0, offsets)
    batches = source(cluster, clock, startingOffsets="earliest", **options)
    return logged(batches.latest(batches.initial(), everything=True))


def logged(end):
    return SourceOffset.from_json(json.loads(json.dumps(end.to_json())))


FEWER_AS_MANY_MORE = pytest.mark.parametrize("length", [3, 8, 20])


@FEWER_AS_MANY_MORE
def test_a_topic_made_anew_while_the_query_is_down_stops_it(cluster, clock, length):
    start = read_before(cluster, clock)
    cluster.ids = {"t": "second"}
    cluster.set(0, 0, length)

    with pytest.raises(DataLossError, match="deleted and created again"):
        source(cluster, clock).latest(start, everything=True)


@FEWER_AS_MANY_MORE
def test_one_made_anew_while_the_query_is_down_is_read_once_from_its_start_if_allowed(
    cluster, clock, length
):
    start = read_before(cluster, clock, failOnDataLoss="false")
    cluster.ids = {"t": "second"}
    cluster.set(0, 0, length)
    again = source(cluster, clock, failOnDataLoss="false")

    end = again.latest(start, everything=True)

    assert end.to_json() != start.to_json()  # or Spark would see nothing new
    assert again.ranges(start, end) == [OffsetRange(P0, 0, length)]
    later = source(cluster, clock, failOnDataLoss="false")
    assert later.ranges(start, logged(end)) == [OffsetRange(P0, 0, length)]
    assert later.latest(logged(end), everything=True).positions == end.positions


@pytest.mark.parametrize("fails", ["true", "false"])
@FEWER_AS_MANY_MORE
def test_a_logged_batch_is_not_read_from_another_topic(cluster, clock, fails, length):
    """It was planned, and the query died; then the topic was made anew."""
    cluster.ids = {"t": "first"}
    cluster.set(0, 0, 8)
    end = logged(source(cluster, clock).latest(at(2), everything=True))
    cluster.ids = {"t": "second"}
    cluster.set(0, 0, length)
    again = source(cluster, clock, failOnDataLoss=fails)

    if fails == "true":
        with pytest.raises(DataLossError, match="deleted and created again"):
            again.ranges(at(2), end)
        return
    assert again.ranges(at(2), end) == []
    after = again.latest(end, everything=True)
    assert again.ranges(end, after) == [OffsetRange(P0, 0, length)]


def test_a_topic_whose_id_is_not_told_for_a_while_is_what_it_was(cluster, clock):
    start = read_before(cluster, clock)
    cluster.ids = {}
    cluster.set(0, 0, 9)
    untold = logged(source(cluster, clock).latest(start, everything=True))
    cluster.ids = {"t": "second"}
    cluster.set(0, 0, 20)

    with pytest.raises(DataLossError, match="deleted and created again"):
        source(cluster, clock).latest(untold, everything=True)


def test_an_empty_topic_made_anew_is_read_once_it_holds_something(cluster, clock):
    start = read_before(cluster, clock, offsets=0, failOnDataLoss="false")
    cluster.ids = {"t": "second"}
    batches = source(cluster, clock, failOnDataLoss="false")
    assert batches.latest(start, everything=True) is start
    cluster.set(0, 0, 3)

    end = logged(batches.latest(start, everything=True))

    assert batches.ranges(start, end) == [OffsetRange(P0, 0, 3)]
    assert dict(end.topic_ids) == {"t": "second"}


def test_the_checkpoint_of_another_source_tells_no_topic(cluster, clock):
    cluster.ids = {"t": "second"}
    cluster.set(0, 0, 20)
    batches = source(cluster, clock)

    end = batches.latest(at(8), everything=True)

    assert batches.ranges(at(8), end) == [OffsetRange(P0, 8, 20)]
    assert dict(end.topic_ids) == {"t": "second"}


def test_a_topic_out_of_sight_goes_on_where_it_was(cluster, clock):
    other = TopicPartition("other", 0)
    cluster.ids = {"t": "t", "other": "o"}
    cluster.set(0, 0, 5)
    cluster.set(0, 0, 5, topic="other")
    batches = source(cluster, clock, failOnDataLoss="false", subscribe="t,other")
    start = batches.latest(SourceOffset({P0: 0, other: 0}), everything=True)
    del cluster.logs[other]
    without = batches.latest(start, everything=True)
    cluster.set(0, 0, 7, topic="other")

    end = batches.latest(without, everything=True)

    assert without == at(5)
    assert batches.ranges(without, end) == [OffsetRange(other, 5, 7)]


# --- the first batch ---


def test_a_first_batch_says_where_it_began(cluster, clock):
    cluster.set(0, 0, 6)
    batches = source(cluster, clock, startingOffsets="earliest")
    end = batches.latest(batches.initial(), everything=True)
    cluster.set(0, 3, 9)  # retention, after the batch failed

    again = source(cluster, clock, startingOffsets="earliest")
    start = again.initial()

    with pytest.raises(DataLossError, match=r"START_OFFSET_RESET.*was 0.*to 3"):
        again.ranges(start, SourceOffset.from_json(end.to_json()))


def test_a_first_batch_from_the_latest_offsets_is_read_again(cluster, clock):
    cluster.set(0, 0, 6)
    batches = source(cluster, clock)
    start = batches.initial()
    cluster.set(0, 0, 9)
    end = SourceOffset.from_json(batches.latest(start, everything=True).to_json())
    cluster.set(0, 0, 30)

    again = source(cluster, clock)

    assert again.ranges(again.initial(), end) == [OffsetRange(P0, 6, 9)]


def test_a_first_batch_without_records_is_read_whatever_has_come_since(cluster, clock):
    """Spark logs the start as its end, and asks for the start again, also later."""
    cluster.set(0, 3, 10)
    batches = source(cluster, clock)
    end = batches.latest(batches.initial(), everything=True)
    assert end == at(10)
    end = SourceOffset.from_json(end.to_json())
    cluster.set(0, 3, 12)

    assert not batches.ranges(batches.initial(), end)
    again = source(cluster, clock)
    assert not again.ranges(again.initial(), end)
    later = batches.latest(end, everything=True)
    assert batches.ranges(end, later) == [OffsetRange(P0, 10, 12)]


def test_a_first_batch_of_another_source_does_not_begin_at_a_guess(cluster, clock):
    cluster.set(0, 0, 30)
    logged = at(9)
    latest, earliest = (
        source(cluster, clock),
        source(cluster, clock, startingOffsets="earliest"),
    )
    given = source(cluster, clock, startingOffsets='{"t":{"0":6}}')

    with pytest.raises(
        OffsetsError, match=r"KAFKA_TX_START_NOT_KNOWN.*startingOffsets"
    ):
        latest.ranges(latest.initial(), logged)
    assert given.ranges(given.initial(), logged) == [OffsetRange(P0, 6, 9)]
    assert earliest.ranges(earliest.initial(), logged) == [OffsetRange(P0, 0, 9)]
    start = earliest.initial()  # of a new checkpoint: nothing is left out
    end = earliest.latest(start, everything=True)
    assert earliest.ranges(start, end) == [OffsetRange(P0, 0, 30)]


@pytest.mark.parametrize(
    ("options", "is_known"),
    [
        ({"startingTimestamp": "5"}, True),
        ({"startingTimestamp": "20"}, False),  # of a later start: begins after the end
        ({"startingTimestamp": "-1"}, False),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, False),
        ({"startingTimestamp": "-2"}, False),
        ({"startingTimestamp": "2"}, False),  # removed: the first one left answers
        ({"startingOffsets": "earliest"}, False),
        ({"startingOffsets": '{"t":{"0":-2}}'}, False),
        ({"startingOffsets": '{"t":{"0":20}}'}, False),
    ],
)
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_first_batch_begins_at_a_time_only_where_it_began_then(
    cluster, clock, options, is_known, fails
):
    cluster.set(0, 3, 30)
    again = source(cluster, clock, failOnDataLoss=fails, **options)
    start = again.initial()

    if is_known:
        assert again.ranges(start, at(9)) == [OffsetRange(P0, 5, 9)]
    elif fails == "false" and start == at(3):  # what was removed may be skipped
        assert again.ranges(start, at(9)) == [OffsetRange(P0, 3, 9)]
        assert again.skipped == {(P0, "retention"): 3}
    else:
        with pytest.raises(OffsetsError, match="KAFKA_TX_START_NOT_KNOWN"):
            again.ranges(start, at(9))


def test_a_first_batch_whose_log_does_not_answer_waits(cluster, clock):
    """Where the answer to the time is the log start, nobody knows where it began."""
    cluster.set(0, 5, 30)
    again = source(cluster, clock, startingTimestamp="2")
    start = again.initial()
    cluster.down = {P0}

    with pytest.raises(BrokerUnavailableError, match="first offset of t-0"):
        again.ranges(start, at(9))


def test_a_first_batch_that_began_at_an_offset_is_known_without_its_log(cluster, clock):
    cluster.set(0, 0, 30)
    again = source(cluster, clock, startingOffsets='{"t": {"0": 5}}')
    start = again.initial()
    cluster.down = {P0}

    assert [str(each) for each in again.ranges(start, at(9))] == ["t-0 [5, 9)"]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_first_batch_that_began_at_an_end_is_not_read_from_another_one(
    cluster, clock, fails
):
    """Spark began at 100, where no record was at or after the time, and logged 110."""
    cluster.set(0, 0, 110)
    options = {
        "startingTimestamp": "120",
        "startingOffsetsByTimestampStrategy": "latest",
        "failOnDataLoss": fails,
    }
    for end in (110, 150):  # 120 came since
        cluster.set(0, 0, end)
        again = source(cluster, clock, **options)
        with pytest.raises(OffsetsError, match="KAFKA_TX_START_NOT_KNOWN"):
            again.ranges(again.initial(), at(110))

    kept = '\0v1\n{"t":{"0":100}}'  # sources/0/0 of the checkpoint, as the error says
    given = source(cluster, clock, startingOffsets=kept.partition("v1")[2])
    assert given.ranges(given.initial(), at(110)) == [OffsetRange(P0, 100, 110)]


# --- losses ---


def test_a_partition_that_appears_late_and_trimmed_is_a_loss(cluster, clock):
    cluster.set(0, 0, 10)
    cluster.set(1, 2, 10)

    with pytest.raises(DataLossError, match=r"ADDED_PARTITION.*t-1 starts from 2"):
        source(cluster, clock).latest(at(10), everything=True)


# --- ranges of a batch that an earlier process logged ---


def test_a_logged_batch_is_read_between_its_ends(cluster, clock):
    cluster.set(0, 0, 50)
    cluster.set(1, 0, 50)

    ranges = source(cluster, clock).ranges(at(4, 5), at(10, 5))

    assert ranges == [OffsetRange(P0, 4, 10)]


def test_a_partition_new_in_a_logged_batch_is_read_from_its_beginning(cluster, clock):
    cluster.set(0, 0, 50)
    cluster.set(1, 0, 50)

    ranges = source(cluster, clock).ranges(at(4), at(10, 6))

    assert ranges == [OffsetRange(P0, 4, 10), OffsetRange(P1, 0, 6)]


def test_where_a_new_partition_began_is_never_guessed(cluster, clock):
    cluster.set(0, 0, 50)
    cluster.set(1, 0, 50)
    cluster.down = {P1}

    with pytest.raises(BrokerUnavailableError, match="t-1"):
        source(cluster, clock).ranges(at(4), at(10, 6))


def test_what_is_left_of_a_logged_batch_counts_only_its_own_losses(cluster, clock):
    cluster.set(0, 8, 50)
    cluster.set(1, 30, 50)
    batches = source(cluster, clock, failOnDataLoss="false")

    ranges = batches.ranges(at(4, 5), at(10, 20))

    assert ranges == [OffsetRange(P0, 8, 10)]
    assert batches.skipped == {(P0, "retention"): 4, (P1, "retention"): 15}


def test_an_empty_range_loses_nothing(cluster, clock):
    cluster.set(0, 0, 50)
    cluster.set(1, 30, 50)

    ranges = source(cluster, clock).ranges(at(4, 5), at(10, 5))

    assert ranges == [OffsetRange(P0, 4, 10)]


def test_a_logged_batch_beyond_the_log_reads_what_is_there_if_allowed(cluster, clock):
    cluster.set(0, 0, 20)
    batches = source(cluster, clock, failOnDataLoss="false")

    ranges = batches.ranges(at(4), at(50))
    assert batches.skipped == {(P0, "cut"): 30}
    cluster.set(0, 0, 60)
    after = batches.latest(at(50), everything=True)

    assert ranges == [OffsetRange(P0, 4, 20)]
    assert batches.ranges(at(50), after) == [OffsetRange(P0, 20, 60)]
    with pytest.raises(DataLossError, match="PARTITION_OFFSET_CHANGED"):
        source(cluster, clock).ranges(at(4), at(70))


def test_ranges_are_asked_twice_and_are_the_same(cluster, clock):
    cluster.set(0, 0, 50)
    batches = source(cluster, clock)

    assert batches.ranges(at(4), at(10)) == batches.ranges(at(4), at(10))


def test_the_report_shows_the_end_of_every_partition(cluster, clock):
    cluster.set(0, 2, 50)
    batches = source(cluster, clock, maxOffsetsPerTrigger="5")
    assert batches.report() is None

    batches.latest(at(4), everything=False)

    bounds = batches.report().bounds
    assert {p: (log.log_start, log.end) for p, log in bounds.items()} == {P0: (2, 50)}


# --- nothing new ----------------------------------------------------------------------


class Watched(FakeCluster):
    """Counts the questions for starts and ends, and those for ends alone."""

    whole = only_ends = 0

    def bounds(self, partitions):
        self.whole += 1
        return super().bounds(partitions)

    def ends(self, partitions):
        self.only_ends += 1
        found = FakeCluster.bounds(self, partitions)
        return {
            p: (b.end, b.leader_epoch)
            for p, b in found.items()
            if isinstance(b, LogBounds)
        }

    def asked(self):
        """Both numbers, since the last time."""
        whole, only_ends, self.whole, self.only_ends = self.whole, self.only_ends, 0, 0
        return whole, only_ends


@pytest.fixture
def resting(clock):
    """A query that read two logs to their ends, and was asked again."""
    cluster = Watched()
    cluster.ids["t"] = "old"
    cluster.set(0, 0, 10)
    cluster.set(1, 0, 7)
    batches = source(cluster, clock, startingOffsets="earliest", failOnDataLoss="false")
    end = batches.latest(batches.initial(), everything=True)
    assert batches.latest(end, everything=True) is end
    cluster.asked()
    return cluster, batches, end


def test_while_nothing_is_new_only_ends_are_asked_for(resting):
    cluster, batches, end = resting

    for _ in range(3):
        assert batches.latest(end, everything=True) is end

    assert cluster.asked() == (0, 3)
    copied = SourceOffset.from_json(json.loads(json.dumps(end.to_json())))
    assert batches.latest(copied, everything=False) is copied
    assert cluster.asked() == (0, 1)


def test_a_new_record_ends_the_rest(resting):
    cluster, batches, end = resting
    batches.latest(end, everything=True)

    cluster.set(0, 0, 11)
    after = batches.latest(end, everything=True)

    assert after == at(11, 7)
    assert batches.ranges(end, after) == [OffsetRange(P0, 10, 11)]


def cut_and_grown_again(cluster):
    """A new leader lost a record, and has another one in its place."""
    cluster.epochs[P0] = 1
    cluster.ended[P0, 0] = 9


def made_anew(cluster):
    """The topic is another one with as many records."""
    cluster.ids["t"] = "new"


@pytest.mark.parametrize(
    ("happens", "read"),
    [
        (cut_and_grown_again, {P0: (9, 10)}),
        (made_anew, {P0: (0, 10), P1: (0, 7)}),
        (lambda cluster: cluster.set(2, 0, 1), {P2: (0, 1)}),
        (lambda cluster: cluster.set(0, 0, 4), {}),
    ],
    ids=["cut and grown", "made anew", "added", "cut"],
)
@pytest.mark.parametrize("rests", [0, 2])
def test_what_happens_to_quiet_logs_is_seen(clock, happens, read, rests):
    """As soon as by a query that has never rested."""
    cluster = Watched()
    cluster.ids["t"], cluster.epochs = "old", {P0: 0, P1: 0, P2: 0}
    cluster.set(0, 0, 10)
    cluster.set(1, 0, 7)
    batches = source(cluster, clock, startingOffsets="earliest", failOnDataLoss="false")
    end = batches.latest(batches.initial(), everything=True)
    for _ in range(rests):
        batches.latest(end, everything=True)

    happens(cluster)
    after = batches.latest(end, everything=True)

    found = {r.topic_partition: (r.start, r.end) for r in batches.ranges(end, after)}
    assert found == read
    assert after is not end


def test_starts_are_asked_for_now_and_then(resting, clock):
    cluster, batches, end = resting

    clock.sleep_ms(WHOLE_POLL_MS)

    assert batches.latest(end, everything=True) is end
    assert cluster.asked() == (1, 0)


def test_a_leader_that_is_away_ends_the_rest_until_it_is_back(resting):
    cluster, batches, end = resting

    cluster.down.add(P0)
    assert [batches.latest(end, everything=True) for _ in range(2)] == [end, end]
    assert cluster.asked() == (2, 0), "its topic has another leader now"
    cluster.down.clear()
    assert [batches.latest(end, everything=True) for _ in range(2)] == [end, end]
    assert cluster.asked() == (1, 1)


def test_the_longest_delay_counts_from_the_last_rest(clock):
    cluster = Watched()
    cluster.set(0, 0, 10)
    batches = source(
        *(cluster, clock),
        startingOffsets="earliest",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="10s",
    )
    end = batches.latest(batches.initial(), everything=False)
    for _ in range(4):  # a rest begins when the delay is over
        clock.sleep_ms(10_000)
        assert batches.latest(end, everything=False) is end
    cluster.asked()
    clock.sleep_ms(9_000)
    assert batches.latest(end, everything=False) is end
    assert cluster.asked() == (0, 1)

    cluster.set(0, 0, 11)
    assert batches.latest(end, everything=False) is end, "one record of five"
    clock.sleep_ms(1_000)
    assert batches.latest(end, everything=False) == at(11)
