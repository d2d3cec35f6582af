"""What a running query is asked about its batches, without a JVM."""

import json

import pytest

from kafka_tx.errors import KafkaTxError
from kafka_tx.spark.versions.jvm import RunningQuery


class Option:
    """A Scala option of an offset, or of nothing."""

    def __init__(self, end):
        self.end = end

    def isDefined(self):  # noqa: N802 - Spark names it
        return self.end is not None

    def get(self):
        if self.end is None:
            raise OSError("None.get")
        return self

    def json(self):
        return json.dumps({"t": {"0": self.end}})


class SparkQuery:
    """A query that knows one stream; counts what it is asked."""

    def __init__(self, committed, available):
        self.committed, self.available = committed, available
        self.asked = []

    def committedOffsets(self):  # noqa: N802 - Spark names it
        self.asked.append("committed")
        return {"stream": Option(self.committed)}

    def availableOffsets(self):  # noqa: N802 - Spark names it
        self.asked.append("available")
        return {"stream": Option(self.available)}

    def next_batch(self, end):
        self.committed, self.available = self.available, end


@pytest.fixture
def spark():
    return SparkQuery(None, 10)


@pytest.fixture
def query(spark):
    made = object.__new__(RunningQuery)
    made._query, made._query_id = spark, "q"
    made._streams, made._ends = {"job": "stream"}, {}
    return made


def offset_of(end):
    return None if end is None else next(iter(end.positions.values()))


def asked_about(query, batch_id):
    question = query.question("job", batch_id)
    return offset_of(question.start), offset_of(question.end)


def test_a_batch_begins_where_the_one_before_has_ended(query, spark):
    assert asked_about(query, 0) == (None, 10)
    spark.next_batch(20)
    spark.asked = []

    assert asked_about(query, 1) == (10, 20)
    assert spark.asked == ["available"]


def test_a_batch_that_is_tried_again_keeps_its_start(query, spark):
    asked_about(query, 0)
    spark.next_batch(20)

    assert asked_about(query, 1) == asked_about(query, 1) == (10, 20)


@pytest.mark.parametrize("batch_id", [2, 0])
def test_spark_is_asked_for_the_start_of_any_other_batch(query, spark, batch_id):
    asked_about(query, 0)
    spark.committed, spark.available = 30, 40

    assert asked_about(query, batch_id) == (30, 40)


def test_a_batch_without_an_end_cannot_be_asked_about(query, spark):
    spark.available = None

    with pytest.raises(KafkaTxError, match="cannot be asked"):
        query.question("job", 0)
