"""A DataFrame is no snapshot: each job on it reads what its options mean by then.

Every test asks the same of Spark's own source and of ours.
"""

from __future__ import annotations

import json

import pytest

from integration.bounded import read_out
from integration.capabilities import OWN_CONNECTOR, need
from integration.sizes import in_all

pytestmark = pytest.mark.all

SOURCES = ("kafka", "kafka_tx")


@pytest.fixture
def both(spark, kafka, sparks_own):
    """One DataFrame of each source over the same topic."""

    def load(topic, **options):
        made = []
        for source in SOURCES:
            reader = spark.read.format(source).option("subscribe", topic)
            reader = reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            for name, value in options.items():
                reader = reader.option(name.replace("__", "."), value)
            made.append(reader.load())
        return made

    return load


def offsets(df):
    rows = df.select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)


def test_latest_binds_when_a_job_runs(both, topic, produce):
    name = topic(2)
    produce(name, ["a"] * 4)
    frames = both(name)
    before = [offsets(df) for df in frames]
    produce(name, ["b"] * 4)

    after = [offsets(df) for df in frames]

    assert before[0] == before[1]
    assert after[0] == after[1]
    assert (len(before[1]), len(after[1])) == (4, 8)


def test_earliest_binds_when_a_job_runs(both, topic, produce, kafka):
    name = topic(1)
    produce(name, ["a"] * 10)
    frames = both(name)
    assert [df.count() for df in frames] == [10, 10]
    kafka.delete_records(name, {0: 6})

    after = [offsets(df) for df in frames]

    assert after[0] == after[1] == [(0, n) for n in range(6, 10)]


@pytest.mark.all
def test_latest_and_earliest_in_json_bind_when_a_job_runs(both, topic, produce, kafka):
    name = topic(1)
    produce(name, ["a"] * 10)
    frames = both(
        name,
        startingOffsets=json.dumps({name: {"0": -2}}),
        endingOffsets=json.dumps({name: {"0": -1}}),
    )
    assert [df.count() for df in frames] == [10, 10]
    produce(name, ["b"] * 2)
    kafka.delete_records(name, {0: 6})

    after = [offsets(df) for df in frames]

    assert after[0] == after[1] == [(0, n) for n in range(6, 12)]


@pytest.mark.parametrize(
    "limits", [{"minPartitions": "5"}, *in_all({"maxRecordsPerPartition": "3"})]
)
def test_ends_of_frames_cut_into_more_tasks_bind_too(both, topic, produce, limits):
    name = topic(2)
    produce(name, ["a"] * 10)
    frames = both(name, **limits)
    assert [df.count() for df in frames] == [10, 10]
    assert frames[1].rdd.getNumPartitions() > 2
    produce(name, ["b"] * 10)

    after = [offsets(df) for df in frames]

    assert after[0] == after[1]
    assert len(after[1]) == 20


def test_the_last_stable_offset_binds_when_a_job_runs(both, topic, produce):
    name = topic(1)
    produce.committed(name, ["a"] * 3)
    frames = both(name, kafka__isolation__level="read_committed")
    assert [df.count() for df in frames] == [3, 3]
    produce.aborted(name, ["no"] * 3)
    produce.committed(name, ["b"] * 3)
    undecided = produce.open_transaction(name, ["later"] * 3)

    after = [offsets(df) for df in frames]
    undecided.abort()

    assert after[0] == after[1]
    assert len(after[1]) == 6


def test_a_view_finds_partitions_that_came_since(both, topic, produce, kafka, spark):
    name = topic(1)
    produce(name, ["a"] * 3)
    counts = []
    for source, df in zip(SOURCES, both(name), strict=True):
        df.createOrReplaceTempView(f"late_{source}")
        counts.append(spark.sql(f"SELECT count(*) AS n FROM late_{source}").first().n)
    kafka.add_partitions(name, 3)
    produce(name, ["b"] * 30)

    after = [
        spark.sql(f"SELECT count(*) AS n FROM late_{source}").first().n
        for source in SOURCES
    ]

    assert counts == [3, 3]
    assert after == [33, 33]


@pytest.mark.parametrize("source", SOURCES)
def test_each_batch_of_a_stream_joins_what_is_there_by_then(
    spark, kafka, topic, produce, tmp_path, source
):
    if source == "kafka":
        need(OWN_CONNECTOR)
    known, events = topic(1, name="known"), topic(1, name="events")
    produce(known, ["x"])
    produce(events, ["x", "y"])

    def load(read, name):
        return (
            read.format(source)
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("CAST(value AS STRING) AS word")
        )

    joined = []

    def take(df, _):
        joined.append([row.word for row in df.collect()])
        produce(known, ["y"])

    read_out(
        load(spark.readStream.option("maxOffsetsPerTrigger", "1"), events)
        .join(load(spark.read, known), "word")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )

    assert [words for words in joined if words] == [["x"], ["y"]]
