"""Which transaction a batch of Spark is, on real Spark: also without new records."""

import time
from contextlib import closing
from threading import Event

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from sqlalchemy import create_engine, text

import kafka_tx
from integration.bounded import DeadError, read_out
from integration.cluster.records import Record
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.consuming import committed_records
from kafka_tx.errors import ConfigError
from kafka_tx.spark.versions.streams import TAKES_LIMITS
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.layout.txid_layout import ALIVE
from kafka_tx.transactions.ledger.ledger import Ledger

ADVICE_FOR_SECOND_WRITES = (
    "give the second one another tx.id of the sink",
    "append the second to a table of its own",
    "give the second update a map of its own",
)
BEGIN = int(time.time()) // 10 * 10


def reading(spark, kafka, topic, store, tx_id="numbering", **more):
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "tx.id": tx_id,
        "tx.store": store,
    }
    return spark.readStream.format("kafka_tx").options(**(options | more)).load()


def without_tx_id(spark, kafka, topic):
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    return spark.readStream.format("kafka_tx").options(**options).load()


def committed(store, tx_id):
    """The committed txid, and the one that Spark's offsets carry."""
    found = loaded(store, tx_id).committed
    assert found is not None
    return found.txid, found.carried


def loaded(store, tx_id):
    opened = Ledger(SqlStore(store, tx_id))
    try:
        return opened.load()
    finally:
        opened.close()


def run(df, function, checkpoint, tx_id=None):
    """Everything that is there, in one run; it raises what the query raises."""
    read_out(
        df.writeStream.foreachBatch(
            kafka_tx.for_each_transaction(function, tx_id)
        ).option("checkpointLocation", str(checkpoint))
    )


def at(second):
    """A record whose event time is so many seconds after the beginning."""
    return Record("x", key="a", timestamp_ms=(BEGIN + second) * 1000)


def windows(df):
    """Counts by ten seconds, each once, when the watermark has passed it."""
    return (
        df.withWatermark("timestamp", "0 seconds")
        .groupBy(F.window("timestamp", "10 seconds"))
        .agg(F.count("*").alias("value"))
        .select(F.unix_seconds("window.start").cast("string").alias("key"), "value")
    )


def key(second):
    return str(BEGIN + second)


class Sinks:
    """Everything that can be written once, written by every batch."""

    def __init__(self, work):
        self.url = f"sqlite:///{work}/sinks.db"
        self.maps = [
            TransactionalMap(self.url, "transactional"),
            OpaqueMap(self.url, "opaque"),
        ]
        self.mine = {}
        self.txids = []
        self.dies_at = None

    def __call__(self, df, attempt):
        self.txids.append(attempt.txid)
        self._reach("before", attempt)
        rows = df.toArrow()
        for one in self.maps:
            one.update(attempt, rows)
        kafka_tx.append_once(df, attempt, self.url, "rows")
        txid, epoch = self.mine.get("stored", (0, 0))
        assert attempt.epoch >= epoch
        if txid < attempt.txid:
            for row in rows.to_pylist():
                self.mine[row["key"]] = self.mine.get(row["key"], 0) + row["value"]
            self.mine["stored"] = (attempt.txid, attempt.epoch)
        self._reach("after", attempt)

    def content(self):
        found = [self._pairs(one.to_arrow().to_pylist()) for one in self.maps]
        with create_engine(self.url).connect() as db:
            rows = db.execute(text("SELECT * FROM rows")).mappings()
            found.append(self._pairs(rows))
        found.append({k: v for k, v in self.mine.items() if k != "stored"})
        return found

    def close(self):
        for one in self.maps:
            one.close()

    def _pairs(self, rows):
        return {row["key"]: row["value"] for row in rows}

    def _reach(self, point, attempt):
        if self.dies_at == (point, attempt.txid):
            raise DeadError


