"""What older versions of Spark are given in place of what they do not know."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

import pyspark
import pytest
from pyspark.sql import datasource

import kafka_tx.spark
from kafka_tx import errors
from kafka_tx.spark.sinks.writer import KafkaTxStreamWriter
from kafka_tx.spark.versions import jvm
from kafka_tx.spark.versions.streams import ReadMaxRows, StartlessReader


class Counting:
    """A reader of a log that grows; batches hold three records at most."""

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self.planned: list[tuple[int, int]] = []

    def initialOffset(self) -> dict[str, Any]:
        return {"at": self.end}

    def getDefaultReadLimit(self) -> ReadMaxRows:
        return ReadMaxRows(3)

    def is_question(self, offset: dict[str, Any]) -> bool:
        return "question" in offset

    def latestOffset(self, start: dict[str, Any], limit: ReadMaxRows) -> dict[str, Any]:
        if self.is_question(start):
            return {"answer": start["question"]}
        return {"at": min(self.end, start["at"] + limit.max_rows)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        self.planned.append((start["at"], end["at"]))
        return [range(start["at"], end["at"])]

    def read(self, partition: Any) -> Any:
        return partition

    def commit(self, end: dict[str, Any]) -> None: ...

    def stop(self) -> None: ...


@pytest.fixture
def log() -> Counting:
    return Counting()


def test_a_new_query_begins_at_one_place_however_often_it_is_asked(log):
    log.end = 5
    reader = StartlessReader(log)

    assert reader.latestOffset() == {"at": 5}
    log.end = 9
    assert reader.initialOffset() == {"at": 5}


def test_each_batch_begins_where_the_one_before_ended(log):
    reader = StartlessReader(log)
    assert reader.latestOffset() == {"at": 0}
    log.end = 7

    ends = [reader.latestOffset()["at"] for _ in range(4)]

    assert ends == [3, 6, 7, 7]


def test_a_restart_goes_on_at_the_newest_offset_of_the_log(log):
    log.end = 20
    reader = StartlessReader(log)

    assert reader.partitions({"at": 8}, {"at": 8}) == []
    assert reader.latestOffset() == {"at": 11}


def test_a_restart_replays_an_unfinished_batch_first(log):
    log.end = 20
    reader = StartlessReader(log)

    reader.partitions({"at": 8}, {"at": 8})
    assert reader.partitions({"at": 5}, {"at": 8}) == [range(5, 8)]
    assert reader.latestOffset() == {"at": 11}


def test_a_question_moves_nothing(log):
    log.end = 20
    reader = StartlessReader(log)
    reader.partitions({"at": 8}, {"at": 8})

    (answer,) = reader.partitions({"question": 1}, {"question": 1})

    assert pickle.loads(pickle.dumps(answer)).value == {"answer": 1}
    assert reader.latestOffset() == {"at": 11}


def test_tasks_get_a_reader_without_a_position(log):
    reader = StartlessReader(log)
    log.end = 5
    reader.latestOffset()

    assert vars(pickle.loads(pickle.dumps(reader)))["_at"] is None


def test_streams_write_record_batches_on_each_version():
    """Spark 4.0 gives rows, whose times lost their zone, to all but one class."""
    wanted = getattr(datasource, "DataSourceStreamArrowWriter", None)

    assert issubclass(KafkaTxStreamWriter, wanted or datasource.DataSourceArrowWriter)


def test_an_older_spark_is_named_beside_the_oldest_that_will_do(monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")

    with pytest.raises(ImportError, match=r"PySpark 4\.0 or newer.* 3\.5\.9 "):
        importlib.reload(kafka_tx.spark)


@pytest.mark.parametrize(
    ("kind", "name", "cause"),
    [
        (errors.ReplayImpossibleError, "", errors.OffsetOutOfRangeError("trimmed")),
        (errors.StateUnavailableError, "", errors.FencedError("a newer owner")),
        (errors.DataLossError, "COULD_NOT_READ_OFFSET_RANGE", ValueError("no")),
    ],
)
def test_the_error_of_a_query_is_the_one_that_stands_first(kind, name, cause):
    error = kind(name, "gone") if name else kind("gone")
    text = f"[STREAM_FAILED] Query [id = 1]: {error}\nTraceback\n{cause}\n{error}\n"

    found = jvm.error_of(text)

    assert type(found) is kind
    assert str(found) == str(error)
