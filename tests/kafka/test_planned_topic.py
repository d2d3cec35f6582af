"""Which topic records come from: asked after the last fetch."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafka_tx.errors import DamagedRecordsError, FetchError, OtherTopicError
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.planned_topic import ReaderAround, damaged, of_planned_topic

PARTITION = TopicPartition("t", 0)
TIMEOUT_MS = 10_000


class Brokers:
    """Notes what is fetched and asked, in order; tells ``ids`` one after the other."""

    def __init__(self, *ids: str | None) -> None:
        self.ids = list(ids)
        self.log: list[object] = []

    def batches(self, *ends: int) -> Iterator[pa.RecordBatch]:
        for end in ends:
            self.log.append(f"fetched to {end}")
            yield pa.record_batch({"offset": pa.array([end - 1], pa.int64())})

    def ask(self, timeout_ms: int) -> str | None:
        self.log.append("asked")
        return self.ids.pop(0) if len(self.ids) > 1 else self.ids[0]

    def read(self, *ends: int, end: int = 9, timeout_ms: int = TIMEOUT_MS) -> None:
        wanted = OffsetRange(PARTITION, 0, end, "planned")
        for batch in of_planned_topic(
            self.batches(*ends), wanted, self.ask, timeout_ms
        ):
            self.log.append(f"given to {batch.column('offset')[-1].as_py() + 1}")


def test_a_range_of_one_batch_is_asked_about_once_before_it_is_given():
    brokers = Brokers("planned")

    brokers.read(9)

    assert brokers.log == ["fetched to 9", "asked", "given to 9"]


def test_a_longer_range_is_asked_about_before_its_first_record_and_after_its_last():
    brokers = Brokers("planned")

    brokers.read(3, 6, 9)

    assert brokers.log == [
        *("fetched to 3", "asked", "given to 3"),
        *("fetched to 6", "given to 6"),
        *("fetched to 9", "asked", "given to 9"),
    ]


def test_a_hole_at_the_end_is_fetched_before_the_question():
    brokers = Brokers("planned")

    brokers.read(3)

    assert brokers.log == ["fetched to 3", "asked", "given to 3", "asked"]


def test_a_range_without_records_is_asked_about():
    brokers = Brokers("another")

    with pytest.raises(OtherTopicError):
        brokers.read()


@pytest.mark.parametrize("ends", [(9,), (3, 9)])
def test_nothing_is_given_of_a_topic_that_is_another_already(ends):
    brokers = Brokers("another")

    with pytest.raises(OtherTopicError, match="planned.*another") as caught:
        brokers.read(*ends)

    assert not any("given" in str(entry) for entry in brokers.log)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.planned_id, error.found_id) == ("planned", "another")
    assert "deleted and created again" in str(error)


def test_a_topic_made_anew_under_a_read_fails_it_at_the_end():
    brokers = Brokers("planned", "another")

    with pytest.raises(OtherTopicError):
        brokers.read(3, 6)

    assert brokers.log[-2:] == ["given to 6", "asked"]


@pytest.mark.parametrize("topic_id", ["", "AAAAAAAAAAAAAAAAAAAAAA"])
def test_a_topic_that_is_gone_and_one_without_an_id_were_read_while_there(topic_id):
    brokers = Brokers(topic_id)

    brokers.read(9)

    assert brokers.log[-1] == "given to 9"


def test_who_tells_nothing_at_first_is_asked_again():
    brokers = Brokers(None, None, "planned")

    brokers.read(9)

    assert brokers.log == ["fetched to 9", "asked", "asked", "asked", "given to 9"]


def test_a_read_that_nobody_confirms_fails_and_may_be_tried_again():
    brokers = Brokers(None)

    with pytest.raises(FetchError, match="no broker answered") as caught:
        brokers.read(9, timeout_ms=0)

    assert caught.value.retryable
    assert "given to 9" not in brokers.log


def test_who_planned_without_an_id_asks_nobody():
    brokers = Brokers("another")
    wanted = OffsetRange(PARTITION, 0, 9)

    found = list(of_planned_topic(brokers.batches(3, 9), wanted, brokers.ask, 0))

    assert len(found) == 2
    assert "asked" not in brokers.log


# --- around damage --------------------------------------------------------------------


class Log:
    """A log of which ``broken`` cannot be read."""

    def __init__(self, broken: range) -> None:
        self.broken = broken

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        for offset in range(wanted.start, wanted.end):
            if offset in self.broken:
                raise damaged(wanted, "damaged", offset, "one:9092", "")
            yield pa.record_batch({"offset": pa.array([offset], pa.int64())})


def offsets(reader, wanted):
    return [batch["offset"][0].as_py() for batch in reader.read(wanted)]


def test_what_is_left_out_is_not_read_and_the_error_names_what_is_not():
    wanted = OffsetRange(PARTITION, 0, 9, "planned")
    log = Log(range(3, 6))

    with pytest.raises(DamagedRecordsError) as caught:
        offsets(ReaderAround(log, (), lambda _, position: position + 3), wanted)

    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.position, error.next_offset) == (3, 6)
    assert "next offset that can be read is 6" in error.message
    assert "add 't-0:3-6@planned' to the option skipOffsets" in error.message
    left_out = OffsetRange.of_option("skipOffsets", "t-0:3-6@planned")
    around = ReaderAround(log, (left_out,), lambda *_: None)
    assert offsets(around, wanted) == [0, 1, 2, 6, 7, 8]
    assert offsets(around, wanted.between(4, 6)) == []


def test_damage_without_a_known_end_is_named_as_such():
    reader = ReaderAround(Log(range(3, 6)), (), lambda *_: None)

    with pytest.raises(DamagedRecordsError, match="kafka-dump-log.*'t-0:3-END'") as e:
        offsets(reader, OffsetRange(PARTITION, 0, 9))

    assert e.value.next_offset is None
