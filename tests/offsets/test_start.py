from dataclasses import replace

import pytest

from kafka_tx.errors import DataLossError
from kafka_tx.model import (
    AtOffset,
    AtTime,
    CommittedOffset,
    Earliest,
    Latest,
    LogBounds,
    TopicPartition,
)
from kafka_tx.offsets.loss import LossReason, OutOfRange
from kafka_tx.offsets.start import StartRules, choose_start, skip_below, vanished

ORDERS = TopicPartition("orders", 3)
LOG = LogBounds(log_start=100, end=1_000)


def start(rules=None, *, stored=None, resolved=100, bounds=LOG, topic_id=None):
    return choose_start(
        ORDERS,
        rules or StartRules(topology_id="wc-7"),
        stored=stored,
        resolved=resolved,
        bounds=replace(bounds, topic_id=topic_id),
    )


def test_without_a_stored_offset_the_start_position_counts():
    decision = start(StartRules(position=Latest()), resolved=1_000)

    assert decision.committed == CommittedOffset(1_000)
    assert decision.reason == (
        "orders-3 starts at 1000: no stored offset; start position is latest"
    )


def test_a_restart_of_the_same_topology_resumes_though_stored_offsets_are_ignored():
    rules = StartRules(topology_id="wc-7", ignore_stored_offsets=True)

    decision = start(rules, stored=CommittedOffset(500, topology_id="wc-7"))

    assert decision.committed.offset == 500
    assert decision.reason == ("orders-3 starts at 500: stored offset of this topology")


def test_another_topology_begins_anew_when_stored_offsets_are_ignored():
    rules = StartRules(topology_id="wc-8", ignore_stored_offsets=True)

    decision = start(rules, stored=CommittedOffset(500, topology_id="wc-7"))

    assert decision.committed == CommittedOffset(100)
    assert (
        "stored offset 500 of topology 'wc-7' is ignored by 'wc-8'" in decision.reason
    )


def test_another_topology_goes_on_when_stored_offsets_are_not_ignored():
    decision = start(stored=CommittedOffset(500, topology_id="wc-6"))

    assert decision.committed.offset == 500
    assert decision.reason.endswith("stored offset of topology 'wc-6'")


def test_what_is_completed_beyond_the_stored_offset_stays_so():
    stored = CommittedOffset(500, completed=((510, 520),))

    assert start(stored=stored).committed == stored


def test_offset_zero_is_an_offset_like_any_other():
    decision = start(
        StartRules(position=Latest()),
        stored=CommittedOffset(0),
        resolved=1_000,
        bounds=LogBounds(0, 1_000),
    )

    assert decision.committed.offset == 0


@pytest.mark.parametrize(("behind", "begins_at"), [(500, 500), (499, 1_000)])
def test_a_stored_offset_too_far_behind_the_position_is_not_used(behind, begins_at):
    rules = StartRules(position=Latest(), max_offset_behind=behind)
    stored = CommittedOffset(500, completed=((600, 650),))

    decision = start(rules, stored=stored, resolved=1_000)

    assert decision.committed.offset == begins_at
    lost = {LossReason.BEHIND: 450} if begins_at == 1_000 else {}
    assert decision.lost == lost


def test_a_start_time_is_named_as_it_was_given():
    decision = start(StartRules(position=AtTime(17)), resolved=1_000)

    assert decision.committed.offset == 1_000
    assert "start position is time 17 ms" in decision.reason


def test_a_trimmed_start_moves_to_the_log_start_and_counts_what_was_not_done():
    stored = CommittedOffset(40, completed=((50, 60), (90, 120), (300, 310)))

    decision = start(stored=stored)

    # 40..49 and 60..89 are gone; 100..119 was done already
    assert decision.lost == {LossReason.TRIMMED: 40}
    assert decision.committed == CommittedOffset(120, completed=((300, 310),))
    assert "40 was trimmed, the log starts at 100" in decision.reason


@pytest.mark.parametrize("policy", ["earliest", "nearest"])
def test_a_stored_offset_above_the_log_end_repeats_nothing(policy):
    rules = StartRules(out_of_range=OutOfRange.parse(policy))
    stored = CommittedOffset(5_000, completed=((5_010, 5_020),))

    decision = start(rules, stored=stored)

    assert decision.committed == CommittedOffset(1_000)
    assert "5020 is above 1000, where the log ends or" in decision.reason
    assert decision.lost == {LossReason.CUT: 4_020}


def test_what_is_completed_above_the_log_end_is_of_other_records():
    stored = CommittedOffset(
        900,
        completed=((950, 960), (990, 1_010), (1_020, 1_030)),
        failures=((940, 941, 2), (1_012, 1_014, 1)),
    )

    decision = start(StartRules(), stored=stored)

    assert decision.committed == CommittedOffset(
        900, completed=((950, 960), (990, 1_000)), failures=((940, 941, 2),)
    )
    assert decision.lost == {LossReason.CUT: 30}


@pytest.mark.parametrize("outside", [99, 1_001])
def test_a_start_outside_of_the_log_stops_when_the_policy_is_to_fail(outside):
    rules = StartRules(position=AtOffset(outside), out_of_range=OutOfRange.FAIL)

    with pytest.raises(DataLossError, match=r"earliest.*orders-3") as raised:
        start(rules, resolved=outside)

    assert raised.value.fields == {
        "topic": "orders",
        "partition": 3,
        "wanted": outside,
        "log_start": 100,
        "log_end": 1_000,
    }


@pytest.mark.parametrize("edge", [100, 1_000])
def test_both_edges_of_the_log_are_inside(edge):
    rules = StartRules(out_of_range=OutOfRange.FAIL, position=AtOffset(edge))

    assert start(rules, resolved=edge).reason == (
        f"orders-3 starts at {edge}: no stored offset; start position is offset {edge}"
    )


def test_the_default_position_is_the_earliest():
    assert StartRules().position == Earliest()


def test_skipping_below_an_offset_within_a_completed_run_goes_on_after_it():
    committed = CommittedOffset(0, ((10, 20), (30, 40)), topology_id="wc-7")

    assert skip_below(committed, 0) == committed
    assert skip_below(committed, 15) == CommittedOffset(20, ((30, 40),), "wc-7")
    assert skip_below(committed, 40) == CommittedOffset(40, (), "wc-7")


@pytest.mark.parametrize("offset", [50, 500, 5_000])
def test_a_topic_that_was_made_anew_is_read_whole(offset):
    stored = CommittedOffset(offset, topic_id="former")

    same = start(StartRules(), stored=stored, topic_id="former")
    unknown = start(StartRules(), stored=stored, topic_id=None)
    other = start(StartRules(), stored=stored, topic_id="latter")

    assert same.committed.offset == unknown.committed.offset
    assert other.committed == CommittedOffset(100, topic_id="latter")
    assert "created again" in other.reason
    with pytest.raises(DataLossError, match="deleted and created again"):
        start(
            StartRules(out_of_range=OutOfRange.FAIL), stored=stored, topic_id="latter"
        )


@pytest.mark.parametrize(
    ("stored", "gone"), [((), []), ((0, 1), []), ((1, 3), [0, 2]), ((0, 1, 2, 3), [])]
)
def test_an_offset_is_gone_where_a_later_partition_has_one(stored, gone):
    """What lies above all that are stored is new."""
    wanted = [TopicPartition("orders", number) for number in range(4)]

    found = vanished(wanted, {wanted[n]: CommittedOffset(5) for n in stored})

    assert found == [wanted[n] for n in gone]
