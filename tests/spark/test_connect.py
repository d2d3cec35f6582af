"""Spark Connect: how a foreachBatch finds the planner of its own run."""

from __future__ import annotations

import os
import pickle
import subprocess
import tempfile
from pathlib import Path

import pytest

from kafka_tx.errors import (
    CheckpointDisagreesError,
    ConfigError,
    FencedError,
    KafkaTxError,
)
from kafka_tx.model import TransactionAttempt
from kafka_tx.running import connect_meeting as meeting
from kafka_tx.source.questions import Answer
from kafka_tx.spark.connect.meeting import ConnectRun, ServedStreamReader, serve
from kafka_tx.spark.queries.foreach import for_each_transaction
from kafka_tx.spark.source.stream import KafkaTxStreamReader
from kafka_tx.spark.versions.streams import ReadAllAvailable
from kafka_tx.testing import ManualClock
from kafka_tx.transactions.ownership.memory import MemoryStore
from tests.fake_cluster import FakeCluster
from tests.source.test_transactional import Job

SEEN: list[TransactionAttempt] = []


@pytest.fixture
def place(monkeypatch, tmp_path):
    """The meeting place of a server that has started this process."""
    short = tempfile.mkdtemp(prefix="kt-", dir="/tmp")  # names of sockets are short
    monkeypatch.setattr(tempfile, "gettempdir", lambda: short)
    monkeypatch.setattr(meeting, "_jvm", lambda: f"{os.getpid()}-1")
    monkeypatch.setattr(meeting, "_forget_ended", lambda parent: None)
    found = meeting.meeting_place(make=True)
    assert found is not None
    yield found
    subprocess.run(["rm", "-r", short], check=True)


def answering(place: Path, tx_id: str, epoch: int = 1) -> None:
    socket = meeting.new_socket(place, tx_id)
    serve(socket, lambda batch: Answer(batch + 1, epoch, "plan"))


def test_a_batch_is_what_its_own_planner_says(place):
    answering(place, "x", epoch=1)  # of an earlier run
    run = ConnectRun("x")
    answering(place, "another", epoch=2)
    answering(place, "x", epoch=3)
    assert run.ask(4) == Answer(5, 3, "plan")

    answering(place, "x", epoch=4)  # it took over since: that is not this run's matter
    assert run.ask(5) == Answer(6, 3, "plan")


def test_two_that_were_started_at_once_are_both_refused(place):
    run = ConnectRun("x")
    answering(place, "x", epoch=1)
    answering(place, "x", epoch=2)
    with pytest.raises(KafkaTxError, match="2 queries with tx.id 'x'.*Stop all"):
        run.ask(0)


def test_two_that_listen_from_one_moment_on_are_two(tmp_path):
    found = [tmp_path / f"{meeting._short('x')}.a.{pid}" for pid in (1, 2)]
    for each in found:
        each.touch()
    assert meeting.sockets_since(tmp_path, "x", 10) == found


@pytest.mark.parametrize("length", [20, 33, 34, 96, 200])
def test_planner_and_function_meet_however_long_the_temporary_directory_is(
    monkeypatch, length
):
    base = tempfile.mkdtemp(prefix="kt-", dir="/tmp")
    long = Path(base, "x" * (length - len(base) - 1))
    long.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(long))
    monkeypatch.setattr(meeting, "_jvm", lambda: meeting._life(4_194_304, "1 2 3"))
    monkeypatch.setattr(meeting, "_forget_ended", lambda parent: None)
    try:
        run = ConnectRun("x")
        place = meeting.meeting_place(make=False)
        assert place is not None
        answering(place, "x", epoch=3)
        assert run.ask(4) == Answer(5, 3, "plan")
    finally:
        subprocess.run(["rm", "-rf", base, str(run._place)], check=True)


def test_a_server_in_another_container_is_left_alone(monkeypatch, tmp_path):
    mine = tmp_path / f"{meeting._family()}-{meeting._life(999_999_999, '1')}"
    other = tmp_path / f"{meeting._family()[:-1]}-{meeting._life(999_999_999, '1')}"
    living = tmp_path / (
        f"{meeting._family()}-"
        f"{meeting._life(os.getpid(), meeting._process(os.getpid())[1])}"
    )
    for each in (mine, other, living):
        each.mkdir()

    meeting._forget_ended(tmp_path)

    assert sorted(tmp_path.iterdir()) == sorted([other, living])


def test_a_planner_that_never_planned_is_no_planner(place):
    answering(place, "x")
    with pytest.raises(ConfigError, match="no source with tx.id 'x'"):
        ConnectRun("x").ask(0)


def test_a_planner_that_is_gone_is_not_replaced_by_another(place):
    run = ConnectRun("x")
    gone = meeting.new_socket(place, "x")
    gone.touch()
    with pytest.raises(KafkaTxError, match="cannot be asked.*started again"):
        run.ask(0)
    answering(place, "x")
    with pytest.raises(KafkaTxError, match="cannot be asked"):
        run.ask(0)


def test_what_the_planner_raises_is_raised(place):
    def fenced(batch_id: int) -> Answer:
        raise FencedError("x", held_epoch=1, stored_epoch=2)

    run = ConnectRun("x")
    serve(meeting.new_socket(place, "x"), fenced)
    with pytest.raises(FencedError):
        run.ask(0)


def remember(df: object, attempt: TransactionAttempt) -> None:
    SEEN.append(attempt)


def test_the_function_is_pickled_and_counts_its_tries(place, monkeypatch):
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    there = pickle.loads(pickle.dumps(for_each_transaction(remember, "x")))
    answering(place, "x", epoch=7)
    SEEN.clear()
    for batch_id in (0, 0, 1):
        there(None, batch_id)
    assert [a.txid for a in SEEN] == [1, 1, 2]
    assert [a.epoch for a in SEEN] == [7, 7, 7]
    assert SEEN[1].attempt_id > SEEN[0].attempt_id
    assert {a.source for a in SEEN} == {"x"}


