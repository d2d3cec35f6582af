"""Offsets that are skipped where that is the rule."""

import pytest

from kafka_tx.errors import DataLossError
from kafka_tx.model import LogBounds, TopicPartition
from kafka_tx.offsets.loss import OF_SPOUTS, Losses, LossReason, OutOfRange
from kafka_tx.offsets.position_checks import Finding, PositionCheck

P0 = TopicPartition("t", 0)


def test_skipped_offsets_are_counted_until_they_are_taken():
    losses = Losses(OutOfRange.FAIL)

    losses.skipped(P0, 5, 7, LossReason.TRIMMED)
    losses.skipped(P0, 9, 9, LossReason.TRIMMED)
    losses.skipped(P0, 20, 23, LossReason.TRIMMED)

    assert losses.take() == {(P0, LossReason.TRIMMED): 5}
    assert losses.take() == {}


def lose(losses):
    """Each kind of loss, in turn."""
    trimmed = PositionCheck(Finding.TRIMMED, 2, LogBounds(5, 9))
    yield lambda: losses.judge(P0, trimmed)
    yield lambda: losses.deleted([P0])
    yield lambda: losses.added_late(P0, 5)


def test_a_loss_that_is_allowed_is_logged_without_advice_to_allow_it(caplog):
    for happens in lose(Losses(OutOfRange.EARLIEST, OF_SPOUTS)):
        happens()

    assert len(caplog.records) == 3
    assert all("goes on without them" in one.getMessage() for one in caplog.records)
    assert "failOnDataLoss" not in caplog.text


def test_each_loss_that_is_an_error_has_the_advice_of_its_door():
    for happens in lose(Losses(OutOfRange.FAIL, OF_SPOUTS)):
        with pytest.raises(DataLossError, match=OF_SPOUTS):
            happens()
