"""From root numbers back to offsets."""

import numpy as np

from kafka_tx.model import (
    CommittedOffset,
    OffsetRange,
    TopicPartition,
    TransactionAttempt,
)
from kafka_tx.offsets.emitting import Emission
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.unfinished import PartitionRules
from kafka_tx.running.at_least_once.in_flight_chunk import InFlightChunk
from kafka_tx.running.at_least_once.record_outcomes import RecordOutcomes
from kafka_tx.testing import ManualClock

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def started(first_root, *ranges):
    emissions = [
        Emission(
            PartitionManager(partition, PartitionRules(), CommittedOffset(0)),
            OffsetRange(partition, start, end),
            1,
        )
        for partition, start, end in ranges
    ]
    attempt = TransactionAttempt(1, 1)
    return InFlightChunk(attempt, "spout", first_root, emissions, since_ms=0)


def answers():
    return RecordOutcomes({}, lambda event: event(), ManualClock())


def spans(found):
    return [(r.topic_partition, r.start, r.end) for _, r in found]


def test_roots_are_numbered_through_all_ranges():
    made = started(100, (A, 5, 8), (B, 0, 2))

    assert [n.first_root for n in made.numbered] == [100, 103]
    assert (made.end, made.open) == (105, 5)
    assert made.roots.tolist() == [100, 101, 102, 103, 104]


def test_roots_become_runs_of_offsets_of_their_ranges():
    made = started(100, (A, 5, 8), (A, 20, 21), (B, 0, 2))

    found = list(made.offsets(np.array([100, 102, 103, 104])))

    assert spans(found) == [(A, 5, 6), (A, 7, 8), (A, 20, 21), (B, 0, 1)]
    assert [e.range.start for e, _ in found] == [5, 5, 20, 0]
    assert spans(made.offsets(made.roots)) == [(A, 5, 8), (A, 20, 21), (B, 0, 2)]


def test_a_flight_is_forgotten_with_its_last_record():
    in_flight, made = answers(), started(0, (A, 0, 3))
    in_flight.sent(made)

    assert made in in_flight
    assert (in_flight.open, made.open) == (3, 3)
    in_flight.unused(made)
    assert made not in in_flight
    assert in_flight.open == 0


def test_a_flight_falls_out_with_the_second_rotation_after_it_was_sent():
    in_flight = answers()
    one, two = started(0, (A, 0, 3)), started(3, (B, 0, 3))
    in_flight.sent(one)
    assert in_flight.rotate() == []
    in_flight.sent(two)

    assert in_flight.rotate() == [one]

    assert one not in in_flight
    assert two in in_flight
    assert in_flight.rotate() == [two]


def test_a_flight_that_is_waited_for_has_its_time_anew():
    in_flight, made = answers(), started(0, (A, 0, 3))
    in_flight.sent(made)
    in_flight.rotate()
    in_flight.rotate()

    in_flight.sent(made)

    assert in_flight.rotate() == []
    assert in_flight.rotate() == [made]
