"""Topics, checkpoints and stores that are not what they were: each record counts once.

Every batch is counted into a map and appended to a table. All values differ, so that a
record that was lost is missing there, and one that was doubled counts twice.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import product

import pytest
from pyspark.errors import StreamingQueryException
from sqlalchemy import create_engine, inspect, text
from typer.testing import CliRunner

import kafka_tx
from integration.bounded import DeadError, with_a_planner
from integration.cluster.waiting import PATIENT_S
from integration.reading import reader
from integration.sizes import in_all
from kafka_tx.cli.main import app
from kafka_tx.sinks import admission
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap

MODES = ["transactional", "opaque"]


class Job:
    """A query, its checkpoints and its store, and two sinks that count once."""

    def __init__(self, spark, kafka, work, mode):
        self.checkpoint = work / "checkpoint"
        self.store = work / "store.db"
        self.topics: list[str] = []
        self._spark, self._servers, self._mode = spark, kafka.bootstrap_servers, mode
        self._work = work
        self._sinks = f"sqlite:///{work}/sinks.db"
        self._map = OpaqueMap(self._sinks, "counts")
        self._dies = ""
        self.also = lambda df, attempt: None
        self.before_reading = lambda: None

    def run(self, *, dies="", **options):
        """Read all that is there; ``dies`` before or after the sinks are written."""
        self._dies = dies
        with_a_planner(lambda: self._run_once(**options))

    def _run_once(self, **options):
        given = {
            "subscribe": ",".join(self.topics),
            "tx__id": "anew",
            "tx__mode": self._mode,
            "tx__store": f"sqlite:///{self.store}",
        }
        query = (
            reader(self._spark, self._servers, **{**given, **options})
            .load()
            .writeStream.foreachBatch(kafka_tx.for_each_transaction(self._write))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(PATIENT_S), "the query did not end"
        finally:
            query.stop()

    def start_again_after_deaths(self, **options):
        for dies in ("before", "after"):
            with pytest.raises(StreamingQueryException, match="DeadError"):
                self.run(dies=dies, **options)
        self.run(**options)

    def refused(self):
        """The text of the error that stops it."""
        with pytest.raises(StreamingQueryException) as caught:
            self.run()
        assert "KAFKA_TX_CHECKPOINT_DISAGREES" in str(caught.value)
        return str(caught.value)

    @property
    def is_transactional(self):
        return self._mode == "transactional"

    def counted(self):
        """How often each value is in the map; the same as in the table."""
        counts = {row["key"]: row["value"] for row in self._map.to_arrow().to_pylist()}
        engine = create_engine(self._sinks)
        with closing(engine.raw_connection()):
            known = inspect(engine).has_table("rows")
        with engine.connect() as db:
            if known:
                rows = db.execute(text("SELECT key FROM rows")).scalars()
                assert Counter(rows) == counts
        engine.dispose()
        return counts

    def counts_by(self, kind):
        """Keep the counts in another kind of map, before the first run."""
        self._map.close()
        self._map = kind(self._sinks, "counts")

    def use_new_checkpoint(self):
        self.checkpoint = self._work / "new-checkpoint"

    def close(self):
        self._map.close()

    def _write(self, df, attempt):
        self._reach("before")
        self.before_reading()
        rows = df.selectExpr("cast(value AS string) AS key")
        kafka_tx.update_map(rows, attempt, self._map, reducer="count")
        is_opaque = self._mode == "opaque"
        kafka_tx.append_once(rows, attempt, self._sinks, "rows", opaque=is_opaque)
        self.also(df, attempt)
        self._reach("after")

    def _reach(self, point):
        if self._dies == point:
            raise DeadError


@pytest.fixture
def job(spark, kafka, tmp_path, request):
    made = Job(spark, kafka, tmp_path, getattr(request, "param", "opaque"))
    yield made
    made.close()


def cases(names, every, in_each_run):
    """All of them in ``make test-all``; in each run the few that differ in state."""
    return pytest.mark.parametrize(
        names,
        [
            pytest.param(*case, marks=() if case in in_each_run else pytest.mark.all)
            for case in every
        ],
        indirect=["job"],
    )


def once(*series):
    """All values of some series, each counted once: ``("a", 3)`` is a0, a1, a2."""
    return {value: 1 for name, count in series for value in texts(name, count)}


def texts(name, count):
    return [f"{name}{n}" for n in range(count)]


def lose_newest(log):
    """What a file system may lose of Spark's log when a machine dies."""
    newest = max(int(f.name) for f in log.iterdir() if f.name.isdecimal())
    (log / str(newest)).unlink()
    (log / f".{newest}.crc").unlink()


def make_anew(kafka, topic):
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 1)


def copy_database(source, target):
    """As a backup does it, and also as one is put back, under open connections."""
    with (
        closing(sqlite3.connect(source)) as old,
        closing(sqlite3.connect(target)) as to,
    ):
        old.backup(to)


