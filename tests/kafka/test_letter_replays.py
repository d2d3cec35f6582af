"""A replay of rejected rows is compared by the rows, not by their letters."""

from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from kafka_tx.errors import ReplayDiffersError
from kafka_tx.kafka.dead_letter_form import TIME
from kafka_tx.kafka.out_batch import OutBatch
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.part_transaction import PartTransaction
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.sink_parts import Part
from tests.properties.simulated_sink import Brokers, log, simulated

FIRST = TransactionAttempt.of(1, epoch=1, number=1)
RECORD = OutRecord("dead", b"k", b"v", timestamp_ms=1_000)
LATER = replace(RECORD, headers=[(TIME, b"1000")], timestamp_ms=None)
"""The letter of the same record, when half of the topic's retention has passed."""


@dataclass(frozen=True, slots=True)
class Letter(OutRecord):
    row: int = 0

    @classmethod
    def of(cls, record, row):
        of_record = record.topic, record.key, record.value, record.headers
        return cls(*of_record, record.partition, record.timestamp_ms, row)

    def sum_compared(self):
        return self.row


@pytest.fixture(autouse=True)
def brokers():
    with simulated(Brokers()):
        yield


def write(*records, epoch=1):
    attempt = TransactionAttempt.of(1, epoch=epoch, number=1)
    part = Part("dead-letters", attempt, 0, 1, run=f"{epoch}")
    return PartTransaction({}, part, log(), {}).write(list(records)).now


def test_a_row_whose_letter_has_another_time_now_is_the_same_row():
    assert write(Letter.of(RECORD, 7), Letter.of(RECORD, 8))
    assert not write(Letter.of(LATER, 7), Letter.of(RECORD, 8), epoch=2)


@pytest.mark.parametrize("rows", [[7], [7, 9], [7, 7, 1]])
def test_other_rows_differ_though_their_letters_may_not(rows):
    write(Letter.of(RECORD, 7), Letter.of(RECORD, 8))
    with pytest.raises(ReplayDiffersError):
        write(*(Letter.of(RECORD, row) for row in rows), epoch=2)


def test_letters_that_another_version_has_written_are_compared_as_they_are():
    write(RECORD)
    assert not write(Letter.of(RECORD, 7), epoch=2)
    with pytest.raises(ReplayDiffersError):
        write(Letter.of(LATER, 7), epoch=3)


def test_the_version_before_finds_its_check_sum_beside():
    write(Letter.of(RECORD, 7))
    assert not write(RECORD, epoch=2)


def test_the_numbers_of_a_batch_are_added_up():
    values = pa.array([b"a", b"b", None])
    numbers = pa.array([2**32 - 1, 1, 2], pa.int64())
    batch = OutBatch.of("dead", values, compared=numbers)
    assert batch.sum_compared() == 2**32 + 2
    assert batch.counted() == OutBatch.of("dead", values).counted()
    assert OutBatch.of("dead", values).sum_compared() == 0
