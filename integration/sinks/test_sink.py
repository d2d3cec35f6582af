"""The Kafka sink: columns, errors, and batches written exactly once."""

from __future__ import annotations

import datetime as dt
import itertools
from functools import partial

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import kafka_tx
from integration.bounded import read_out
from integration.cluster.records import Record
from integration.cluster.waiting import PATIENT_S
from integration.consuming import committed_records
from integration.reading import reader
from integration.sizes import in_all
from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt

FOREVER = {"retention.ms": "-1"}


@pytest.fixture
def read(kafka):
    """Records of a topic as a reader sees them who reads committed ones only."""
    return partial(committed_records, kafka.bootstrap_servers)


def values(rows):
    return sorted(row.text for row in rows)


def write(df, kafka, **options):
    writer = df.write.format("kafka_tx").mode("append")
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def test_rows_are_written_as_sparks_own_sink_writes_them(
    spark, kafka, sparks_own, topic, read
):
    df = spark.sql(
        "SELECT * FROM VALUES ('k1', 'v1', 1), (NULL, 'v2', 0), ('k3', NULL, 2)"
        " AS t(key, value, partition)"
    ).selectExpr(
        "key",
        "value",
        "partition",
        "array(named_struct('key', 'h', 'value', cast('x' AS binary))) AS headers",
    )
    ours, theirs = topic(3), topic(3)

    write(df, kafka, topic=ours)
    df.write.format(sparks_own).option(
        "kafka.bootstrap.servers", kafka.bootstrap_servers
    ).option("topic", theirs).save()

    def facts(rows):
        return [(r.key, r.value, r.partition, r.offset, r.headers) for r in rows]

    assert len(read(ours)) == 3
    assert facts(read(ours)) == facts(read(theirs))


def test_keys_go_to_the_partitions_that_the_java_client_chooses(
    spark, kafka, sparks_own, topic, read
):
    df = spark.range(200).selectExpr("cast(id AS string) AS key", "'v' AS value")
    ours, theirs = topic(5), topic(5)

    write(df, kafka, topic=ours)
    df.write.format(sparks_own).option(
        "kafka.bootstrap.servers", kafka.bootstrap_servers
    ).option("topic", theirs).save()

    def places(rows):
        return {row.key: row.partition for row in rows}

    assert places(read(ours)) == places(read(theirs))


def test_a_column_timestamp_is_the_time_of_records_only_when_that_is_said(
    spark, kafka, sparks_own, topic, read
):
    old = "SELECT 'a' AS value, timestamp_millis(1700000000123) AS timestamp"
    ignored, theirs = topic(1), topic(1)
    taken = topic(1, config={"retention.ms": "-1"})  # else its records go at once

    write(spark.sql(old), kafka, topic=ignored)
    write(spark.sql("SELECT 'b' AS value, 'text' AS timestamp"), kafka, topic=ignored)
    write(spark.sql(old), kafka, topic=taken, timestampColumn="true")
    spark.sql(old).write.format(sparks_own).option(
        "kafka.bootstrap.servers", kafka.bootstrap_servers
    ).option("topic", theirs).save()

    def years(name):
        return {row.timestamp.year for row in read(name)}

    assert years(ignored) == years(theirs)
    assert years(taken) == {2023}


LOCAL = {
    "2026-07-01 12:00:00.123": "summer",
    "2026-03-08 02:30:00": "left out in New York",
    "2026-11-01 01:30:00": "twice in New York",
    "1900-06-01 00:00:00.001": "old",
}
PYTHON = {"kafka__debug": "fetch"}
"""An option with which only the Python writer can write."""


