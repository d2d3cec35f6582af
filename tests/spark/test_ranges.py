"""Reading a range whose log is not what it was when the range was planned."""

import time
from typing import Any

import pyarrow as pa
import pytest

from kafka_tx import assembly
from kafka_tx.errors import (
    DataLossError,
    OffsetOutOfRangeError,
    OtherTopicError,
    ReplayImpossibleError,
)
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.options.source import parse_source
from kafka_tx.spark.source import ranges, reports

P0 = TopicPartition("t", 0)


class ShortLog:
    """Holds ``[start, end)``, and says so once a read gets there."""

    def __init__(self, start, end):
        self.start, self.end = start, end

    def read(self, wanted):
        if wanted.start >= self.start:
            found = list(range(wanted.start, min(wanted.end, self.end)))
            if found:
                yield batch(found)
        if wanted.start < self.start or wanted.end > self.end:
            raise OffsetOutOfRangeError(
                "not there", log_start=self.start, log_end=self.end
            )


def batch(offsets):
    count = len(offsets)
    return pa.record_batch(
        {
            "key": pa.array([None] * count, pa.binary()),
            "value": pa.array([b"v"] * count, pa.binary()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(offsets, pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture
def read(monkeypatch):
    monkeypatch.setattr(ranges, "_BELIEVED_AFTER_S", 0.02)
    monkeypatch.setattr(ranges, "_PAUSE_S", 0.01)
    read_reports: list[Any] = []
    monkeypatch.setattr(reports, "send_read_report", read_reports.append)

    def read(log, start, end, **options):
        monkeypatch.setattr(assembly, "range_reader", lambda config: log)
        named = {name.replace("__", "."): value for name, value in options.items()}
        given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
        config = parse_source(given | named, streaming=True)
        found = ranges.read_range(config, OffsetRange(P0, start, end))
        return [n for b in found for n in b.column("offset").to_pylist()], read_reports

    return read


def test_what_is_there_is_read_and_the_rest_is_counted(read):
    offsets, read_reports = read(ShortLog(2, 5), 0, 9, failOnDataLoss="false")

    assert offsets == [2, 3, 4]
    (read_report,) = read_reports
    assert read_report.wanted == OffsetRange(P0, 0, 9)
    assert (read_report.bytes, read_report.skipped) == (3, 6)


def test_a_log_that_ends_too_early_stops_the_query_by_default(read):
    with pytest.raises(DataLossError):
        read(ShortLog(0, 5), 0, 9)


class MovingLog:
    """Trimmed before it is read; later a former leader answers once."""

    def __init__(self):
        self.bounds = [(2, 9), (2, 6), (2, 9)]

    def read(self, wanted):
        start, end = self.bounds.pop(0)
        if wanted.start < start or wanted.start >= end:
            raise OffsetOutOfRangeError("not there", log_start=start, log_end=end)
        yield batch(list(range(wanted.start, end)))
        time.sleep(0.05)  # longer than an answer has to stay to be believed
        if wanted.end > end:
            raise OffsetOutOfRangeError("not there", log_start=start, log_end=end)


@pytest.mark.parametrize("tx", [{}, {"tx__id": "t"}])
def test_a_former_leader_stops_no_query(read, tx):
    class Leaders:
        def __init__(self):
            self.logs = [ShortLog(0, 5), ShortLog(0, 9)]

        def read(self, wanted):
            yield from self.logs.pop(0).read(wanted)

    offsets, (read_report,) = read(Leaders(), 0, 9, **tx)

    assert offsets == list(range(9))
    assert read_report.skipped == 0


def test_a_former_leader_is_not_believed_because_the_log_was_trimmed_before(read):
    offsets, (read_report,) = read(MovingLog(), 0, 9, failOnDataLoss="false")

    assert offsets == list(range(2, 9))
    assert read_report.skipped == 2


def test_a_transactional_batch_is_never_read_in_part(read):
    with pytest.raises(ReplayImpossibleError):
        read(ShortLog(0, 5), 0, 9, failOnDataLoss="false", tx__id="t")


class OtherLog:
    """Of another topic than was planned, as is told after some batches."""

    def __init__(self, given=0):
        self.given = given

    def read(self, wanted):
        for offset in range(wanted.start, wanted.start + self.given):
            yield batch([offset])
        raise OtherTopicError("made anew", planned_id="one", found_id="another")


def test_a_range_of_another_topic_stops_the_query_by_default(read):
    with pytest.raises(DataLossError, match="made anew"):
        read(OtherLog(), 0, 9)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_range_of_another_topic_is_never_a_transactional_one(read, fails):
    with pytest.raises(ReplayImpossibleError, match="made anew"):
        read(OtherLog(), 0, 9, failOnDataLoss=fails, tx__id="t")


@pytest.mark.parametrize("tx", [{}, {"tx__id": "t", "tx__mode": "opaque"}])
def test_a_range_of_another_topic_is_left_out_as_a_whole_if_allowed(read, tx):
    offsets, read_reports = read(OtherLog(), 2, 9, failOnDataLoss="false", **tx)

    assert offsets == []
    (read_report,) = read_reports
    assert (read_report.wanted, read_report.skipped) == (OffsetRange(P0, 2, 9), 7)


def test_a_range_that_became_another_topics_while_it_was_read_fails(read):
    """Its rows are out already; the next try finds it before any."""
    with pytest.raises(OtherTopicError):
        read(OtherLog(given=2), 0, 9, failOnDataLoss="false")
