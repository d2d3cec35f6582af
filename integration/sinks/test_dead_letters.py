"""Records that functions of ``foreachBatch`` reject, and letters that are sent back."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import closing, contextmanager
from queue import SimpleQueue
from typing import Any

import pytest
import requests
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import lit, to_json, udf
from typer.testing import CliRunner

import kafka_tx
from integration.cluster.records import Record
from integration.cluster.waiting import wait_until
from integration.consuming import committed_records
from integration.reading import reader
from integration.sizes import in_all
from kafka_tx import sink_assembly
from kafka_tx.cli.changes import Change
from kafka_tx.cli.main import app
from kafka_tx.clock import now_ms
from kafka_tx.config import SourceConfig
from kafka_tx.errors import ConfigError, KafkaError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.transaction import Transaction
from kafka_tx.model import Earliest, OffsetRange, Topics
from kafka_tx.model import TopicPartition as Partition
from kafka_tx.own_topics import MARKER_TOPIC
from kafka_tx.running import redrive
from kafka_tx.running.at_least_once.dead_letters import DeadLetter, DeadLetters
from kafka_tx.running.redrive import Redrive
from kafka_tx.spark.queries import dead_letters

GOOD, BAD = 5, 3
BEGAN_MS = int(time.time()) * 1000
HOUR_MS = 3_600_000


def read(kafka, topic):
    return committed_records(kafka.bootstrap_servers, topic)


def about(message):
    """The headers of a letter or record, as text."""
    return {name: (value or b"").decode() for name, value in message.headers or ()}


@pytest.fixture
def orders(topic, produce):
    """A topic with good and bad records."""
    name = topic(1, "orders")
    good = [Record(f"{n}", f"k{n}") for n in range(GOOD)]
    bad = [
        Record(f"bad {n}", f"b{n}", [("trace", b"t"), ("none", None)], BEGAN_MS + n)
        for n in range(BAD)
    ]
    produce(name, [*good, *bad])
    return name


@pytest.fixture
def buried(job, produce):
    """A job with letters as at-least-once topologies write them."""
    for n in range(BAD):
        ours = {
            "topic": job.orders,
            "partition": 0,
            "offset": GOOD + n,
            "error": "it failed",
            "attempts": 3,
            "format": 3,
        }
        own = [(f"kafka_tx.{name}", f"{at}".encode()) for name, at in ours.items()]
        produce(job.dead, [Record(f"bad {n}", f"b{n}", [("trace", b"t"), *own])])
    return job


@pytest.fixture
def job(spark, kafka, orders, topic, tmp_path):
    any_time = {"message.timestamp.after.max.ms": str(2**62)}
    dead = topic(1, "dead", config=any_time)
    return Job(spark, kafka, orders, dead, tmp_path)


class Job:
    """Rejects what is no number."""

    def __init__(self, spark, kafka, orders, dead, work):
        self._spark, self.kafka, self.orders, self.dead = spark, kafka, orders, dead
        self._work = work
        self.store = f"sqlite:///{work}/store.db"
        self.id = orders
        self.good = 0
        self.was_persisted = False
        """Whether rows that a batch was given still were behind it."""

    def run(
        self,
        function=None,
        mode="transactional",
        after=lambda: None,
        columns=None,
        **options,
    ):
        def save(df, attempt):
            rows = df.withColumn("text", df["value"].cast("string"))
            self.good += rows.where("text not like 'bad%'").count()
            return rows.where("text like 'bad%'").selectExpr(
                "*", "concat(text, ' is no number') AS reason"
            )

        handle = kafka_tx.with_dead_letters(function or save, self.dead)

        def write(df, batch_id):
            handle(df, batch_id)
            self.was_persisted |= df.storageLevel.useMemory
            after()

        options = {"subscribe": self.orders, "includeHeaders": "true"} | options
        options = {name: value for name, value in options.items() if value is not None}
        (
            reader(
                self._spark,
                self.kafka.bootstrap_servers,
                **options,
                tx__id=self.id,
                tx__store=self.store,
                tx__mode=mode,
            )
            .load()
            .withColumns(columns or {})
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self._work / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    def forget_checkpoint(self):
        shutil.rmtree(self._work / "checkpoint")

    def dead_letters(self):
        return read(self.kafka, self.dead)


def dies():
    raise RuntimeError("killed")


@pytest.mark.parametrize("mode", ["transactional", *in_all("opaque")])
def test_rejected_records_are_written_once_where_their_batch_comes_again(
    spark, job, mode
):
    """And counted once they are committed."""
    count = (
        "kafka_tx_dead_letter_records_total"
        f'{{id="{job.orders}",partition="0",topic="{job.orders}"}}'
    )
    with closing(kafka_tx.attach(spark, metrics_port=0)) as attached:
        with pytest.raises(StreamingQueryException, match="killed"):
            job.run(mode=mode, after=dies)
        assert count not in scraped(attached)
        job.forget_checkpoint()

        job.run(mode=mode)
        wait_until("they are counted", lambda: f"{count} {BAD}.0" in scraped(attached))

    found = job.dead_letters()
    assert [each.value for each in found] == [b"bad 0", b"bad 1", b"bad 2"]
    assert [each.key for each in found] == [b"b0", b"b1", b"b2"]
    assert [each.timestamp.timestamp() for each in found] == [
        (BEGAN_MS + n) / 1000 for n in range(BAD)
    ]
    assert about(found[1]) == {
        "trace": "t",
        "none": "",
        "kafka_tx.topic": job.orders,
        "kafka_tx.partition": "0",
        "kafka_tx.offset": str(GOOD + 1),
        "kafka_tx.error": "bad 1 is no number",
        "kafka_tx.txid": "1",
        "kafka_tx.format": "3",
    }


@pytest.mark.all
def test_an_id_is_renamed_after_its_batch_is_finished_as_rename_says(job, produce):
    renamed = f"{job.id}-renamed"
    words = "rename", "--store", job.store, "--id", job.id, "--to", renamed
    with pytest.raises(StreamingQueryException, match="killed"):
        job.run(after=dies)
    told = CliRunner().invoke(app, words).stdout
    assert "first run it to its end" in told
    assert "Nothing was written" in told

    job.run()
    assert CliRunner().invoke(app, [*words, "--yes"]).exit_code == 0
    job.id = renamed
    produce(job.orders, [Record("bad 3", "b3", (), BEGAN_MS)])
    job.run()

    found = [each.value for each in job.dead_letters()]
    assert found == [f"bad {n}".encode() for n in range(BAD + 1)]


@pytest.mark.parametrize("mode", ["transactional", "opaque"])
def test_other_rejected_rows_of_a_replay(job, mode):
    """Of transactional batches the first ones stay; of opaque ones they are refused."""

    def another_one(df, attempt):
        return df.limit(1).selectExpr("*", "'another' AS reason")

    with pytest.raises(StreamingQueryException, match="killed"):
        job.run(mode=mode, after=dies)

    if mode == "transactional":
        job.run(another_one, mode=mode)
    else:
        with pytest.raises(StreamingQueryException, match="KAFKA_TX_REPLAY_DIFFERS"):
            job.run(another_one, mode=mode)
        job.run(lambda df, attempt: None, mode=mode)  # as the error says

    assert [each.value for each in job.dead_letters()] == [b"bad 0", b"bad 1", b"bad 2"]


def test_rejected_rows_are_the_same_rows_whatever_the_topic_takes_now(
    job, topic, monkeypatch
):
    """Half of its retention has passed, and it takes smaller records."""
    job.dead = topic(1, config={"retention.ms": str(24 * HOUR_MS)})
    with pytest.raises(StreamingQueryException, match="killed"):
        job.run(mode="opaque", after=dies)
    monkeypatch.setattr(dead_letters, "now_ms", lambda: now_ms() + 13 * HOUR_MS)
    monkeypatch.setattr(sink_assembly, "largest_batch", lambda config: 1_100)

    job.run(mode="opaque")

    found = [(each.value, about(each)) for each in job.dead_letters()]
    assert [value for value, _ in found] == [b"bad 0", b"bad 1", b"bad 2"]
    assert not any("kafka_tx.timestamp_ms" in headers for _, headers in found)


@pytest.mark.all
def test_a_batch_that_rejects_nothing_writes_nothing_and_later_ones_do(job, produce):
    asked = []

    def save(df, attempt):
        asked.append(attempt.txid)
        return df.where("false").selectExpr("*", "'' AS reason")

    job.run(save, maxOffsetsPerTrigger="4")
    produce(job.orders, ["x"])
    job.run(lambda df, attempt: None)
    produce(job.orders, ["y"])
    job.run(lambda df, attempt: df.selectExpr("*", "cast(null as string) AS reason"))

    assert asked == [1, 2]
    assert [
        (each.value, about(each)["kafka_tx.txid"]) for each in job.dead_letters()
    ] == [(b"y", "4")]
    assert about(job.dead_letters()[0])["kafka_tx.error"] == ""


def test_what_does_not_fit_is_a_letter_without_value_that_is_sent_back_whole(
    job, kafka, topic, produce
):
    job.dead = topic(1, "small", config={"max.message.bytes": "20000"})
    large = "bad" + "x" * 30_000
    produce(job.orders, [Record(large, "large", [("trace", b"l")])])

    job.run()

    *small, cut = job.dead_letters()
    assert len(small) == BAD
    assert (cut.key, cut.value) == (b"large", None)
    assert about(cut)["kafka_tx.bytes"] == str(len(large))
    assert "trace" not in about(cut)

    assert "sent back: 4" in output_of(job, "send", "--yes")
    back = read(kafka, job.orders)[-1]
    assert (back.key, back.value) == (b"large", large.encode())
    assert about(back) == {"trace": "l"}


@pytest.mark.parametrize("kind", [*in_all("string", "binary"), "struct<a:int>"])
def test_typed_columns_become_the_bytes_of_their_records_whatever_their_type(
    spark, kind
):
    """A text or bytes of a schema is not what its record holds."""
    types = f"key binary, value {kind}, value_bytes binary"
    avro, raw = {"value.format": " AVRO "}, {"value.format": "bytes"}
    decoded = {"string": "x", "binary": b"x"}.get(kind, (1,))
    broken = spark.createDataFrame([(b"k", None, b"\0as it was")], types)
    fine = spark.createDataFrame([(b"k", decoded, None)], types)

    given = dict(broken.dtypes)
    for options in (avro, {}):  # no options: with Spark Connect
        (row,) = dead_letters._with_bytes(broken, given, options).collect()
        assert (bytes(row.key), bytes(row.value)) == (b"k", b"\0as it was")
        with pytest.raises(ConfigError, match="was decoded"):
            dead_letters._with_bytes(fine, given, options)
    with pytest.raises(ConfigError, match="Set value.mode=PERMISSIVE"):
        dead_letters._with_bytes(fine.drop("value_bytes"), given, avro)
    if kind == "struct<a:int>":  # the function may encode it itself
        own = fine.select("key", lit("{}").alias("value"))
        (row,) = dead_letters._with_bytes(own, given, avro).collect()
        assert row.value == "{}"
        both = broken.union(fine).withColumn("value", to_json("value"))
        found = dead_letters._with_bytes(both, given, avro).collect()
        assert [bytes(row.value) for row in found] == [b"\0as it was", b'{"a":1}']
    else:  # a column of the user's that has this name
        (row,) = dead_letters._with_bytes(fine, given, raw).collect()
        assert row.value == decoded


PERMISSIVE = {
    "value__format": "avro",
    "value__schema": '"string"',
    "value__mode": "PERMISSIVE",
}


@pytest.mark.parametrize("persists", [False, True])
def test_a_record_is_broken_for_the_function_and_as_dead_letter_or_for_neither(
    job, tmp_path, persists
):
    """A registry learns its schema meanwhile: it would be in neither place.

    Also if the function persists its rows itself, and gives them up before it ends.
    """

    @udf("string")
    def unknown_at_first(offset):
        known = tmp_path / f"{offset} is known"
        try:
            known.touch(exist_ok=False)
        except FileExistsError:
            return None
        return "unknown"

    verdict = unknown_at_first.asNondeterministic()("offset")
    kept = []

    def save(df, attempt):
        if persists:
            df.persist()
        kept.append(df.where("value_error IS NULL").count())
        if persists:
            df.unpersist()
        broken = df.where("value_error IS NOT NULL")
        return broken.withColumn("reason", broken["value_error"])

    job.run(save, columns={"value_error": verdict}, **PERMISSIVE)

    assert kept == [0]
    assert len(job.dead_letters()) == GOOD + BAD
    assert not job.was_persisted


@pytest.mark.all
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda df, attempt: df, "have no column reason"),
        (lambda df, attempt: df.count(), "a DataFrame or None"),
    ],
)
def test_rows_that_are_no_rejected_rows_stop_the_query(job, function, says):
    with pytest.raises(StreamingQueryException, match=says):
        job.run(function)

    assert job.dead_letters() == []


@pytest.mark.parametrize(
    "subscription",
    ["subscribe", *in_all("subscribePattern")],
)
def test_a_dead_letter_topic_that_the_query_reads_is_refused(job, kafka, subscription):
    given = {"subscribe": job.orders}
    if subscription == "subscribePattern":
        job.dead = f"{job.orders}-dead"
        kafka.create_topic(job.dead, 1)
        given = {"subscribe": None, subscription: f"{job.orders}.*"}
    else:
        job.dead = job.orders
    before = len(read(kafka, job.dead))

    with pytest.raises(StreamingQueryException, match="does not read"):
        job.run(**given)

    assert len(read(kafka, job.dead)) == before


@pytest.mark.all
def test_a_compacted_topic_is_refused_before_a_dead_letter_is_needed(job, topic):
    job.dead = topic(1, config={"cleanup.policy": "compact"})

    with pytest.raises(StreamingQueryException, match=r"cleanup\.policy=delete"):
        job.run(lambda df, attempt: None)


@pytest.mark.all
def test_times_that_the_topic_refuses_or_soon_removes_stand_in_a_header(
    job, kafka, topic, produce
):
    """A clock that is two hours ahead stops no query."""
    any_time = {"message.timestamp.after.max.ms": str(2**62), "retention.ms": "-1"}
    job.orders = topic(1, config=any_time)
    job.dead = topic(1, config={"retention.ms": str(7 * 24 * HOUR_MS)})
    now = int(time.time()) * 1_000
    times = [now + 2 * HOUR_MS, now - 30 * 24 * HOUR_MS, now]
    produce(job.orders, [Record(f"bad {t}", timestamp_ms=t) for t in times])

    job.run()

    found = job.dead_letters()
    told = [about(each).get("kafka_tx.timestamp_ms") for each in found]
    assert told == [str(times[0]), str(times[1]), None]
    assert all(abs(each.timestamp.timestamp() - now / 1_000) < 3_600 for each in found)


@pytest.mark.all
def test_rows_without_a_timestamp_are_the_same_rows_in_a_replay(job):
    columns = "key", "value", "topic", "partition", "offset", "'no' AS reason"

    def rejects(df, attempt):
        return df.selectExpr(*columns)

    with pytest.raises(StreamingQueryException, match="killed"):
        job.run(rejects, mode="opaque", after=dies)
    job.run(rejects, mode="opaque")

    assert len(job.dead_letters()) == GOOD + BAD


def scraped(attached):
    return requests.get(f"http://127.0.0.1:{attached.port}/metrics", timeout=60).text


# --- sent back ------------------------------------------------------------------------


def result_of(job, *arguments):
    command = [
        *("dead-letters", *arguments, "--topic", job.dead),
        *("--bootstrap-servers", job.kafka.bootstrap_servers),
    ]
    return CliRunner().invoke(app, command)


def output_of(job, *arguments, code=0):
    results = []

    def is_told():
        results.append(result_of(job, *arguments))
        return "hidden by a transaction" not in results[-1].output

    wait_until("no transaction of another test hides what was sent", is_told)
    assert results[-1].exit_code == code, results[-1].output
    return results[-1].output


def test_letters_are_shown_and_sent_back_once(job, kafka):
    job.run()

    shown = json.loads(output_of(job, "show", "--json"))
    assert [(each["offset"], each["error"]) for each in shown] == [
        (GOOD + n, f"bad {n} is no number") for n in range(BAD)
    ]
    assert f"{BAD} to {job.orders}" in output_of(
        job, "send"
    )  # only says what it would do
    assert len(read(kafka, job.orders)) == GOOD + BAD

    assert f"sent back: {BAD}" in output_of(job, "send", "--yes")
    assert "sent back: 0" in output_of(job, "send", "--yes")

    back = read(kafka, job.orders)[GOOD + BAD :]
    assert [(m.key, m.value, about(m)) for m in back] == [
        (f"b{n}".encode(), f"bad {n}".encode(), {"trace": "t", "none": ""})
        for n in range(BAD)
    ]
    assert output_of(job, "show") == ""
    assert len(output_of(job, "show", "--sent").splitlines()) == BAD


STEPS = ["send", "add_position", "commit", "after commit"]


@pytest.mark.parametrize("step", STEPS)
def test_a_sender_that_dies_at_any_step_sends_each_letter_once(
    buried, kafka, monkeypatch, step
):
    """It leaves its transaction as it is: the next sender ends it."""
    monkeypatch.setattr(Transaction, "_abort", lambda self: None)
    method = getattr(Transaction, step.removeprefix("after ").replace(" ", "_"))

    def dying(self, *given):
        if step.startswith("after") or step == "send":
            method(self, *given)
        raise KeyboardInterrupt

    redrive = Redrive(settings(buried), buried.dead, 10_000)
    with pytest.MonkeyPatch.context() as patch:
        name = method.__name__
        patch.setattr(Transaction, name, dying)
        with pytest.raises(KeyboardInterrupt):
            redrive.send(redrive.waiting(), {buried.orders}, lambda letters: None)

    output_of(buried, "send", "--yes")

    values = [each.value for each in read(kafka, buried.orders)]
    assert values[GOOD + BAD :] == [b"bad 0", b"bad 1", b"bad 2"]


def test_a_second_sender_ends_the_first_one(buried, kafka):
    group = Redrive(settings(buried), buried.dead, 10_000).group
    first = sink_assembly.group_transaction(settings(buried), group, "a test", set())
    with first:
        output_of(buried, "send", "--yes")
        first.client.begin_transaction()
        with pytest.raises(KafkaError, match="another writer"):
            first.add_position(Partition(buried.dead, 0), 0)

    assert "sent back: 0" in output_of(buried, "send", "--yes")
    assert len(read(kafka, buried.orders)) == GOOD + 2 * BAD


def test_a_letter_that_cannot_be_sent_is_named_and_holds_up_no_other(
    buried, kafka, topic, produce
):
    """Each fails alone, and is offered again until it is skipped."""
    gone, keyed = (
        topic(1, "gone"),
        topic(1, "keyed", config={"cleanup.policy": "compact"}),
    )
    kafka.delete_topic(gone)
    bad = {
        "no dead letter": Record("by hand"),
        "topic": letter(gone, 0),
        "partition": letter(buried.orders, 7),
        "minus": letter(buried.orders, -1),
        "huge": letter(buried.orders, 10**30),
        "nameless": letter("", 0),
        "size": letter(buried.orders, 0, bytes="abc"),
        "keyless": letter(keyed, 0, key=None),
        "markers": letter(MARKER_TOPIC, 0),
        "itself": letter(buried.dead, 0),
    }
    produce(buried.dead, [*bad.values(), letter(buried.orders, 0, value="last")])

    says = output_of(buried, "send", "--yes", code=1)
    assert f"sent back: {BAD + 1}, left: {len(bad)}" in says
    named = [line for line in says.splitlines() if line.startswith(buried.dead)]
    assert len(named) == len(bad)
    assert read(kafka, buried.orders)[-1].value == b"last"

    again = output_of(buried, "send", "--yes", code=1)
    assert f"sent back: 0, left: {len(bad)}" in again
    skipped = output_of(buried, "send", "--yes", "--skip-unusable")
    assert f"sent back: 0, skipped: {len(bad)}" in skipped
    assert "sent back: 0\n" in output_of(buried, "send", "--yes")
    assert len(read(kafka, buried.orders)) == GOOD + 2 * BAD + 1


def test_more_unusable_letters_than_can_be_remembered_stop_it(
    buried, produce, monkeypatch
):
    """And giving them up, as the text says, is a way out."""
    monkeypatch.setattr(redrive, "_MOST_LEFT", 2)
    places = [7, 0, 7, 0, 7]  # runs of letters that cannot be sent are remembered
    produce(buried.dead, [letter(buried.orders, place) for place in places])

    says = output_of(buried, "send", "--yes", code=1)

    assert "KAFKA_TX_LETTER_UNUSABLE" in says
    assert "more than 2 dead letters" in says
    skipped = output_of(buried, "send", "--yes", "--skip-unusable")
    assert "skipped: 3" in skipped


def test_a_letter_of_another_version_waits_for_that_version(buried, produce):
    produce(buried.dead, [letter(buried.orders, 0, format=n) for n in (2, 4)])

    for _ in range(2):
        says = output_of(buried, "send", "--yes", "--skip-unusable", code=1)
        assert "left: 2" in says
        assert "has format 2" in says
        assert "has format 4" in says
        assert "A later version of kafka_tx has written it" in says


def letter(topic, partition, value="bad", key="k", timestamp=None, **more):
    ours = {
        "topic": topic,
        "partition": partition,
        "offset": 0,
        "error": "e",
        "attempts": 1,
        "format": 3,
        **more,
    }
    headers = [(f"kafka_tx.{name}", f"{at}".encode()) for name, at in ours.items()]
    return Record(value, key, headers, timestamp)


@pytest.mark.all
def test_a_record_that_its_topic_refuses_is_found_among_many(
    buried, kafka, topic, produce
):
    """The brokers do not say which one it was: its range is halved."""
    small = topic(1, "small", config={"max.message.bytes": "3000"})
    few = [letter(small, 0, value=f"{n}") for n in range(20)]
    few[13] = letter(small, 0, value=os.urandom(5_000).hex())
    produce(buried.dead, few)

    says = output_of(buried, "send", "--yes", code=1)
    assert f"sent back: {BAD + 19}, left: 1" in says
    assert f"{buried.dead}-0@{BAD + 13}: " in says
    values = [int(each.value) for each in read(kafka, small)]
    assert sorted(values) == [n for n in range(20) if n != 13]


@pytest.mark.all
def test_a_time_that_the_topic_refuses_is_not_restored_and_counted(
    buried, kafka, produce
):
    ahead = int(time.time()) * 1_000 + 3 * HOUR_MS
    produce(buried.dead, [letter(buried.orders, 0, timestamp=ahead)])

    says = output_of(buried, "send", "--yes")
    assert f"sent back: {BAD + 1}, 1 of them with the present time" in says
    last = read(kafka, buried.orders)[-1]
    assert about(last)["kafka_tx.timestamp_ms"] == str(ahead)


def test_only_topics_that_are_given_are_sent_to(buried, kafka, topic, produce):
    other = topic(1, "other")
    produce(buried.dead, [letter(other, 0)])

    says = output_of(buried, "send", "--yes", "--to", buried.orders, code=1)
    assert f"sent back: {BAD}, left: 1" in says
    assert "--to" in says
    assert read(kafka, other) == []
    assert "sent back: 1" in output_of(buried, "send", "--yes")


def test_only_letters_of_the_plan_are_sent(buried, kafka, topic, produce, monkeypatch):
    """Who may write the dead-letter topic adds one while the prompt waits."""
    other = topic(1, "other")

    def agrees(*_):
        produce(buried.dead, [letter(other, 0)])
        return True

    with monkeypatch.context() as patch:
        patch.setattr(Change, "is_agreed", agrees)
        assert f"sent back: {BAD}\n" in output_of(buried, "send")

    assert read(kafka, other) == []
    assert f"1 to {other}" in output_of(buried, "send", "--yes")
    assert len(read(kafka, other)) == 1


def test_letters_are_sent_once_also_when_the_group_has_expired(buried, kafka, produce):
    assert f"sent back: {BAD}" in output_of(buried, "send", "--yes")
    drop_group(kafka, buried)
    wait_until("none is left", lambda: output_of(buried, "show") == "")
    produce(buried.dead, [letter(buried.orders, 0, value="new")])

    assert "sent back: 1" in output_of(buried, "send", "--yes")
    drop_group(kafka, buried)
    assert "sent back: 0" in output_of(buried, "send", "--yes")
    values = [each.value for each in read(kafka, buried.orders)[GOOD + BAD :]]
    assert values == [b"bad 0", b"bad 1", b"bad 2", b"new"]

    assert f"sent back: {BAD + 1}" in output_of(buried, "send", "--yes", "--sent")


@pytest.mark.all
def test_letters_that_an_earlier_version_sent_are_not_sent_again(buried, kafka):
    """It kept what it sent in the offsets of the group only."""
    group = Redrive(settings(buried), buried.dead, 10_000).group
    former = GroupMirror(settings(buried), group)
    former.store_positions([TopicPartition(buried.dead, 0, 2)])

    assert "sent back: 1" in output_of(buried, "send", "--yes")
    drop_group(kafka, buried)
    assert "sent back: 0" in output_of(buried, "send", "--yes")
    assert read(kafka, buried.orders)[-1].value == b"bad 2"


@pytest.mark.all
def test_letters_of_a_topic_that_was_made_anew_are_sent(buried, kafka, produce):
    assert f"sent back: {BAD}" in output_of(buried, "send", "--yes")
    kafka.delete_topic(buried.dead)
    kafka.create_topic(buried.dead, 1)
    produce(buried.dead, [letter(buried.orders, 0, value="new")])

    assert "sent back: 1" in output_of(buried, "send", "--yes")


@contextmanager
def another_sinks_transaction(job):
    """Its record in the topic of markers holds readers of committed records up."""
    given = client_settings(settings(job), purpose="producer")
    reading = client_settings(settings(job), purpose="consumer")
    name = f"blocking-{job.dead}"
    says = output_of(job, "send", "--yes", "--to", "nothing", code=1)  # makes the topic
    assert "sent back: 0" in says
    with Transaction(given, name, "a test", reading, name) as blocking:
        blocking.client.begin_transaction()
        mark = OutRecord(MARKER_TOPIC, b'["other","x"]', b"1", None, partition=0)
        blocking.send([mark], is_small=True)
        yield
        blocking.client.abort_transaction(10)


def test_another_sinks_open_transaction_does_not_hide_what_was_sent(buried, kafka):
    """The group tells what markers do not."""
    with another_sinks_transaction(buried):
        assert f"sent back: {BAD}" in output_of(buried, "send", "--yes")
        assert "sent back: 0" in output_of(buried, "send", "--yes")
    assert len(read(kafka, buried.orders)) == GOOD + 2 * BAD


def test_an_open_transaction_that_hides_what_was_sent_is_told(buried, kafka, caplog):
    with another_sinks_transaction(buried):
        assert f"sent back: {BAD}" in output_of(buried, "send", "--yes")
        drop_group(kafka, buried)

        refused = result_of(buried, "send", "--yes")
        shown = result_of(buried, "show")

    assert refused.exit_code == 1
    assert "hidden by a transaction" in refused.output
    assert len(shown.stdout.splitlines()) == BAD
    assert "some may have been sent back" in caplog.text
    assert "sent back: 0" in output_of(buried, "send", "--yes")
    assert len(read(kafka, buried.orders)) == GOOD + 2 * BAD


def test_the_group_tells_what_was_sent_where_the_markers_are_gone(
    buried, kafka, produce
):
    assert f"sent back: {BAD}" in output_of(buried, "send", "--yes")
    last = newest_marker(buried, kafka)
    produce(MARKER_TOPIC, [Record(None, last.key, partition=0)])

    assert "sent back: 0" in output_of(buried, "send", "--yes")
    produce(buried.dead, [letter(buried.orders, 0, value="new")])
    assert "sent back: 1" in output_of(buried, "send", "--yes")
    drop_group(kafka, buried)
    assert "sent back: 0" in output_of(buried, "send", "--yes")


def test_a_damaged_record_of_what_was_sent_is_named_with_a_way_out(
    buried, kafka, produce
):
    """The offsets of the group tell what was sent then."""
    assert f"sent back: {BAD}" in output_of(buried, "send", "--yes")
    last = newest_marker(buried, kafka)
    produce(MARKER_TOPIC, [Record("[1]", last.key, partition=0)])

    says = output_of(buried, "send", "--yes", code=1)
    assert "KAFKA_TX_STATE_CORRUPTED" in says
    assert last.key.decode() in says
    produce(MARKER_TOPIC, [Record(None, last.key, partition=0)])

    assert "sent back: 0" in output_of(buried, "send", "--yes")
    assert len(read(kafka, buried.orders)) == GOOD + 2 * BAD


def newest_marker(job, kafka):
    """That of its dead letters: all tests write into this topic."""
    found = committed_records(kafka.bootstrap_servers, MARKER_TOPIC)
    return [each for each in found if job.dead.encode() in (each.key or b"")][-1]


def drop_group(kafka, job):
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    group = Redrive(settings(job), job.dead, 10_000).group
    for answer in client.delete_consumer_groups([group]).values():
        answer.result(60)


def test_what_records_hold_does_not_reach_the_terminal(buried, produce):
    evil = "\x1b[2J\x07all is well\nFORGED\x9b\u202e"
    produce(buried.dead, [letter(buried.orders, 0, key=evil, error=evil)])

    for words in (["show"], ["show", "--json"]):
        shown = output_of(buried, *words)
        assert "all is well" in shown
        assert all(c == "\n" or c.isprintable() for c in shown)
        assert not any(line.startswith("FORGED") for line in shown.splitlines())


def settings(job):
    return {"bootstrap.servers": job.kafka.bootstrap_servers}


# --- times that Kafka's client cannot write -------------------------------------------

EPOCH, YEAR_12000 = 0, 316_516_636_800_000
FOREVER = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
DAY_MS = 86_400_000


@pytest.fixture
def odd_times(spark, kafka, topic):
    """A topic with records of odd times, of which Java's client writes each."""
    name, java = topic(1, "odd", config=FOREVER), spark._jvm.java
    settings = java.util.Properties()
    serializer = "org.apache.kafka.common.serialization.StringSerializer"
    for key, value in {
        "bootstrap.servers": kafka.bootstrap_servers,
        "key.serializer": serializer,
        "value.serializer": serializer,
    }.items():
        settings.put(key, value)
    clients = spark._jvm.org.apache.kafka.clients.producer
    producer = clients.KafkaProducer(settings)
    for time_ms in (EPOCH, 1, YEAR_12000):
        at = java.lang.Long.valueOf(time_ms)
        record = clients.ProducerRecord(name, None, at, "k", f"bad {time_ms}")
        producer.send(record).get()
    producer.close()
    return name


