"""How long tasks give rows to bolts, and how large chunks become."""

from __future__ import annotations

import numpy as np
import pytest

from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.at_least_once.topology import TopologyBuilder
from kafka_tx.topology.at_least_once.chunks import run_chunk
from kafka_tx.topology.at_least_once.pace import (
    FIRST_RECORDS,
    MOST_RECORDS,
    ROWS_PER_TURN,
    ChunkSize,
    Pace,
    Turns,
)
from kafka_tx.topology.declare.bolts import BasicBolt
from kafka_tx.topology.rows.blocks import Block
from kafka_tx.topology.rows.fields import Fields
from tests.local_engine import GivenRecords, LocalEngine


class Time:
    now_s = 0.0

    def __call__(self):
        return self.now_s


the_time = Time()
done: list[str] = []


class Slow(BasicBolt):
    def execute(self, row, collector):
        the_time.now_s += row.seconds
        done.append(row.word)


class Spout:
    fields = Fields.parse("word string, seconds double")

    def empty_chunk(self):
        return GivenRecords(())


@pytest.fixture(autouse=True)
def at_the_beginning():
    the_time.now_s = 0.0
    done.clear()


def run(rows, within_s, *, blocks=1, exchange=False, tasks=1):
    builder = TopologyBuilder("job")
    builder.set_spout("spout", Spout(), tasks)
    bolt = builder.set_bolt("slow", Slow, tasks).on_executors()
    if exchange:
        bolt.fields_grouping("spout", ["word"])
    else:
        bolt.shuffle_grouping("spout")
    parts = tuple(rows[n::blocks] for n in range(blocks))
    chunk = run_chunk(
        builder.build().plan,
        TransactionAttempt(1, 1),
        {"spout": GivenRecords(parts)},
        LocalEngine(),
        Pace(within_s, the_time),
    )
    settled = chunk.settle(0, len(rows))
    assert len(settled.open) == 0
    return settled


def rows_of(count, seconds):
    return [(f"w{n}", seconds) for n in range(count)]


@pytest.mark.parametrize("exchange", [False, True])
@pytest.mark.parametrize("blocks", [1, 7])
def test_a_task_stops_giving_rows_when_its_time_is_over(exchange, blocks):
    settled = run(rows_of(700, 0.1), 5.0, exchange=exchange, blocks=blocks)

    assert len(settled.completed) == len(done)
    assert 5.0 <= the_time.now_s < 6.5
    assert len(settled.failed) == 0
    together = np.concatenate([settled.completed, settled.untried])
    assert sorted(together.tolist()) == list(range(700))


@pytest.mark.parametrize("exchange", [False, True])
def test_what_is_quick_is_done_whole(exchange):
    settled = run(rows_of(20_000, 0.0), 5.0, exchange=exchange, tasks=2)

    assert len(settled.completed) == 20_000
    assert len(settled.untried) == 0


def test_the_first_rows_are_given_however_long_they_take():
    settled = run(rows_of(20, 1_000.0), 5.0)

    assert settled.completed.tolist() == list(range(8))
    assert settled.untried.tolist() == list(range(8, 20))


def test_turns_follow_the_speed_of_bolts():
    turns = Turns(Pace(16.0, the_time))
    sizes = []
    for seconds in (0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 8.0):
        sizes.append(turns.rows)
        turns.begin()
        the_time.now_s += seconds
        turns.done()

    assert sizes == [8, 32, 128, 512, 2048, ROWS_PER_TURN, 1024]
    assert turns.rows == 128
    assert not turns.is_over


def test_without_a_time_out_there_is_no_end():
    turns = Turns(Pace.of(None, the_time))
    turns.begin()
    the_time.now_s += 1e6
    turns.done()

    assert (turns.rows, turns.is_over) == (32, False)


def test_a_chunk_becomes_as_large_as_could_be_worked_off():
    size = ChunkSize(10_000)

    size.ended(10_000, 900)
    assert size.records == 900
    size.ended(900, 900)
    assert size.records == 1_800
    size.ended(1_800, 0)
    assert size.records == 1


