"""Attaching to a session that has no JVM beside it."""

import json
import socket
import tempfile
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

import kafka_tx
from kafka_tx import assembly
from kafka_tx.errors import ConfigError
from kafka_tx.metrics.events import OffsetsStored
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.metrics.status import status
from kafka_tx.model import BatchMetadata, LogPosition, OffsetRange, TopicPartition
from kafka_tx.running.sink_notes import VARIABLE
from kafka_tx.source.read_reports import ReadReports
from kafka_tx.spark.queries.listener import CommitListener
from kafka_tx.spark.versions import jvm
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.layout.batch_records import Committed
from kafka_tx.transactions.layout.stops import last_stop
from kafka_tx.transactions.ledger.batch_ids import SinkNote
from kafka_tx.transactions.ledger.ledger import Ledger
from tests.fake_cluster import FakeCluster


class ConnectSession:
    """As Spark Connect's: no context."""

    version = "4.2.0"

    @property
    def sparkContext(self):  # noqa: N802 - Spark's
        raise AttributeError("[JVM_ATTRIBUTE_NOT_SUPPORTED] sparkContext")


def test_spark_connect_is_refused_and_no_port_is_left_bound():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    with pytest.raises(ConfigError, match="attach needs a classic session"):
        kafka_tx.attach(ConnectSession(), metrics_port=port)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))


class BrokenSession:
    """One whose streams cannot be listened to."""

    version = "4.2.0"
    sparkContext = None  # noqa: N815 - Spark's


def test_what_fails_half_way_leaves_no_port_bound():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    with pytest.raises(AttributeError):
        kafka_tx.attach(BrokenSession(), metrics_port=port)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))


class UnregisteredFormat:
    """A session's way to a format that nobody registered yet."""

    def __getattr__(self, name):
        return self

    def __call__(self, *given):
        return self

    def lookupDataSource(self, name):  # noqa: N802 - Spark's
        raise AnalysisException(
            f"[DATA_SOURCE_NOT_EXIST] Data source '{name}' not found"
        )


def test_a_format_that_is_not_registered_yet_is_no_error():
    jvm.let_queries_start_together(UnregisteredFormat())


class Jvm:
    """A session's JVM that works in a folder of its own."""

    def __init__(self, folder):
        self.java = self.lang = self.System = self
        self._jvm = self
        self._folder = folder

    def getProperty(self, name):  # noqa: N802 - Java's
        return {"user.dir": self._folder}[name]


def test_a_relative_store_is_that_of_the_planner_whatever_folder_comes_next(
    tmp_path, monkeypatch
):
    options = {
        "kafka.bootstrap.servers": "b:9092",
        "subscribe": "t",
        "tx.id": "job",
        "tx.Store": "sqlite:///state.db",
    }
    spark: Any = Jvm("/where/spark/is")
    listener = CommitListener(spark, MetricsRegistry(), {"job": options}, None)

    monkeypatch.chdir(tmp_path)

    transactions = listener._config("job").transactions
    listener.close()
    assert transactions is not None
    assert transactions.store == "sqlite:////where/spark/is/state.db"


def test_the_lag_of_a_query_that_moved_is_looked_up_in_its_new_cluster(monkeypatch):
    asked = []

    def view(config):
        asked.append(config.kafka["bootstrap.servers"])
        return FakeCluster()

    monkeypatch.setattr(assembly, "cluster_view", view)
    partitions = {"job": [TopicPartition("t", 0)]}
    monkeypatch.setattr(CommitListener, "watched", lambda _: partitions)
    options = {"kafka.bootstrap.servers": "old:9092", "subscribe": "t", "tx.id": "job"}
    spark: Any = Jvm("/")
    listener = CommitListener(spark, MetricsRegistry(), {"job": options}, None)

    listener._lag.poll()
    listener._use("job", options | {"kafka.bootstrap.servers": "new:9092"})
    listener._lag.poll()
    listener._lag.poll()
    listener.close()

    assert asked == ["old:9092", "new:9092"]


