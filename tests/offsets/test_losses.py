"""Offsets that are skipped where that is the rule."""

from kafka_tx.model import TopicPartition
from kafka_tx.offsets.loss import Losses, LossReason, OutOfRange

P0 = TopicPartition("t", 0)


def test_skipped_offsets_are_counted_until_they_are_taken():
    losses = Losses(OutOfRange.FAIL)

    losses.skipped(P0, 5, 7, LossReason.TRIMMED)
    losses.skipped(P0, 9, 9, LossReason.TRIMMED)
    losses.skipped(P0, 20, 23, LossReason.TRIMMED)

    assert losses.take() == {(P0, LossReason.TRIMMED): 5}
    assert losses.take() == {}