@pytest.fixture
def zone(spark):
    """Set the session's time zone."""
    yield partial(spark.conf.set, "spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="native"),
        pytest.param(PYTHON, id="python", marks=pytest.mark.all),
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "America/New_York",
        *in_all("Asia/Tokyo", "UTC", "GMT+8"),
    ],
)
def test_times_without_a_zone_are_those_of_the_session(
    spark, kafka, topic, read, zone, name, more
):
    zone(name)
    rows = " UNION ALL ".join(
        f"SELECT timestamp_ntz'{at}' AS timestamp" for at in LOCAL
    )
    local = spark.sql(rows).selectExpr("string(timestamp) AS value", "timestamp")
    as_spark = {
        row.value: row.ms
        for row in local.selectExpr(
            "value", "unix_millis(cast(timestamp AS timestamp)) AS ms"
        ).collect()
    }
    written, once = (topic(1, config=FOREVER) for _ in range(2))

    write(local, kafka, topic=written, timestampColumn="true", **more)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        **{option.replace("__", "."): value for option, value in more.items()},
        "timestampColumn": "true",
    }
    kafka_tx.write_transaction(
        local, TransactionAttempt(1, 1), {**options, "topic": once, "tx.id": once}
    )

    for found in (written, once):
        assert {r.text: ms_of(r) for r in read(found)} == as_spark


def ms_of(row):
    return (row.timestamp - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(
        milliseconds=1
    )


def test_times_without_a_zone_are_refused_where_the_zone_is_unknown(
    spark, kafka, topic, zone, read
):
    local = spark.sql(
        "SELECT 'v' AS value, timestamp_ntz'2026-07-01 12:00:00' timestamp"
    )
    name = topic(1, config=FOREVER)
    spark.conf.unset("spark.sql.session.timeZone")
    refusals = [lambda: zone("PST"), lambda: None]
    for unknown in refusals:
        unknown()
        with pytest.raises(PySparkException, match=r"timestamp\.cast\('timestamp'\)"):
            write(local, kafka, topic=name, timestampColumn="true")
    assert read(name) == []


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="native"),
        pytest.param(PYTHON, id="python", marks=pytest.mark.all),
    ],
)
def test_a_time_that_would_become_the_present_one_is_refused(
    spark, kafka, topic, read, more
):
    def rows(*times_us):
        columns = "string(t) AS value, timestamp_micros(t) AS timestamp"
        return spark.createDataFrame([(t,) for t in times_us], "t long").selectExpr(
            *columns.split(", ")
        )

    name = topic(1, config=FOREVER)
    once = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": name,
        "tx.id": name,
        "timestampColumn": "true",
    }
    for at in (0, 999):
        with pytest.raises(PySparkException, match="takes this one for none"):
            write(rows(at), kafka, topic=name, timestampColumn="true", **more)
        with pytest.raises(PySparkException, match="takes this one for none"):
            kafka_tx.write_transaction(rows(at), TransactionAttempt(1, 1), once)

    write(
        rows(1_000, -1, -1_000, -1_500),
        kafka,
        topic=name,
        timestampColumn="true",
        **more,
    )
    assert {r.text: ms_of(r) for r in read(name)} == {
        "1000": 1,
        "-1": -1,
        "-1000": -1,
        "-1500": -2,
    }


@pytest.mark.all
def test_the_largest_record_that_sparks_sink_writes_is_written(
    spark, kafka, sparks_own, topic, read
):
    df = spark.sql("SELECT repeat('x', 1048576 - 88) AS value")  # Java's own overhead
    ours, theirs = topic(1), topic(1)

    df.write.format(sparks_own).option(
        "kafka.bootstrap.servers", kafka.bootstrap_servers
    ).option("topic", theirs).save()
    write(df, kafka, topic=ours)

    assert values(read(ours)) == values(read(theirs))


def test_the_topic_may_be_a_column(spark, kafka, topic, read):
    first, second = topic(1), topic(1)
    df = spark.createDataFrame(
        [(first, "a"), (second, "b")], "topic string, value string"
    )

    write(df, kafka)

    assert (values(read(first)), values(read(second))) == (["a"], ["b"])