def test_which_transaction_has_to_be_said(monkeypatch):
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(ConfigError, match=r"needs the tx\.id of the source"):
        for_each_transaction(remember)


def test_a_directory_of_somebody_else_is_not_used(place):
    place.chmod(0o755)
    with pytest.raises(PermissionError, match="of this user alone"):
        meeting.meeting_place(make=True)


@pytest.fixture
def no_temporary_directory(monkeypatch):
    def full() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", full)
    monkeypatch.setattr(meeting, "_jvm", lambda: f"{os.getpid()}-1")


@pytest.mark.usefixtures("no_temporary_directory")
def test_a_planner_that_nobody_asks_needs_no_temporary_directory():
    assert meeting.meeting_place(make=False) is None


@pytest.mark.usefixtures("no_temporary_directory")
def test_a_function_without_a_temporary_directory_says_what_to_set():
    with pytest.raises(ConfigError, match="Set TMPDIR of the server to a directory"):
        ConnectRun("x")


def test_no_server_no_meeting(monkeypatch):
    monkeypatch.setattr(meeting, "_jvm", lambda: None)
    assert meeting.meeting_place(make=True) is None
    with pytest.raises(KafkaTxError, match="has not started"):
        ConnectRun("x")


def test_parents_are_found_with_and_without_proc():
    parent, started, name = meeting._process(os.getpid())
    assert parent == os.getppid()
    assert started
    assert name
    assert meeting._process(2**22 + 1) == (0, "", "")


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def job(cluster, clock):
    cluster.set(0, 0, 10)
    return Job(cluster, clock)


@pytest.fixture
def opened(place, monkeypatch, job):
    """Makes readers of one job, whose log holds ten records."""
    monkeypatch.setattr(KafkaTxStreamReader, "_open", lambda self: job.start())
    given = {
        "kafka.bootstrap.servers": "b:9092",
        "subscribe": "t",
        "tx.id": "job",
        "tx.store": "sqlite:////nowhere",
    }
    return lambda: pickle.loads(pickle.dumps(ServedStreamReader(given)))


def test_the_batch_under_way_is_asked_about(opened, cluster):
    run, reader = ConnectRun("job"), opened()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.partitions(start, end)
    assert run.ask(0) == Answer(1, 1)
    assert run.ask(0) == Answer(1, 1)

    cluster.set(0, 0, 20)
    reader.latestOffset(end, ReadAllAvailable())
    assert run.ask(1) == Answer(2, 1)


def test_after_a_restart_the_logged_batch_is_asked_about(opened):
    reader = opened()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())

    run, later = ConnectRun("job"), opened()
    later.partitions(start, end)
    assert run.ask(0) == Answer(1, 2)


def test_a_query_whose_planner_died_goes_on_with_its_batch_when_started_again(
    opened, place
):
    run, reader = ConnectRun("job"), opened()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.partitions(start, end)
    for socket in place.iterdir():
        socket.unlink()
        socket.touch()
    with pytest.raises(KafkaTxError, match="Nothing was written.*started again"):
        run.ask(0)

    again, later = ConnectRun("job"), opened()
    later.partitions(start, end)
    assert again.ask(0) == Answer(1, 2)
    assert later.latestOffset(end, ReadAllAvailable()) == end


def test_an_overtaken_planner_says_so(opened):
    run, reader = ConnectRun("job"), opened()
    start = reader.initialOffset()
    reader.latestOffset(start, ReadAllAvailable())
    asked = run.ask(0)
    later = opened()
    later.latestOffset(later.initialOffset(), ReadAllAvailable())
    assert asked == Answer(1, 1)
    with pytest.raises(FencedError):
        run.ask(0)


def test_a_batch_without_new_records_has_no_txid_there(opened):
    run, reader = ConnectRun("job"), opened()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.latestOffset(end, ReadAllAvailable())
    with pytest.raises(ConfigError, match="no new records.*noDataMicroBatches"):
        run.ask(1)


def test_the_first_batch_has_a_txid_also_without_records(opened, cluster):
    cluster.set(0, 0, 0)
    run, reader = ConnectRun("job"), opened()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.partitions(start, end)
    assert end == start
    assert run.ask(0) == Answer(1, 1)
    assert not run.ask(0).plan  # its records are another source's, if it has any

    again, later = ConnectRun("job"), opened()
    later.partitions(later.initialOffset(), end)
    assert again.ask(0) == Answer(1, 2)  # a replay: the same txid

    cluster.set(0, 0, 5)
    later.latestOffset(end, ReadAllAvailable())
    assert again.ask(1) == Answer(2, 2)


def test_a_second_batch_without_records_has_none_where_the_first_has(opened, cluster):
    cluster.set(0, 0, 0)
    run, reader = ConnectRun("job"), opened()
    start = reader.initialOffset()
    reader.latestOffset(start, ReadAllAvailable())
    run.ask(0)
    reader.latestOffset(start, ReadAllAvailable())  # another source has state that ends
    with pytest.raises(ConfigError, match="no new records.*noDataMicroBatches"):
        run.ask(1)


def test_a_store_that_was_put_back_is_told_by_a_first_batch_too(opened, job):
    store = MemoryStore(job.name, "job")
    earlier = store.snapshot()
    reader = opened()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.latestOffset(end, ReadAllAvailable())  # txid 1 is committed
    logged = opened().initialOffset()
    store.restore(earlier)

    run, later = ConnectRun("job"), opened()
    later.partitions(later.initialOffset(), logged)
    with pytest.raises(CheckpointDisagreesError, match="another numbering"):
        run.ask(0)