def test_the_lag_does_not_wait_as_long_for_brokers_as_a_plan(monkeypatch):
    """One thread polls for all ids."""
    options = {
        "kafka.bootstrap.servers": "b:9092",
        "subscribe": "t",
        "tx.id": "job",
        "fetchOffset.numRetries": "60",
        "fetchOffset.retryIntervalMs": "10000",
    }
    monkeypatch.setattr(assembly, "cluster_view", lambda config: config)
    spark: Any = Jvm("/")
    listener = CommitListener(spark, MetricsRegistry(), {"job": options}, None)
    config: Any = listener.open_view("job")
    listener.close()

    assert (config.num_retries, config.retry_interval_ms) == (3, 1_000)


def test_a_query_started_again_before_its_end_was_told_is_shown_and_counted(
    monkeypatch,
):
    """Spark tells of a start at once, and of an end on a thread of its own."""
    options = {
        "kafka.bootstrap.servers": "b:9092",
        "subscribe": "t",
        "tx.id": "job",
        "tx.store": "memory:",
    }
    monkeypatch.setattr(jvm, "source_options", lambda *_: {"job": options})
    spark: Any = Jvm("/")
    registry = MetricsRegistry()
    listener = CommitListener(spark, registry, {}, None)

    def run(number: int, exception: str | None = None) -> Any:
        return SimpleNamespace(id="query", runId=f"run {number}", exception=exception)

    notes = listener._notes.place
    assert notes is not None
    listener.onQueryStarted(run(1))
    listener.onQueryStarted(run(2))
    listener.onQueryTerminated(run(1))
    (restarted,) = registry.activities().values()
    is_over = bool(restarted.ended_ms)
    noted = list(notes.iterdir())
    listener.onQueryTerminated(run(2, "ValueError: no such customer"))
    left = list(notes.iterdir())
    listener.close()

    assert len(noted) == 1, "its planner would not know the sink"
    assert not left

    assert not is_over
    (failed,) = registry.activities().values()
    assert [each.reason for each in failed.errors] == ["user"]
    assert not listener._ids | listener._newest


def test_a_session_without_a_temporary_directory_is_attached(monkeypatch):
    def full() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", full)
    options = {"subscribe": "t", "tx.id": "job", "tx.store": "memory:"}
    monkeypatch.setattr(jvm, "source_options", lambda *_: {"job": options})
    given: list[tuple[str, str]] = []
    monkeypatch.setattr(jvm, "give_planners", lambda _, *one: given.append(one))
    started: Any = SimpleNamespace(id="query", runId="run")
    spark: Any = Jvm("/")
    with closing(CommitListener(spark, MetricsRegistry(), {}, None)) as listener:
        listener.onQueryStarted(started)

    assert given == [(VARIABLE, "")]


class Rivals:
    """Queries of one session and one ``tx.id``, each with a checkpoint of its own."""

    def __init__(self, monkeypatch):
        self.bounded: set[str] = set()
        self.options: dict[str, dict[str, str]] = {}
        self.now_ms = 1_000_000
        monkeypatch.setattr(jvm, "source_options", lambda _, name: self.given(name))
        monkeypatch.setattr(jvm, "is_bounded", lambda _, name: name in self.bounded)
        monkeypatch.setattr(CommitListener, "_show_stored", lambda *_: None)
        self.registry = MetricsRegistry(now_ms=lambda: self.now_ms)
        spark: Any = Jvm("/")
        self.listener = CommitListener(spark, self.registry, {}, None)
        clock: Any = SimpleNamespace(now_ms=lambda: self.now_ms)
        self.listener._clock = clock

    def given(self, name):
        options = {
            "kafka.bootstrap.servers": f"{name}:9092",
            "subscribe": "t",
            "tx.id": "job",
            "tx.store": "memory:",
        }
        self.options[name] = options
        return {"job": options}

    def begins(self, name, *, is_bounded=False):
        self.bounded |= {name} if is_bounded else set()
        self.listener.onQueryStarted(self.run(name))

    def ends(self, name, exception=None):
        self.listener.onQueryTerminated(self.run(name, exception))

    def run(self, name, exception=None) -> Any:
        return SimpleNamespace(id=name, runId=f"run of {name}", exception=exception)

    def kinds(self):
        """The kinds of runs that are shown, long after the last event."""
        self.now_ms += 120_000
        samples = self.registry.samples()["kafka_tx_run_since_timestamp_seconds"]
        return {kind for _, kind, *_ in samples}

    @property
    def state(self):
        (shown,) = status([self.registry], self.now_ms)["ids"]
        return shown["state"]


