"""Spark's own Kafka source and kafka_tx read the same topics to equal DataFrames."""

from __future__ import annotations

import json
import time

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from integration.bounded import DeadError, read_out
from integration.capabilities import CAPABILITIES, PROGRESS_OF_ENDS
from integration.cluster.records import Record
from integration.cluster.waiting import PATIENT_S
from integration.sizes import in_all
from kafka_tx.cli import doctor

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "100",
}

KEPT = {"retention.ms": "-1"}
"""Also a record of some years ago."""


@pytest.fixture
def both(spark, kafka, sparks_own):
    """Read one topic with both sources; gives the sorted rows of each."""

    def read(topic, **options):
        rows = []
        for source in (sparks_own, "kafka_tx"):
            reader = (
                spark.read.format(source)
                .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
                .option("subscribe", topic)
            )
            for name, value in options.items():
                reader = reader.option(name.replace("__", "."), value)
            rows.append(sorted_rows(reader.load()))
        return rows

    return read


def sorted_rows(df):
    return sorted(df.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def stream(spark, kafka, source, topic, tmp_path, **options):
    """Read everything there is as a stream, in several micro-batches."""
    name = f"{source}_{time.monotonic_ns()}"
    reader = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    for option, value in options.items():
        reader = reader.option(option.replace("__", "."), value)
    query = read_out(
        reader.load()
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path / name))
    )
    return sorted_rows(spark.table(name)), query.recentProgress


