"""What a batch read's plan leaves open, and what its tasks make of it later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_tx import assembly
from kafka_tx.config import BatchLimits, FromCommitted, PerPartition, SourceConfig
from kafka_tx.errors import (
    DataLossError,
    OffsetsError,
    OtherTopicError,
    UnknownTopicError,
)
from kafka_tx.model import (
    Assigned,
    AtOffset,
    AtTime,
    Earliest,
    Latest,
    LogPosition,
    OffsetRange,
    TopicPartition,
    TopicPattern,
    Topics,
)
from kafka_tx.planning.open_ranges import bound, came_since
from kafka_tx.spark.source.batch import plan
from kafka_tx.testing import MemoryLog

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))


@pytest.fixture
def log():
    log = MemoryLog({"t": 2})
    log.append(P0, *[b"v"] * 10, timestamp_ms=1)
    return log


def config(**more):
    given: dict[str, Any] = {"subscription": Topics(("t",)), "kafka": {}}
    given["start"] = Earliest()
    return SourceConfig(**(given | more))


def offsets(log, config, planned=None):
    """The non-empty ranges that the tasks of a plan read now."""
    found: list[OffsetRange] = []
    for partition in planned or plan(config, log):
        if partition.task is not None:
            found.append(bound(config, log, partition.task))
        if partition.planned is not None:
            found += came_since(config, log, partition.planned)
    return [(r.topic_partition.partition, r.start, r.end) for r in found if len(r)]


def test_latest_and_earliest_mean_what_they_mean_when_a_task_runs(log):
    planned = plan(config(), log)
    first = offsets(log, config(), planned)
    log.append(P0, b"v")
    log.append(P1, b"v")
    log.trim(P0, 4)

    assert first == [(0, 0, 10)]
    assert offsets(log, config(), planned) == [(0, 4, 11), (1, 0, 1)]


def test_numbers_stay_and_open_ends_beside_them_move(log):
    given = config(
        start=PerPartition(positions={P0: AtOffset(3), P1: Earliest()}),
        end=PerPartition(positions={P0: Latest(), P1: Latest()}),
    )
    planned = plan(given, log)
    log.append(P0, b"v")

    assert offsets(log, given, planned) == [(0, 3, 11)]


def test_what_is_given_by_numbers_is_read_without_asking(log):
    both = config(
        subscription=Assigned((P0,)),
        start=PerPartition(positions={P0: AtOffset(3)}),
        end=PerPartition(positions={P0: AtOffset(7)}),
    )

    (partition,) = plan(both, log)

    assert partition.planned is None
    assert partition.task is not None
    assert partition.task.given() == OffsetRange(P0, 3, 7)


def test_a_time_is_looked_up_by_each_job(log):
    given = config(start=AtTime(1), end=AtTime(2), start_without_match="latest")
    planned = plan(given, log)
    log.append(P0, b"late", timestamp_ms=1)
    log.append(P0, b"later", timestamp_ms=2)

    assert offsets(log, given, planned) == [(0, 0, 11)]


def test_an_end_time_after_all_records_is_the_end_also_of_what_came_since(log):
    given = config(end=AtTime(99))
    planned = plan(given, log)
    log.append(P0, b"late", timestamp_ms=1)
    log.add_partitions("t", 3)
    log.append(P2, b"v", timestamp_ms=1)

    assert offsets(log, given, planned) == [(0, 0, 11), (2, 0, 1)]


@pytest.mark.parametrize(
    "limits", [{"min_partitions": 4}, {"max_records_per_partition": 3}]
)
def test_cuts_hold_and_the_outer_ends_move(log, limits):
    given = config(limits=BatchLimits(**limits))
    planned = plan(given, log)
    first = offsets(log, given, planned)
    log.append(P0, b"v", b"v")
    log.trim(P0, 4)

    second = offsets(log, given, planned)

    assert len(first) == 4
    assert [start for _, start, _ in first[1:]] == [end for _, _, end in first[:-1]]
    assert (first[0][1], first[-1][2]) == (0, 10)
    assert [start for _, start, _ in second[1:]] == [end for _, _, end in second[:-1]]
    assert (second[0][1], second[-1][2]) == (4, 12)


def test_partitions_that_came_since_are_read_once(log):
    planned = plan(config(), log)
    log.add_partitions("t", 3)
    log.append(P2, b"v")

    assert offsets(log, config(), planned) == [(0, 0, 10), (2, 0, 1)]


def test_partitions_that_came_since_must_be_named_where_all_are(log):
    start = PerPartition(positions={P0: AtOffset(1), P1: Earliest()})
    planned = plan(config(start=start), log)
    log.add_partitions("t", 3)

    with pytest.raises(OffsetsError, match="Name every partition") as caught:
        offsets(log, config(start=start), planned)
    assert "t-2" in str(caught.value)


def test_topics_of_a_pattern_come_and_go(log):
    by_pattern = config(subscription=TopicPattern("t.*"))
    planned = plan(by_pattern, log)
    log.delete("t")
    log.create("t2", 1)
    log.append(TopicPartition("t2", 0), b"v")

    assert offsets(log, by_pattern, planned) == [(0, 0, 1)]


def test_a_pattern_without_topics_finds_the_first_one():
    log, by_pattern = MemoryLog({}), config(subscription=TopicPattern("t.*"))
    planned = plan(by_pattern, log)
    log.create("t", 1)
    log.append(P0, b"v")

    assert offsets(log, by_pattern, planned) == [(0, 0, 1)]


def test_a_named_topic_that_is_gone_is_an_error(log):
    planned = plan(config(), log)
    log.delete("t")

    with pytest.raises(UnknownTopicError):
        offsets(log, config(), planned)


CUT = {"limits": BatchLimits(min_partitions=4)}
FROM_A_NUMBER = {"start": PerPartition(positions={P0: AtOffset(3), P1: Earliest()})}
TO_A_NUMBER = {"end": PerPartition(positions={P0: AtOffset(3), P1: Latest()})}


@pytest.mark.parametrize("holding", [CUT, FROM_A_NUMBER, TO_A_NUMBER])
def test_a_plan_that_holds_offsets_is_not_read_from_another_topic(log, holding):
    given = config(**holding)
    task = next(p.task for p in plan(given, log) if p.task is not None)
    assert list(log.read(bound(given, log, task)))
    log.create("t", 2)
    log.append(P0, *[b"new"] * 12)

    with pytest.raises(OtherTopicError):
        list(log.read(bound(given, log, task)))


def test_a_plan_without_offsets_is_of_the_topic_that_is_there(log):
    task = next(p.task for p in plan(config(), log) if p.task is not None)
    log.create("t", 2)
    log.append(P0, b"new")
    wanted = bound(config(), log, task)

    assert [batch.num_rows for batch in log.read(wanted)] == [1]
    log.create("t", 2)  # between looking and reading
    log.append(P0, b"newer")
    with pytest.raises(OtherTopicError):
        list(log.read(wanted))


def test_partitions_that_came_are_of_the_topic_that_is_there(log):
    (wanted, *_) = came_since(config(), log, frozenset())
    log.create("t", 2)
    log.append(P0, *[b"new"] * 12)

    with pytest.raises(OtherTopicError):
        list(log.read(wanted))


@pytest.fixture
def committed(monkeypatch, log):
    """Of a topic that has been made anew since."""
    (former,) = (topic.topic_id for topic in log.topics(Topics(("t",))).values())
    stored = {P0: LogPosition(6, former), P1: LogPosition(0, former)}
    monkeypatch.setattr(assembly, "stored_offsets", lambda config: stored)
    log.create("t", 2)
    log.append(P0, *[b"new"] * 9)
    return config(start=FromCommitted(), fails_on_data_loss=False)


def test_what_is_committed_of_another_topic_is_no_start(log, committed):
    with pytest.raises(DataLossError, match="deleted and created again"):
        plan(replace(committed, fails_on_data_loss=True), log)

    assert offsets(log, committed) == [(0, 0, 9)]


def test_what_is_committed_of_the_topic_that_is_there_is_the_start(
    monkeypatch, log, committed
):
    (now,) = (topic.topic_id for topic in log.topics(Topics(("t",))).values())
    stored = {P0: LogPosition(6, now), P1: LogPosition(0, None)}
    monkeypatch.setattr(assembly, "stored_offsets", lambda config: stored)

    assert offsets(log, committed) == [(0, 6, 9)]