@pytest.fixture
def rivals(monkeypatch):
    made = Rivals(monkeypatch)
    yield made
    made.listener.close()


FENCED, LIVES = "[KAFKA_TX_FENCED] a newer owner", "[KAFKA_TX_OWNER_LIVES] at work"


@pytest.mark.parametrize("exception", [FENCED, "ValueError: no customer", None])
def test_the_end_of_a_query_hides_no_other_one_that_has_its_id(rivals, exception):
    rivals.begins("older")
    rivals.begins("newer")
    rivals.registry.record_stored(
        OffsetsStored(
            id="job", committed={TopicPartition("t", 0): LogPosition(5, None)}, txid=3
        )
    )

    rivals.ends("older", exception)

    assert rivals.kinds() == {"unbounded"}
    assert rivals.state == "idle"
    (activity,) = rivals.registry.activities().values()
    assert not activity.ended_ms
    assert len(activity.errors) == (exception is not None)
    stops = rivals.registry.samples()["kafka_tx_stops_total"].values()
    assert sum(count for (count,) in stops) == (exception is not None)

    rivals.ends("newer")

    assert rivals.state == "ended"
    assert rivals.kinds() == {"ended"}


@pytest.mark.parametrize("exception", [LIVES, None])
def test_a_run_that_ends_leaves_what_is_shown_to_the_query_that_was_there_before(
    rivals, exception
):
    rivals.begins("older")
    rivals.begins("newer", is_bounded=True)
    assert rivals.kinds() == {"bounded"}

    rivals.ends("newer", exception)

    assert rivals.kinds() == {"unbounded"}
    (activity,) = rivals.registry.activities().values()
    assert activity.options["kafka.bootstrap.servers"] == "older:9092"


def test_a_query_that_ends_takes_no_options_from_the_one_that_has_its_id(rivals):
    rivals.begins("older")
    rivals.begins("newer")
    rivals.listener._know("newer", "run of newer", "job")  # as its first batch does

    rivals.ends("older", FENCED)

    assert rivals.listener._options["job"] == rivals.options["newer"]


class Unproven:
    """A batch that Spark has finished, and its sink may have dropped."""

    def __init__(self, folder, monkeypatch):
        self.options = {
            "kafka.bootstrap.servers": "b:9092",
            "subscribe": "t",
            "tx.id": "job",
            "tx.store": f"sqlite:///{folder}/store.db",
        }
        self.sink = SinkNote("code")
        monkeypatch.setattr(jvm, "source_options", lambda *_: {"job": self.options})
        monkeypatch.setattr(jvm, "sink_of", lambda *_: self.sink)
        monkeypatch.setattr(jvm, "is_logged_late", lambda *_: False)
        spark: Any = Jvm(str(folder))
        self.registry = MetricsRegistry()
        self.listener = CommitListener(spark, self.registry, {}, None)
        self.ledger = Ledger(SqlStore(self.options["tx.store"], "job"))
        self.epoch = self.ledger.acquire()
        self.runs = 0

    def named(self, run):
        return SimpleNamespace(id="query", runId=f"run {run}", exception=None)

    def run(self, *, tells=True, sources=1, exception=None):
        """A run that plans one batch and finishes it; returns how Spark tells of it."""
        self.runs += 1
        run, end = self.named(self.runs), 10 * self.runs
        run.exception = exception
        ranges = (OffsetRange(TopicPartition("t", 0), end - 10, end),)
        batch = BatchMetadata(self.runs, ranges, unproven=(self.epoch,))
        self.ledger.plan(self.epoch, batch)
        logged = {"v": 3, "id": "job", "txid": self.runs, "epoch": self.epoch}
        source = SimpleNamespace(
            startOffset=json.dumps({"t": {"0": end - 10}}),
            endOffset=json.dumps({"t": {"0": end}, "_kafka_tx": logged}),
            latestOffset=None,
        )
        run.batchId, run.durationMs, run.sources = 0, {}, [source] * sources

        def tell():
            self.listener.onQueryProgress(SimpleNamespace(progress=run))
            self.listener.onQueryTerminated(run)

        self.listener.onQueryStarted(run)
        if tells:
            tell()
        return tell

    def txid(self):
        return self.ledger.load().txid

    def reasons(self):
        activities = self.registry.activities().values()
        return [each.reason for run in activities for each in run.errors]

    def close(self):
        self.listener.close()
        self.ledger.close()