@pytest.mark.all
@pytest.mark.parametrize("job", MODES, indirect=True)
def test_the_first_batch_comes_again_after_its_commit_entry_is_lost(
    spark, kafka, job, topic, produce
):
    name, target = topic(1), topic(2)
    job.topics = [name]
    sink = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": target,
        "tx.id": f"{target}-sink",
        "tx.markerTopic": f"{target}-markers",
    }
    job.also = lambda df, attempt: kafka_tx.write_transaction(
        df.selectExpr("value AS key", "value"),
        attempt,
        sink,
        parts=2 if job.is_transactional else 1,
        opaque=not job.is_transactional,
    )
    produce(name, texts("a", 10))
    job.run()

    lose_newest(job.checkpoint / "commits")
    job.run()
    assert job.counted() == once(("a", 10))
    produce(name, texts("b", 3))
    job.run()

    everything = once(("a", 10), ("b", 3))
    assert job.counted() == everything
    options = {"subscribe": target, "kafka__isolation__level": "read_committed"}
    written = reader(spark, kafka.bootstrap_servers, streaming=False, **options).load()
    found = Counter(bytes(row.value).decode() for row in written.collect())
    assert found == everything


@cases(
    "job, count, dies",
    list(product(MODES, [3, 5, 8], [False, True])),
    [("opaque", 5, True)],
)
def test_a_topic_made_anew_is_read_once_from_its_start(
    kafka, job, topic, produce, count, dies
):
    name = topic(1)
    job.topics = [name]
    produce(name, texts("a", 5))
    job.run()
    make_anew(kafka, name)
    produce(name, texts("b", count))

    run = job.start_again_after_deaths if dies else job.run
    run(failOnDataLoss="false")

    assert job.counted() == once(("a", 5), ("b", count))
    produce(name, texts("c", 2))
    job.run()
    assert job.counted() == once(("a", 5), ("b", count), ("c", 2))


@cases(
    "job, count",
    list(product(MODES, [3, 12])),
    [("transactional", 12), ("opaque", 12)],
)
def test_a_topic_made_anew_between_planning_and_reading_is_read_once(
    kafka, job, topic, produce, count
):
    """Losses are allowed. What was planned is gone, and is not made up for."""
    name = topic(1)
    job.topics = [name]
    produce(name, texts("a", 10))

    def make_anew_once():
        job.before_reading = lambda: None
        make_anew(kafka, name)
        produce(name, texts("b", count))

    job.before_reading = make_anew_once
    if job.is_transactional:
        with pytest.raises(StreamingQueryException, match="REPLAY_IMPOSSIBLE"):
            job.run(failOnDataLoss="false")
        assert job.counted() == {}
        with pytest.raises(StreamingQueryException, match="has not, go on") as caught:
            job.run(failOnDataLoss="false")
        set_offsets(job, str(caught.value).split("--offsets '")[2].split("'")[0])
        job.use_new_checkpoint()
    job.run(failOnDataLoss="false")

    assert job.counted() == once(("b", count))


@cases("job", [("opaque",), ("transactional",)], [("transactional",)])
def test_a_topic_out_of_sight_for_a_run_goes_on_where_it_was(job, topic, produce):
    hidden, other = topic(1), topic(1)
    job.topics = [hidden, other]
    produce(hidden, texts("a", 5))
    produce(other, texts("b", 5))
    job.run()

    job.topics = [other]
    produce(hidden, texts("c", 2))
    produce(other, texts("d", 2))
    job.run(failOnDataLoss="false")
    assert job.counted() == once(("a", 5), ("b", 5), ("d", 2))
    job.topics = [hidden, other]
    job.run()

    assert job.counted() == once(("a", 5), ("b", 5), ("c", 2), ("d", 2))


NEW, STORE = "start with a new checkpointLocation", "set tx.onDisagreement=store"


@cases(
    "job, advice",
    list(product(MODES, [NEW, STORE])),
    [("transactional", STORE)],
)
def test_a_checkpoint_that_was_put_back_is_refused_and_the_advice_is_safe(
    job, topic, produce, tmp_path, advice
):
    name = topic(1)
    job.topics = [name]
    produce(name, texts("a", 4))
    job.run()
    shutil.copytree(job.checkpoint, tmp_path / "copy")
    for series in "bc":
        produce(name, texts(series, 3))
        job.run()
    shutil.rmtree(job.checkpoint)
    shutil.copytree(tmp_path / "copy", job.checkpoint)
    produce(name, texts("d", 2))

    assert advice in job.refused()
    if advice == NEW:
        job.use_new_checkpoint()
        job.start_again_after_deaths()
    else:
        job.run(tx__onDisagreement="store")  # "for one run"
    assert job.counted() == once(("a", 4), ("b", 3), ("c", 3), ("d", 2))
    produce(name, texts("e", 2))
    job.run()

    assert job.counted() == once(("a", 4), ("b", 3), ("c", 3), ("d", 2), ("e", 2))


RIGHT, CHECKPOINT = "tx.store to the ", "tx.onDisagreement=checkpoint"