@pytest.fixture
def sinks(tmp_path):
    made = Sinks(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


def lose_newest(log):
    """What a file system may lose of Spark's log when a machine dies."""
    names = [int(f.name) for f in log.iterdir() if f.name.isdecimal()]
    (log / str(max(names))).unlink()
    (log / f".{max(names)}.crc").unlink()


def test_windows_come_with_a_transaction_of_their_own(
    spark, kafka, topic, produce, store, sinks, tmp_path
):
    """With Spark's defaults: the batch that brings them has no new records.

    It is replayed from before and after the sinks, and with its commit-log entry lost.
    """
    name, checkpoint = topic(1), tmp_path / "checkpoint"
    df = windows(reading(spark, kafka, name, store))
    produce(name, [at(1), at(2), at(25)])

    for point in ("before", "after"):
        sinks.dies_at = point, 2
        with pytest.raises(StreamingQueryException, match="DeadError"):
            run(df, sinks, checkpoint)
    sinks.dies_at = None
    run(df, sinks, checkpoint)
    assert sinks.content() == [{key(0): 2}] * 4
    lose_newest(checkpoint / "commits")
    run(df, sinks, checkpoint)
    assert sinks.content() == [{key(0): 2}] * 4
    assert sinks.txids == [1, 2, 2, 2, 2]
    assert "StateStoreSave" in loaded(store, "numbering").query.states

    produce(name, [at(26), at(41)])
    run(df, sinks, checkpoint)

    assert sinks.content() == [{key(0): 2, key(20): 2}] * 4
    assert sinks.txids[5:] == [3, 4]


@pytest.mark.all
def test_a_new_checkpoint_goes_on_above_a_batch_without_records(
    spark, kafka, topic, produce, store, sinks, tmp_path
):
    name = topic(1)
    df = windows(reading(spark, kafka, name, store))
    produce(name, [at(1), at(2), at(25)])
    sinks.dies_at = "after", 2
    with pytest.raises(StreamingQueryException, match="DeadError"):
        run(df, sinks, tmp_path / "one")
    sinks.dies_at = None

    produce(name, [at(31), at(55)])
    run(df, sinks, tmp_path / "two")

    assert sinks.txids == [1, 2, 3, 4]
    assert sinks.content() == [{key(0): 2, key(30): 1}] * 4


@pytest.mark.all
def test_each_of_several_sources_may_have_the_only_records(
    spark, kafka, topic, produce, tmp_path
):
    """Sources with and without tx.id, ours and others; the first batch too."""
    one, two, plain, files = topic(1), topic(1), topic(1), tmp_path / "files"
    files.mkdir()
    stores = [f"sqlite:///{tmp_path}/{n}.db" for n in range(2)]
    df = (
        reading(spark, kafka, one, stores[0], "one")
        .select("value")
        .union(reading(spark, kafka, two, stores[1], "two").select("value"))
        .union(without_tx_id(spark, kafka, plain).select("value"))
        .union(spark.readStream.text(str(files)).selectExpr("cast(value AS binary)"))
    )
    state = OpaqueMap(f"sqlite:///{tmp_path}/map.db", "counts")
    seen = []

    def count(df, attempt):
        seen.append((attempt.txid, attempt.epoch))
        rows = df.selectExpr("cast(value AS string) AS key")
        kafka_tx.update_map(rows, attempt, state, reducer="count")

    steps = [
        lambda: produce(two, ["two"]),
        lambda: produce(one, ["one"]),
        lambda: produce(plain, ["plain"]),
        lambda: (files / "a.txt").write_text("file"),
        lambda: (produce(one, ["one"]), produce(two, ["two"])),
    ]
    for step in steps:
        step()
        run(df, count, tmp_path / "checkpoint", "one")
    lose_newest(tmp_path / "checkpoint" / "commits")
    run(df, count, tmp_path / "checkpoint", "one")

    assert state.get(["one", "two", "plain", "file"]) == {
        "one": 2,
        "two": 2,
        "plain": 1,
        "file": 1,
    }
    assert [txid for txid, _ in seen] == [1, 2, 3, 4, 5, 5]
    epochs = [epoch for _, epoch in seen]
    assert epochs == sorted(set(epochs))
    assert [
        committed(store, tx_id)
        for store, tx_id in zip(stores, ["one", "two"], strict=True)
    ] == [(5, 5), (5, 5)]
    state.close()


def test_the_source_is_named_where_there_are_several(
    spark, kafka, topic, produce, store, tmp_path
):
    name = topic(1)
    produce(name, ["x"])
    df = without_tx_id(spark, kafka, name)

    with pytest.raises(StreamingQueryException, match="which transaction.*no tx.id"):
        run(df, lambda df, attempt: None, tmp_path / "checkpoint")


class Halves:
    """Writes each half of a batch to all kinds of sinks: one, or one of its own."""

    def __init__(self, kafka, out, url, *, is_opaque):
        self._brokers = kafka.bootstrap_servers
        self._out, self._url, self._is_opaque = out, url, is_opaque
        kind = OpaqueMap if is_opaque else TransactionalMap
        self._maps = [kind(url, "counts"), kind(url, "counts2")]
        self.refusals = []

    def to_kafka(self, rows, attempt, nth):
        options = {
            "kafka.bootstrap.servers": self._brokers,
            "topic": self._out,
            "tx.id": f"{self._out}{nth}",
        }
        kafka_tx.write_transaction(rows, attempt, options, opaque=self._is_opaque)

    def to_table(self, rows, attempt, nth):
        table = f"rows{nth}"
        kafka_tx.append_once(rows, attempt, self._url, table, opaque=self._is_opaque)

    def to_map(self, rows, attempt, nth):
        kafka_tx.update_map(rows, attempt, self._maps[nth], reducer="count")

    def both_to_one(self, df, attempt):
        for write in (self.to_kafka, self.to_table, self.to_map):
            write(half_of(df, "a"), attempt, 0)
            with pytest.raises(ConfigError) as refused:
                write(half_of(df, "b"), attempt, 0)
            self.refusals.append(str(refused.value))
        raise DeadError

    def each_to_its_own(self, df, attempt):
        for write in (self.to_kafka, self.to_table, self.to_map):
            for nth, half in enumerate("ab"):
                write(half_of(df, half), attempt, nth)

    def content(self):
        written = committed_records(self._brokers, self._out)
        yield sorted(record.text for record in written)
        with create_engine(self._url).connect() as db:
            query = "SELECT value FROM rows0 UNION ALL SELECT value FROM rows1"
            yield sorted(db.execute(text(query)).scalars())
        yield [one.get(["a", "b"]) for one in self._maps]

    def close(self):
        for one in self._maps:
            one.close()


def half_of(df, key):
    rows = df.selectExpr("string(key) AS key", "string(value) AS value")
    return rows.where(f"key = '{key}'")


@pytest.mark.all
@pytest.mark.parametrize("is_opaque", [False, True])
def test_a_second_write_of_a_batch_is_refused_and_every_record_comes_once_as_it_says(
    spark, kafka, topic, produce, store, tmp_path, is_opaque
):
    """The first write has committed: the second gets a sink of its own."""
    name, url = topic(1), f"sqlite:///{tmp_path}/sinks.db"
    values = [f"v{n}" for n in range(6)]
    produce(name, [Record(v, key="ab"[n % 2]) for n, v in enumerate(values)])
    options = {"tx.mode": "opaque"} if is_opaque else {}
    df = reading(spark, kafka, name, store, **options)
    halves = Halves(kafka, topic(1), url, is_opaque=is_opaque)

    with closing(halves):
        with pytest.raises(StreamingQueryException, match="DeadError"):
            run(df, halves.both_to_one, tmp_path / "checkpoint")
        for refusal, advice in zip(
            halves.refusals, ADVICE_FOR_SECOND_WRITES, strict=True
        ):
            assert "The first write of txid 1 is committed" in refusal
            assert advice in refusal
        run(df, halves.each_to_its_own, tmp_path / "checkpoint")

        assert list(halves.content()) == [values, values, [{"a": 3}, {"b": 3}]]


@pytest.mark.all
def test_a_source_that_is_joined_with_itself_is_refused_by_name(
    spark, kafka, topic, produce, store, tmp_path
):
    """Two loads have two sources, each with an id; a union with itself has one."""
    name = topic(1)
    seen: list[str] = []
    produce(name, [Record("x", key="a")])
    df = reading(spark, kafka, name, store).selectExpr("key", "string(value) AS value")
    other = reading(spark, kafka, name, store, "other").select("key", "offset")

    def keep(df, attempt):
        seen.extend(row.value for row in df.collect())

    joined = df.alias("one").join(df.alias("two"), "key")
    with pytest.raises(
        StreamingQueryException, match="opens (it|tx.id 'numbering') twice"
    ):
        run(joined.select("one.value"), keep, tmp_path / "joined")
    assert not seen
    fences = {"tx.ifOwned": "fence"}  # otherwise it waits, and finds the first source
    another = reading(spark, kafka, topic(1), store, **fences).select("key", "offset")
    with pytest.raises(
        StreamingQueryException, match="OTHER_TOPICS.*opens the id twice"
    ):
        run(df.join(another, "key"), keep, tmp_path / "another")
    assert not seen
    run(df.join(other, "key"), keep, tmp_path / "two", "numbering")
    assert seen == ["x"]
    run(df.union(df), keep, tmp_path / "one")
    assert seen == ["x"]
    produce(name, [Record("y", key="b")])
    run(df.union(df), keep, tmp_path / "one")
    assert seen == ["x", "y", "y"]


def test_a_scheduled_run_that_overlaps_another_ends_by_name_and_fences_nobody(
    spark, kafka, topic, produce, tmp_path
):
    """Also where Spark does not tell the source that the run is a bounded one."""
    name, store = topic(1), f"sqlite:///{tmp_path}/store.db"
    produce(name, ["a"])
    asked = {} if TAKES_LIMITS else {"tx.ifOwned": "refuse"}
    began, goes_on, seen = Event(), Event(), []

    def slow(df, attempt):
        began.set()
        assert goes_on.wait(180)
        seen.append(attempt.txid)

    first = (
        reading(spark, kafka, name, store, **asked)
        .writeStream.foreachBatch(kafka_tx.for_each_transaction(slow))
        .option("checkpointLocation", str(tmp_path / "one"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert began.wait(180)
        second = reading(spark, kafka, name, store, **asked)
        with pytest.raises(StreamingQueryException, match="KAFKA_TX_OWNER_LIVES"):
            run(second, slow, tmp_path / "two")
        goes_on.set()
        assert first.awaitTermination(PATIENT_S)
    finally:
        goes_on.set()
        first.stop()

    opened = SqlStore(store, "numbering")
    with closing(opened):
        wait_until("it has let go", lambda: opened.get(ALIVE) is None)
    produce(name, ["b"])
    run(reading(spark, kafka, name, store, **asked), slow, tmp_path / "one")
    assert seen == [1, 2]