@pytest.mark.parametrize(
    ("query", "options", "text"),
    [
        ("SELECT 'a' AS value", {}, "topic option required"),
        ("SELECT 'a' AS key", {"topic": "t"}, "Required attribute 'value' not found"),
        ("SELECT 1 AS value", {"topic": "t"}, "value attribute unsupported type int"),
        ("SELECT 1 AS value, 2 AS value", {"topic": "t"}, "have the name 'value'"),
        (
            "SELECT 'a' AS value, cast(NULL AS string) AS topic",
            {},
            "KAFKA_NULL_TOPIC_IN_DATA",
        ),
        (
            "SELECT 'a' AS value",
            {"topic": "t", "tx__attempt": "[1]"},
            "needs option 'tx.id'",
        ),
        (
            "SELECT 'a' AS value",
            {"topic": "t", "tx__id": "once"},
            "Use kafka_tx.write_transaction",
        ),
        ("SELECT 'a' AS value", {"topic": "t", "tx__idd": "once"}, "mean 'tx.id'"),
        ("SELECT 'a' AS value", {"topicc": "t"}, "'topicc'.*mean 'topic'"),
        ("SELECT 'a' AS value", {"topic": "t", "tx__store": "memory:"}, "tx.store"),
        ("SELECT 'a' AS value, -1 AS partition", {"topic": "t"}, "is -1; legal: 0"),
        (
            "SELECT 'a' AS value, array(named_struct('key', cast(NULL AS string),"
            " 'value', cast('x' AS binary))) AS headers",
            {"topic": "t"},
            "headers with a key",
        ),
        (
            "SELECT 'a' AS value, 1 AS timestamp",
            {"topic": "t", "timestampColumn": "true"},
            "timestamp attribute unsupported type int",
        ),
    ],
)
def test_bad_rows_and_options_are_refused(spark, kafka, query, options, text):
    with pytest.raises(PySparkException, match=text):
        write(spark.sql(query), kafka, **options)


def test_an_oversize_record_is_named_and_nothing_of_its_part_is_visible(
    spark, kafka, topic, read
):
    name = topic(1, config={"max.message.bytes": "2000"})
    df = spark.sql(
        "SELECT cast(id AS string) AS key, repeat('x', CASE WHEN id = 7 THEN 9000"
        " ELSE 10 END) AS value FROM range(10)"
    ).coalesce(1)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": name,
        "tx.id": f"{name}-sink",
    }

    with pytest.raises(
        PySparkException, match=f"KAFKA_TX_DELIVERY.*{name}.*b'7'.*9001"
    ):
        kafka_tx.write_transaction(df, TransactionAttempt(1, 1), options)

    assert read(name) == []


@pytest.mark.all
@pytest.mark.parametrize("parts", [1, 3])
def test_a_transaction_is_written_once_however_often_it_is_tried(
    spark, kafka, topic, read, parts
):
    name = topic(2)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": name,
        "tx.id": f"{name}-sink",
    }

    for txid, tries in ((1, 2), (2, 1), (3, 2)):
        df = spark.range(20).selectExpr(
            "cast(id AS string) AS key", f"concat('t{txid}-', id) AS value"
        )
        for attempt_id in range(tries):
            attempt = TransactionAttempt(txid, attempt_id)
            kafka_tx.write_transaction(df, attempt, options, parts=parts)

    expected = sorted(f"t{txid}-{n}" for txid in (1, 2, 3) for n in range(20))
    assert values(read(name)) == expected


def test_an_older_transaction_is_refused(spark, kafka, topic):
    name = topic(1)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": name,
        "tx.id": f"{name}-sink",
    }
    df = spark.sql("SELECT 'v' AS value")
    kafka_tx.write_transaction(df, TransactionAttempt(5, 1), options)

    with pytest.raises(PySparkException, match="KAFKA_TX_OUT_OF_ORDER"):
        kafka_tx.write_transaction(df, TransactionAttempt(4, 1), options)