@cases(
    "job, advice, is_empty",
    list(product(MODES, [RIGHT, CHECKPOINT], [False, True])),
    [("opaque", CHECKPOINT, False)],
)
def test_a_store_that_was_put_back_is_refused_and_the_advice_is_safe(
    job, topic, produce, tmp_path, advice, is_empty
):
    name, copy, right = topic(1), tmp_path / "copy.db", tmp_path / "right.db"
    job.topics = [name]
    produce(name, texts("a", 4))
    if is_empty:
        sqlite3.connect(copy).close()
    else:
        job.run()
        copy_database(job.store, copy)
    for series in "bcd":
        produce(name, texts(series, 3))
        job.run()
    copy_database(job.store, right)
    copy_database(copy, job.store)
    produce(name, texts("e", 2))

    refusal = job.refused()
    assert advice in refusal
    assert "Do not start with a new checkpointLocation" in refusal
    if advice == RIGHT:
        job.store = right
        job.start_again_after_deaths()
    else:
        job.run(tx__onDisagreement="checkpoint")  # "for one run"
    before = once(("a", 4), ("b", 3), ("c", 3), ("d", 3), ("e", 2))
    assert job.counted() == before
    produce(name, texts("f", 2))
    job.run()

    assert job.counted() == before | once(("f", 2))


@cases("job", [("transactional",)], [("transactional",)])
def test_a_store_that_is_one_txid_behind_its_sinks_is_found_out_by_them(
    job, topic, produce, tmp_path
):
    """A new checkpoint was used, as the guarantees say not to: nobody else can tell."""
    name, copy = topic(1), tmp_path / "copy.db"
    job.counts_by(TransactionalMap)
    job.topics = [name]
    produce(name, texts("a", 4))
    job.run()
    copy_database(job.store, copy)
    produce(name, texts("b", 3))
    job.run()
    copy_database(copy, job.store)
    produce(name, texts("c", 2))
    job.use_new_checkpoint()
    admission._written.clear()  # another program, which remembers nothing

    refusal = "holds txid 2 already, from a batch that ended elsewhere"
    with pytest.raises(StreamingQueryException, match=refusal):
        job.run()
    assert job.counted() == once(("a", 4), ("b", 3))
    set_offsets(job, f'{{"{name}": {{"0": 7}}}}')  # "look where ... that ends"
    job.checkpoint = tmp_path / "another-checkpoint"
    job.start_again_after_deaths()

    assert job.counted() == once(("a", 4), ("b", 3), ("c", 2))


def set_offsets(job, offsets):
    """As the text says: ``kafka-tx offsets set``."""
    command = ["offsets", "set", "--store", f"sqlite:///{job.store}", "--id", "anew"]
    result = CliRunner().invoke(
        app, [*command, "--offsets", offsets, "--unchecked", "--yes"]
    )
    assert result.exit_code == 0, result.output


@pytest.mark.all
@pytest.mark.parametrize("job", [MODES[0], *in_all(MODES[1])], indirect=True)
def test_a_renamed_id_keeps_its_checkpoint_and_its_sinks(job, topic, produce):
    """Also where the batch of a driver that died is in the sinks already."""
    job.topics.append(topic(1))
    produce(job.topics[0], texts("a", 3))
    job.run()
    produce(job.topics[0], texts("b", 2))
    with pytest.raises(StreamingQueryException, match="DeadError"):
        job.run(dies="after")
    tool("rename", "--store", f"sqlite:///{job.store}", "--id", "anew", "--to", "new")

    job.run(tx__id="new")
    produce(job.topics[0], texts("c", 2))
    job.run(tx__id="new")

    assert job.counted() == once(("a", 3), ("b", 2), ("c", 2))


@pytest.mark.all
def test_a_copied_store_keeps_checkpoint_and_sinks(job, topic, produce, postgresql):
    """From SQLite to PostgreSQL, where the job goes on, and back."""
    job.topics.append(topic(1))
    produce(job.topics[0], texts("a", 3))
    with pytest.raises(StreamingQueryException, match="DeadError"):
        job.run(dies="after")
    tool("store", "copy", "--from", f"sqlite:///{job.store}", "--to", postgresql)

    job.run(tx__store=postgresql)
    produce(job.topics[0], texts("b", 2))
    job.run(tx__store=postgresql)
    job.store = job.store.with_name("back.db")
    tool(
        *("store", "copy", "--from", postgresql, "--id", "anew"),
        *("--to", f"sqlite:///{job.store}"),
    )
    produce(job.topics[0], texts("c", 2))
    job.run()

    assert job.counted() == once(("a", 3), ("b", 2), ("c", 2))


@pytest.mark.all
def test_behind_a_skipped_batch_everything_counts_once(job, topic, produce):
    job.topics.append(topic(1))
    produce(job.topics[0], texts("a", 3))
    job.run()
    produce(job.topics[0], texts("poison", 2))
    with pytest.raises(StreamingQueryException, match="DeadError"):
        job.run(dies="before")
    tool("skip", "--store", f"sqlite:///{job.store}", "--id", "anew", "--txid", "2")

    job.use_new_checkpoint()
    produce(job.topics[0], texts("b", 2))
    job.start_again_after_deaths()

    assert job.counted() == once(("a", 3), ("b", 2))


def tool(*command):
    result = CliRunner().invoke(app, [*command, "--yes"])
    assert result.exit_code == 0, result.output
