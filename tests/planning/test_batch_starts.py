from dataclasses import replace

import pytest

from kafka_tx.errors import DataLossError, FetchError
from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.offsets.loss import OF_SPOUTS, Losses, OutOfRange
from kafka_tx.planning.batch_starts import choose_starts

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LOGS = {A: LogBounds(10, 100), B: LogBounds(0, 50)}


def at_once(partition, check):
    return True


def starts(
    lasts,
    policy=OutOfRange.FAIL,
    known=LOGS,
    id_=None,
    at=None,
    believes=at_once,
    awaited=(),
):
    logs = {partition: replace(log, topic_id=id_) for partition, log in known.items()}
    losses = Losses(policy, OF_SPOUTS)
    return choose_starts(lasts, logs, losses, at, believes, awaited), losses.take()


def test_the_first_batch_starts_at_the_earliest():
    assert starts({A: None, B: None}) == ({A: 10, B: 0}, {})


def test_the_first_batch_starts_where_the_position_is():
    found, _ = starts({A: None, B: None}, at={A: 100, B: 50})

    assert found == {A: 100, B: 50}


def test_a_time_after_all_records_is_the_end():
    found, _ = starts({A: None}, known={A: LOGS[A]}, at={A: None})

    assert found == {A: 100}


def test_a_partition_that_comes_later_starts_at_the_earliest():
    found, _ = starts({A: LogPosition(30, None), B: None})

    assert found == {A: 30, B: 0}


@pytest.mark.parametrize(
    ("known", "answer"),
    [(LOGS, Unavailable("no leader")), ({A: LOGS[A]}, 50)],
    ids=["no position", "no log"],
)
def test_the_first_batch_waits_for_every_partition(known, answer):
    with pytest.raises(FetchError, match="t-1 has no start position yet") as waits:
        starts({A: None, B: None}, known=known, at={A: 100, B: answer})

    assert waits.value.retryable


def test_from_the_earliest_the_first_batch_waits_for_nobody():
    assert starts({A: None, B: None}, known={A: LOGS[A]})[0] == {A: 10}


def test_a_first_offset_beyond_the_end_fails_or_is_the_end_as_in_the_source():
    known, at = {A: LOGS[A]}, {A: 101}

    with pytest.raises(DataLossError, match="101"):
        starts({A: None}, known=known, at=at)
    found, lost = starts({A: None}, OutOfRange.EARLIEST, known=known, at=at)
    assert (found, lost) == ({A: 100}, {(A, "cut"): 1})


def test_the_first_batch_waits_until_an_end_below_its_start_is_certain():
    known, at, policy = {A: LOGS[A]}, {A: 101}, OutOfRange.EARLIEST

    with pytest.raises(FetchError, match="t-0 has no start position yet") as waits:
        starts({A: None}, policy, known=known, at=at, believes=lambda *_: False)

    assert waits.value.retryable


def test_a_first_offset_that_was_trimmed_fails_or_is_counted_as_in_the_source():
    known, at = {A: LOGS[A]}, {A: 4}

    with pytest.raises(DataLossError, match="was 4 but consumer reset to 10"):
        starts({A: None}, known=known, at=at)
    found, lost = starts({A: None}, OutOfRange.EARLIEST, known=known, at=at)
    assert (found, lost) == ({A: 10}, {(A, "retention"): 6})


def test_a_partition_that_comes_later_and_trimmed_is_a_loss_as_in_the_source():
    lasts = {A: None, B: LogPosition(30, None)}

    with pytest.raises(DataLossError, match="t-0 starts from 10 instead of 0"):
        starts(lasts)
    found, lost = starts(lasts, OutOfRange.EARLIEST)
    assert (found, lost) == ({A: 10, B: 30}, {(A, "retention"): 10})


def test_a_partition_that_the_first_batch_had_to_leave_out_has_lost_nothing():
    found, lost = starts({A: None, B: LogPosition(30, None)}, awaited={A})

    assert (found, lost) == ({A: 10, B: 30}, {})


def test_a_batch_goes_on_where_the_one_before_ended():
    lasts = {A: LogPosition(30, None), B: LogPosition(50, None)}

    assert starts(lasts) == ({A: 30, B: 50}, {})


def test_a_trimmed_position_fails_or_is_counted():
    lasts = {A: LogPosition(4, None)}
    known = {A: LOGS[A]}

    with pytest.raises(DataLossError, match="was 4 but consumer reset to 10"):
        starts(lasts, known=known)
    found, lost = starts(lasts, policy=OutOfRange.EARLIEST, known=known)
    assert (found, lost) == ({A: 10}, {(A, "retention"): 6})


def test_a_topic_that_was_re_created_fails_or_starts_anew():
    lasts = {A: LogPosition(30, "old")}
    known = {A: LOGS[A]}

    with pytest.raises(DataLossError, match="created again"):
        starts(lasts, known=known, id_="new")
    found, _ = starts(lasts, policy=OutOfRange.EARLIEST, known=known, id_="new")
    assert found == {A: 10}


@pytest.mark.parametrize("was", ["same", None])
def test_an_id_that_is_the_same_or_was_not_known_is_no_new_topic(was):
    lasts = {A: LogPosition(30, was)}

    assert starts(lasts, known={A: LOGS[A]}, id_="same")[0] == {A: 30}


def test_a_log_of_which_nobody_tells_whose_it_is_waits():
    lasts = {A: LogPosition(30, "same"), B: LogPosition(7, None)}

    assert starts(lasts) == ({B: 7}, {})


def test_a_log_that_lost_its_end_fails_or_goes_on_at_the_new_end():
    lasts = {A: LogPosition(130, "same")}
    known = {A: LOGS[A]}

    with pytest.raises(DataLossError, match="failOnDataLoss=false"):
        starts(lasts, known=known, id_="same")
    for policy in (OutOfRange.EARLIEST, OutOfRange.parse("nearest")):
        found, lost = starts(lasts, policy, known, id_="same")
        assert (found, lost) == ({A: 100}, {(A, "cut"): 30})


def test_what_is_not_believed_yet_is_left_out():
    lasts = {A: LogPosition(130, None), B: LogPosition(50, None)}

    found, lost = starts(lasts, believes=lambda *_: False)

    assert (found, lost) == ({B: 50}, {})