def odd_records():
    return [
        Record(value=b"plain", key=b"k"),
        Record(value=None, key=b"tombstone"),
        Record(value=b"", key=b""),
        Record(value=b"no key"),
        Record(value=b"\x00\xff", key=b"bytes", timestamp_ms=1_600_000_000_123),
        Record(
            value="head",
            headers=[("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None)],
        ),
        Record(value="x" * 200_000, key="large"),
    ]


@pytest.mark.all
def test_the_schemas_are_equal(spark, kafka, sparks_own, topic):
    name = topic(1)
    for headers in ("true", "false"):
        schemas = [
            spark.read.format(source)
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("subscribe", name)
            .option("includeHeaders", headers)
            .load()
            .schema
            for source in (sparks_own, "kafka_tx")
        ]
        assert schemas[0] == schemas[1]


@pytest.mark.all
def test_sessions_whose_timestamps_have_no_zone_read_too(spark, both, topic, produce):
    name = topic(1)
    produce(name, ["a"])
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        theirs, ours = both(name, includeHeaders="true")
    finally:
        spark.conf.unset("spark.sql.timestampType")

    assert len(ours) == 1
    assert ours == theirs


def test_odd_records_are_equal(both, topic, produce):
    name = topic(3, config=KEPT)
    produce(name, odd_records() * 5)

    theirs, ours = both(name, includeHeaders="true")

    assert len(ours) == 35
    assert ours == theirs


@pytest.mark.all
def test_several_topics_and_a_pattern_are_equal(both, topic, produce):
    first, second = topic(2, name="pair-a"), topic(3, name="pair-b")
    produce(first, ["a"] * 10)
    produce(second, ["b"] * 10)

    theirs, ours = both(f"{first}, {second}")

    assert len(ours) == 20
    assert ours == theirs


@pytest.mark.all
def test_compacted_topics_are_equal(both, topic, produce, kafka):
    name = topic(1, config=COMPACTED)
    for n in range(30):
        produce(name, [Record(value=f"v{n}", key=f"k{n % 3}")])
    deadline = time.monotonic() + 60
    theirs, ours = both(name)
    while not len(theirs) == len(ours) < 20 and time.monotonic() < deadline:
        produce(name, [Record(value="roll", key="roll")])
        time.sleep(1)
        theirs, ours = both(name)
    assert len(ours) < 20, "the broker never compacted"
    assert ours == theirs


@pytest.mark.parametrize("isolation", ["read_committed", *in_all("read_uncommitted")])
def test_transactional_topics_are_equal(both, topic, produce, isolation):
    name = topic(2)
    produce.committed(name, [f"c{n}" for n in range(50)])
    produce.aborted(name, [f"a{n}" for n in range(50)])
    produce.committed(name, ["last"])
    produce.aborted(name, ["end"])

    theirs, ours = both(name, kafka__isolation__level=isolation)

    assert ours == theirs
    assert len(ours) == (51 if isolation == "read_committed" else 102)


@pytest.mark.all
def test_before_a_pattern_matches_there_is_one_empty_batch_at_most(
    spark, kafka, tmp_path
):
    seen = []
    options = {"subscribePattern": "nothing-yet.*"}
    reading = spark.readStream.format("kafka_tx").options(**options)
    rows = reading.option("kafka.bootstrap.servers", kafka.bootstrap_servers).load()
    for _ in range(2):
        writing = rows.writeStream.foreachBatch(lambda df, n: seen.append(df.count()))
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writing.trigger(availableNow=True).start().awaitTermination(PATIENT_S)

    assert seen == [0]


@pytest.mark.all
def test_the_level_of_isolation_is_taken_in_any_case_and_doctor_tells_its_effect(
    spark, kafka, topic, produce
):
    name, servers = topic(1), kafka.bootstrap_servers
    produce.committed(name, ["committed"] * 5)
    produce.aborted(name, ["aborted"] * 5)
    reading = spark.read.format("kafka_tx").options(subscribe=name)
    reading = reading.option("kafka.bootstrap.servers", servers)
    level = "kafka.isolation.level"
    still_open = produce.open_transaction(name, ["open"] * 5)
    try:
        strict = reading.option(level, "READ_COMMITTED").load().count()
        loose = reading.option(level, "Read_Uncommitted").load().count()
        with pytest.raises(AnalysisException, match="legal: read_uncommitted"):
            reading.option(level, "read_commited").load()
    finally:
        still_open.abort()
    of_doctor = [
        doctor.isolation({"bootstrap.servers": servers, **given})
        for given in ({"isolation.level": "READ_COMMITTED"}, {})
    ]

    assert (strict, loose) == (5, 15)
    assert [verdict for verdict, _ in of_doctor] == ["good", "advice"]


@pytest.mark.all
def test_a_topic_of_only_aborted_records_is_empty(both, topic, produce):
    name = topic(1)
    produce.aborted(name, ["never"] * 20)

    theirs, ours = both(name, kafka__isolation__level="read_committed")

    assert ours == theirs == []


@pytest.mark.all
def test_ranges_by_offset_and_time_are_equal(both, topic, produce):
    name = topic(1)
    start = int(time.time() * 1000) - 1000  # older ones fall to retention
    produce(name, [Record(value=str(n), timestamp_ms=start + n) for n in range(100)])

    for options in (
        {
            "startingOffsets": f'{{"{name}":{{"0":10}}}}',
            "endingOffsets": f'{{"{name}":{{"0":90}}}}',
        },
        {"startingTimestamp": str(start + 50)},
        {"startingTimestamp": str(start + 50), "endingTimestamp": str(start + 60)},
        {"startingOffsetsByTimestamp": f'{{"{name}":{{"0":{start + 99}}}}}'},
        {"endingOffsetsByTimestamp": f'{{"{name}":{{"0":{start + 5}}}}}'},
        {"minPartitions": "7"},
        {"maxRecordsPerPartition": "13"},
    ):
        theirs, ours = both(name, **options)
        assert ours == theirs, options
        assert ours, options
    for time_ms, count in (("-1", 0), ("-2", 100), ("0", 100)):
        theirs, ours = both(name, startingTimestamp=time_ms)
        assert (len(theirs), len(ours)) == (count, count), time_ms


def test_streams_are_equal_batch_by_batch(
    spark, kafka, sparks_own, topic, produce, tmp_path
):
    name = topic(3, config=KEPT)
    produce(name, odd_records() * 10)
    options = {"includeHeaders": "true", "maxOffsetsPerTrigger": "20"}

    theirs, their_progress = stream(spark, kafka, sparks_own, name, tmp_path, **options)
    ours, our_progress = stream(spark, kafka, "kafka_tx", name, tmp_path, **options)

    assert ours == theirs
    assert len(ours) == 70
    counts = [p["numInputRows"] for p in our_progress if p["numInputRows"]]
    assert counts == [p["numInputRows"] for p in their_progress if p["numInputRows"]]
    assert len(counts) > 2


@pytest.mark.parametrize(
    "isolation",
    ["read_committed", pytest.param("read_uncommitted", marks=pytest.mark.all)],
)
def test_streams_of_transactional_topics_are_equal(
    spark, kafka, sparks_own, topic, produce, tmp_path, isolation
):
    name = topic(2)
    for n in range(4):
        produce.committed(name, [f"c{n}"] * 10)
        produce.aborted(name, [f"a{n}"] * 10)
    options = {"kafka__isolation__level": isolation, "maxOffsetsPerTrigger": "20"}

    theirs, _ = stream(spark, kafka, sparks_own, name, tmp_path, **options)
    ours, progress = stream(spark, kafka, "kafka_tx", name, tmp_path, **options)

    assert ours == theirs
    if CAPABILITIES[PROGRESS_OF_ENDS]:
        (source,) = progress[-1]["sources"]
        end, latest = (json.loads(source[f"{at}Offset"]) for at in ("end", "latest"))
        assert {name: end[name]} == latest


@pytest.mark.all
def test_a_checkpoint_of_sparks_own_source_is_continued(
    spark, kafka, sparks_own, topic, produce, tmp_path
):
    name = topic(2)
    checkpoint = str(tmp_path / "checkpoint")
    seen: list[bytes] = []

    def run(source):
        query = (
            spark.readStream.format(source)
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.foreachBatch(
                lambda df, _: seen.extend(bytes(row.value) for row in df.collect())
            )
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    produce(name, [f"old{n}" for n in range(10)])
    run(sparks_own)
    produce(name, [f"new{n}" for n in range(10)])
    run("kafka_tx")

    expected = [f"{age}{n}".encode() for age in ("old", "new") for n in range(10)]
    assert sorted(seen) == sorted(expected)


@pytest.mark.all
def test_an_unfinished_first_batch_of_sparks_own_source_is_read_from_its_start(
    spark, kafka, sparks_own, topic, produce, tmp_path
):
    """With the start that Spark has kept, as docs/migrating.md and the error say."""
    name, checkpoint = topic(1), tmp_path / "checkpoint"
    produce(name, ["v"] * 100)
    after = {
        "startingTimestamp": str(int(time.time() * 1000) + 3_600_000),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    found: list[int] = []

    def read(source, failure=None, **options):
        def take(df, batch_id):
            if not df.isEmpty() and failure is not None:
                raise DeadError(failure)
            found.extend(row.offset for row in df.collect())

        reader = spark.readStream.format(source).option("subscribe", name)
        reader = reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        writer = reader.options(**options).load().writeStream.foreachBatch(take)
        read_out(writer.option("checkpointLocation", str(checkpoint)))

    read(sparks_own, **after)
    for file in (*checkpoint.glob("offsets/*"), *checkpoint.glob("commits/*")):
        file.unlink()
    produce(name, ["v"] * 10)
    with pytest.raises(StreamingQueryException, match="dies"):
        read(sparks_own, "it dies", **after)
    produce(name, ["v"] * 40)

    with pytest.raises(StreamingQueryException, match="KAFKA_TX_START_NOT_KNOWN"):
        read("kafka_tx", **after)
    kept = (checkpoint / "sources" / "0" / "0").read_text().partition("v1")[2]
    read("kafka_tx", startingOffsets=kept)

    assert found == list(range(100, 150))


@pytest.mark.all
def test_trimmed_topics_are_equal(both, topic, produce, kafka):
    name = topic(1)
    produce(name, [str(n) for n in range(50)])
    kafka.delete_records(name, {0: 20})

    theirs, ours = both(name)

    assert [row.offset for row in ours] == list(range(20, 50))
    assert ours == theirs