@pytest.mark.parametrize(
    ("parts", "opaque"),
    [pytest.param(1, True, marks=pytest.mark.all), (3, False)],
)
def test_a_replay_with_other_rows_is_refused(spark, kafka, topic, read, parts, opaque):
    name = topic(1)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": name,
        "tx.id": f"{name}-sink",
    }

    tries = itertools.count()

    def write_rows(count, **other):
        df = spark.range(count).selectExpr("cast(id AS string) AS key", "'v' AS value")
        attempt = TransactionAttempt(1, next(tries))
        given = {**options, **other}
        kafka_tx.write_transaction(df, attempt, given, parts=parts, opaque=opaque)

    write_rows(20)

    with pytest.raises(PySparkException, match="KAFKA_TX_REPLAY_DIFFERS"):
        write_rows(60)
    write_rows(20)  # undone
    assert len(read(name)) == 20
    write_rows(60, **{"tx.id": f"{name}-another"})  # "writes the whole batch again"
    assert len(read(name)) == 80


def test_one_part_may_be_replayed_by_a_plan_that_is_not_deterministic(
    spark, kafka, topic, read
):
    name = topic(1)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": name,
        "tx.id": f"{name}-sink",
    }

    for attempt_id in range(2):
        df = spark.range(5).selectExpr("uuid() AS value")
        kafka_tx.write_transaction(df, TransactionAttempt(1, attempt_id), options)

    assert len(read(name)) == 5


def test_several_parts_of_an_opaque_batch_are_refused(spark):
    df = spark.sql("SELECT 'k' AS key, 'v' AS value")
    options = {"topic": "t", "tx.id": "once"}

    with pytest.raises(ConfigError, match="half of one cannot be replayed"):
        kafka_tx.write_transaction(
            df, TransactionAttempt(1, 1), options, parts=2, opaque=True
        )


@pytest.fixture
def copy(spark, kafka, tmp_path):
    """Copy a topic into another through ``writeStream``, to the end."""

    def run(source, target, **options):
        writer = (
            reader(spark, kafka.bootstrap_servers, subscribe=source)
            .option("maxOffsetsPerTrigger", "20")
            .load()
            .select("key", "value")
            .writeStream.format("kafka_tx")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), value)
        read_out(writer)

    return run


def test_a_stream_is_written_at_least_once(topic, produce, read, copy):
    source, target = topic(2), topic(2)
    produce(source, [f"v{n}" for n in range(50)])

    copy(source, target)

    assert values(read(target)) == sorted(f"v{n}" for n in range(50))


def forget_newest_commit(checkpoint):
    commits = checkpoint / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("tx_id", [True, *in_all(False)])
def test_a_stream_with_an_id_repeats_no_batch_that_spark_forgot(
    topic, produce, read, copy, tmp_path, tx_id
):
    source, target = topic(2), topic(2)
    produce(source, [f"v{n}" for n in range(50)])
    options = {"tx__id": f"{target}-sink"} if tx_id else {}
    copy(source, target, **options)
    forget_newest_commit(tmp_path / "checkpoint")
    produce(source, [f"v{n}" for n in range(50, 60)])

    copy(source, target, **options)

    found = values(read(target))
    assert set(found) == {f"v{n}" for n in range(60)}
    assert (len(found) == 60) == tx_id


def test_a_transaction_that_spark_forgot_is_written_once(
    spark, kafka, topic, produce, read, tmp_path
):
    source, target = topic(2), topic(2)
    produce(source, [Record(f"v{n}", key=f"k{n}") for n in range(50)])
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": target,
        "tx.id": f"{target}-sink",
    }

    def write(df, attempt):
        seen.append(attempt.txid)
        rows = df.select("key", "value")
        kafka_tx.write_transaction(rows, attempt, options, parts=2)

    def run(checkpoint):
        read_out(
            reader(
                spark,
                kafka.bootstrap_servers,
                subscribe=source,
                maxOffsetsPerTrigger="20",
                tx__id=source,
                tx__store=f"sqlite:///{tmp_path}/store.db",
            )
            .load()
            .writeStream.foreachBatch(kafka_tx.for_each_transaction(write))
            .option("checkpointLocation", str(tmp_path / checkpoint))
        )

    seen: list[int] = []
    run("first")
    forget_newest_commit(tmp_path / "first")
    run("first")

    assert seen == [1, 2, 3, 3]
    assert values(read(target)) == sorted(f"v{n}" for n in range(50))