def test_a_record_that_hangs_is_alone_after_a_few_chunks_and_the_others_are_done():
    size, left, steps = ChunkSize(10_000), list(range(10_000)), 0
    guilty = 7_777
    while True:
        sent = left[: size.records]
        if guilty not in sent:
            size.ended(len(sent), len(sent))
            left = left[len(sent) :]
            continue
        if len(sent) == 1:
            break
        size.timed_out(len(sent))
        steps += 1

    assert steps <= 5


def test_chunks_grow_while_their_longest_task_is_quick_and_shrink_when_it_is_slow():
    size = ChunkSize(MOST_RECORDS)
    speed = 100_000.0  # records in a second

    def sizes():
        for _ in range(12):
            size.ended(size.records, size.records, size.records / speed)
        return size.records

    assert sizes() == pytest.approx(100_000, rel=0.01)
    speed = 1e7
    assert sizes() == MOST_RECORDS
    speed = 60_000.0
    assert sizes() == pytest.approx(60_000, rel=0.01)
    speed = 100.0
    assert sizes() == FIRST_RECORDS


def test_a_few_records_that_came_by_now_tell_little_about_larger_chunks():
    size = ChunkSize(MOST_RECORDS)

    for _ in range(20):
        size.ended(500, 500, 0.001)
    assert size.records == FIRST_RECORDS
    for _ in range(20):
        size.ended(8_000, 8_000, 0.001)
    assert size.records == 128_000


def test_chunks_of_many_tasks_do_not_grow_while_tasks_wait_for_each_other():
    size = ChunkSize(MOST_RECORDS)

    for _ in range(12):
        size.ended(size.records, size.records, size.records / 1e6, size.records / 2e4)

    assert size.records == pytest.approx(80_000, rel=0.01)


def test_a_quick_bolt_has_its_largest_chunk_after_two():
    size = ChunkSize(MOST_RECORDS)

    for _ in range(2):
        size.ended(size.records, size.records, size.records / 2e6)

    assert size.records == MOST_RECORDS


def test_a_large_chunk_that_is_lost_is_small_at_once():
    size = ChunkSize(MOST_RECORDS)
    while size.records < MOST_RECORDS:
        size.ended(size.records, size.records)

    size.lost(MOST_RECORDS)

    assert size.records == FIRST_RECORDS // 2
    size.ended(5_000, 5_000)
    assert size.records == FIRST_RECORDS // 2


def test_a_chunk_is_as_slow_as_its_slowest_task():
    builder = TopologyBuilder("job")
    builder.set_spout("spout", Spout(), 2)
    builder.set_bolt("slow", Slow, 2).shuffle_grouping("spout")
    blocks: tuple[Block, ...] = ([("a", 1.0)], [("b", 5.0)], [("c", 2.0)])
    chunk = run_chunk(
        builder.build().plan,
        TransactionAttempt(1, 1),
        {"spout": GivenRecords(blocks)},
        LocalEngine(),
        Pace.of(None, the_time),
    )

    assert chunk.took_s == 5.0


def test_sizes_stay_within_their_bounds():
    size = ChunkSize(3)
    for _ in range(5):
        size.lost(1)
    assert size.records == 1
    for _ in range(5):
        size.ended(1, 1)
    assert size.records == 3


def test_a_chunk_of_one_record_may_use_the_whole_time_out():
    alone, together = (Pace.of(8_000, the_time, records=n) for n in (1, 2))

    assert (alone.within_s, together.within_s) == (8.0, 1.0)


def test_after_a_chunk_that_finished_no_record_the_next_ones_hold_one_each():
    size, left, wasted = ChunkSize(100), 40, 0
    while left:
        sent = min(size.records, left)
        if sent > 1:  # each of these records needs more than a chunk of many may take
            size.ended(sent, 0)
            wasted += 1
        else:
            size.ended(1, 1)
            left -= 1

    assert wasted <= 1 + 40 // 8