def by_topology(job, odd_times):
    config = SourceConfig(
        subscription=Topics((odd_times,)),
        kafka=settings(job),
        start=Earliest(),
        include_headers=True,
    )
    answers: SimpleQueue[Any] = SimpleQueue()
    letters = DeadLetters(job.dead, config)
    records = OffsetRange(Partition(odd_times, 0), 0, 3)
    letters.write(DeadLetter(records, 1, "odd"), lambda *answer: answers.put(answer))
    written = 0
    while written < 3:  # a batch of Kafka's is a part
        _, part = answers.get(timeout=60)
        written += part.written
    assert letters.close(30)


def by_query(job, odd_times):
    job.run(subscribe=odd_times)


@pytest.mark.all
@pytest.mark.parametrize("bury", [by_topology, by_query])
def test_a_time_that_cannot_be_written_stands_in_a_header(
    spark, kafka, orders, odd_times, topic, tmp_path, bury
):
    job = Job(spark, kafka, orders, topic(1, "dead", config=FOREVER), tmp_path)
    bury(job, odd_times)

    letters = times_of(kafka, job.dead)
    assert letters["bad 0"] == ("now", "0")
    assert letters["bad 1"] == (1, None)
    assert letters[f"bad {YEAR_12000}"] == ("now", str(YEAR_12000))
    shown = json.loads(output_of(job, "show", "--json"))
    assert [each["timestamp_ms"] for each in shown] == [EPOCH, 1, YEAR_12000]

    said = output_of(job, "send", "--yes")
    assert "sent back: 3, 2 of them with the present time" in said

    assert times_of(kafka, odd_times, since=3) == {
        "bad 0": ("now", "0"),
        "bad 1": (1, None),
        f"bad {YEAR_12000}": ("now", str(YEAR_12000)),
    }


def times_of(kafka, name, since=0):
    """The time of each value, and that of the header."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "times",
            "enable.partition.eof": True,
        }
    )
    found = {}
    try:
        consumer.assign([TopicPartition(name, 0, since)])
        while not (message := consumer.poll(30)).error():
            at = message.timestamp()[1]
            is_now = abs(at - time.time() * 1000) < DAY_MS
            header = dict(message.headers() or ()).get("kafka_tx.timestamp_ms")
            in_header = None if header is None else header.decode()
            found[message.value().decode()] = "now" if is_now else at, in_header
    finally:
        consumer.close()
    return found