def test_a_stream_with_an_id_needs_a_topic_for_all_rows(topic, produce, copy):
    source = topic(1)
    produce(source, ["v"])

    with pytest.raises(StreamingQueryException, match="needs option 'topic'"):
        copy(source, "", tx__id="once")


@pytest.fixture
def speculating(spark):
    """A session that shows what a context with speculation hands to its sessions."""
    session = spark.newSession()
    session.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    session.conf.set("spark.speculation", "true")
    return session


SPECULATION = r"'spark\.speculation' is 'true'.*two tasks at once.*SparkContext"


def test_speculation_is_refused_where_a_part_is_written_once(
    speculating, kafka, topic, produce, read, tmp_path
):
    source, target = topic(1), topic(1)
    produce(source, ["v1"])
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": target,
        "tx.id": f"{target}-sink",
    }
    df = speculating.sql("SELECT 'k' AS key, 'v' AS value")
    stream = (
        reader(speculating, kafka.bootstrap_servers, subscribe=source)
        .load()
        .select("key", "value")
        .writeStream.format("kafka_tx")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )

    with pytest.raises(ConfigError, match=SPECULATION):
        kafka_tx.write_transaction(df, TransactionAttempt(1, 1), options)
    with pytest.raises(StreamingQueryException, match=SPECULATION):
        read_out(stream.options(**options))

    assert values(read(target)) == []
    write(df, kafka, topic=target)  # at least once
    assert values(read(target)) == ["v"]


def test_a_stream_is_refused_an_id_under_another_name(topic, produce, copy, read):
    source, target = topic(1), topic(1)
    produce(source, ["v"])

    with pytest.raises(StreamingQueryException, match=r"'tx_id'.*mean 'tx\.id'"):
        copy(source, target, tx_id="once")

    assert values(read(target)) == []


@pytest.mark.all
def test_a_query_reads_no_markers_of_its_own_sink(
    spark, kafka, topic, produce, tmp_path
):
    name, out = topic(1), topic(1)
    produce(name, ["a", "b", "c"])
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    named = {"tx.markerTopic": f"{name}-markers"}
    kafka.create_topic(named["tx.markerTopic"], 1, config={"cleanup.policy": "compact"})
    batches: list[int] = []

    def run(pattern, sink):
        def write(df, attempt):
            kafka_tx.write_transaction(df.select("value"), attempt, sink)
            batches.append(df.count())

        at = tmp_path / sink["tx.id"]
        source = {**servers, "subscribePattern": pattern, "startingOffsets": "earliest"}
        numbered = {"tx.id": sink["tx.id"], "tx.store": f"sqlite:///{at}.db"}
        reading = spark.readStream.format("kafka_tx").options(**source, **numbered)
        each = kafka_tx.for_each_transaction(write)
        writing = reading.load().writeStream.foreachBatch(each)
        writing = writing.option("checkpointLocation", str(at))
        assert writing.trigger(availableNow=True).start().awaitTermination(PATIENT_S)

    by_default = {**servers, "topic": out, "tx.id": f"{name}-default"}
    for _ in range(2):
        run(f"{name}$|kafka_tx.markers", by_default)
    assert batches == [3]

    with pytest.raises(StreamingQueryException, match="that the query does not read"):
        run(f"{name}.*", {**servers, **named, "topic": out, "tx.id": f"{name}-named"})
    assert batches == [3], "nothing was written"