@pytest.fixture
def unproven(tmp_path, monkeypatch):
    # no broker answers: its thread would be waited for
    monkeypatch.setattr("kafka_tx.running.lag_watch.LagWatch.poll", lambda self: None)
    made = Unproven(tmp_path, monkeypatch)
    yield made
    made.close()


def test_the_listener_commits_no_batch_that_its_sink_may_have_dropped(unproven, caplog):
    """It shows why, in the log, as a stop, and in the store for the next process."""
    unproven.run()

    assert unproven.txid() == 0
    (logged,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "KAFKA_TX_BATCH_IDS_AGAIN" in logged.getMessage()
    assert len(unproven.reasons()) == 1
    with closing(SqlStore(unproven.options["tx.store"], "job")) as store:
        stop = last_stop(store)
    assert stop is not None
    assert "stays planned" in stop.error


def test_the_lag_of_a_topic_that_a_query_was_told_to_leave_out_is_not_watched(unproven):
    old, new = TopicPartition("former", 0), TopicPartition("t", 0)
    unproven.ledger.adopt(unproven.epoch, Committed(3, {old: 9, new: 50}))
    unproven.listener._ids["query"] = {"job"}
    unproven.listener._options["job"] = unproven.options

    unproven.listener._show_stored(["job"])

    assert unproven.listener.watched() == {"job": [new]}
    assert list(unproven.registry.positions_of("job")) == [new]


def test_it_is_known_how_long_records_wait_until_there_are_enough(unproven):
    unproven.options |= {"minOffsetsPerTrigger": "9", "maxTriggerDelay": "20m"}

    unproven.run(tells=False)

    (activity,) = unproven.registry.activities().values()
    assert activity.waits_ms == 20 * 60_000


def test_a_fenced_run_leaves_nothing_that_is_shown_again(unproven):
    """The newer owner shows the lag and the commits of the id."""
    unproven.sink = SinkNote("kafka", ignores_ids=True)
    unproven.run()
    assert (unproven.txid(), bool(unproven.listener.watched())) == (1, True)

    unproven.run(exception=FENCED)
    unproven.listener.onQueryIdle(unproven.named(0))  # of another query

    assert not unproven.listener.watched()
    assert not unproven.registry.samples().get("kafka_tx_committed_txid")


def test_what_tasks_read_counts_for_each_source_of_a_query(unproven, monkeypatch):
    took: list[Any] = []
    unproven.run()  # the listener knows the query
    monkeypatch.setattr(unproven.listener.feed, "finished", took.append)
    reports = {("query", 0): ReadReports()}
    reader: Any = SimpleNamespace(collect=lambda *batch: reports.pop(batch, None))
    monkeypatch.setattr(unproven.listener, "_read_report_listener", reader)
    monkeypatch.setattr(jvm, "give_tasks", lambda *_: None)
    reader.address = "here"

    unproven.run(sources=2)

    assert len(took) == 2
    assert all(each.read_reports is not None for each in took)


@pytest.mark.parametrize("word", ["ignored", "unknown"])
def test_the_listener_commits_where_the_user_or_the_sink_says_that_ids_are_ignored(
    unproven, word
):
    unproven.options |= {"tx.sinkBatchIds": word}
    unproven.sink = SinkNote("console", ignores_ids=word == "unknown")

    unproven.run()

    assert unproven.txid() == 1
    assert unproven.reasons() == []


def test_a_run_into_another_sink_is_not_believed_as_the_former_run(unproven):
    """Same id, same options, same session: only the sink is another."""
    unproven.sink = SinkNote("console", ignores_ids=True)
    unproven.run()
    unproven.sink = SinkNote("code")

    unproven.run()

    assert unproven.txid() == 1


def test_a_batch_that_is_told_late_is_judged_by_the_sink_of_its_own_run(unproven):
    """Spark tells of a start at once, and of a finished batch on another thread."""
    told = unproven.run(tells=False)
    unproven.sink = SinkNote("console", ignores_ids=True)
    unproven.listener.onQueryStarted(unproven.named(2))

    told()

    assert unproven.txid() == 0
