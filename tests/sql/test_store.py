import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path

import pytest
import sqlalchemy as sa

from kafka_tx.errors import (
    ConfigError,
    StateCorruptedError,
    StateError,
    StateUnavailableError,
)
from kafka_tx.sql import store as store_module
from kafka_tx.sql.database import Database
from kafka_tx.sql.state_tables import OWNER, STATE
from kafka_tx.sql.store import SqlStore
from tests.conformance.crash_suite import CrashSuite

NOBODY = 65534


class TestSqliteStoreInSeveralProcesses(CrashSuite):
    @pytest.fixture
    def store_url(self, tmp_path):
        return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def stores():
    opened: list[SqlStore] = []
    yield opened
    for store in opened:
        store.close()


@pytest.fixture
def open_file(stores):
    def open_one(path, query=""):
        stores.append(SqlStore(f"sqlite:///{path}{query}", "orders"))
        return stores[-1]

    return open_one


def run(script, *arguments):
    """Run a script of its own; return what it printed."""
    finished = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.split("\n")


def test_the_file_is_made_on_first_use(open_file, tmp_path):
    store = open_file(tmp_path / "state.db")
    assert list(tmp_path.iterdir()) == []

    store.acquire()

    assert (tmp_path / "state.db").is_file()


def test_a_relative_file_is_told_with_its_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert SqlStore("sqlite:///a.db", "orders").url == f"sqlite:///{tmp_path}/a.db"


def test_a_missing_directory_is_named(open_file, tmp_path):
    with pytest.raises(StateError, match=f"Directory {tmp_path}/gone does not exist"):
        open_file(tmp_path / "gone" / "state.db").acquire()


def test_a_directory_in_place_of_the_file_is_named(open_file, tmp_path):
    with pytest.raises(StateError, match=f"{tmp_path} is a directory"):
        open_file(tmp_path).acquire()


AS_SOMEBODY_ELSE = """
import os, sqlite3, sys
from kafka_tx.errors import StateError
from kafka_tx.sql.store import SqlStore
import sqlalchemy.dialects.sqlite.pysqlite
if os.geteuid() == 0:
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
try:
    SqlStore(sys.argv[1], "orders").acquire()
except StateError as error:
    print(type(error).__name__)
    print(error)
"""


@pytest.fixture
def shared_directory():
    """A directory that others may enter, with a store in it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory
        directory.chmod(0o755)


def test_a_directory_that_cannot_be_written_is_named(shared_directory):
    shared_directory.chmod(0o555)

    kind, text, *_ = run(
        AS_SOMEBODY_ELSE, f"sqlite:///{shared_directory}/state.db", NOBODY
    )

    assert kind == "StateError"
    assert f"Directory {shared_directory} is not writable" in text


def test_a_file_that_cannot_be_written_is_named(shared_directory):
    file = shared_directory / "state.db"
    store = SqlStore(f"sqlite:///{file}", "orders")
    store.acquire()
    store.close()
    file.chmod(0o444)
    shared_directory.chmod(0o777)

    kind, text, *_ = run(AS_SOMEBODY_ELSE, f"sqlite:///{file}", NOBODY)

    assert kind == "StateError"
    assert f"Is {file} writable" in text


def test_a_file_that_is_no_database_is_left_alone(open_file, tmp_path):
    file = tmp_path / "state.db"
    file.write_text("these are notes, not a database\n" * 100)

    with pytest.raises(StateCorruptedError, match="never was a SQLite database"):
        open_file(file).acquire()

    assert file.read_text().startswith("these are notes")


def test_a_cut_file_is_corrupted(open_file, tmp_path):
    file = tmp_path / "state.db"
    store = open_file(file)
    store.write(store.acquire(), {f"meta/{n}": "x" * 3_000 for n in range(50)})
    store.close()
    os.truncate(file, file.stat().st_size // 2)

    with pytest.raises(StateCorruptedError, match=r"state\.db"):
        open_file(file).read()


def test_a_writer_that_holds_the_lock_too_long_is_waited_for_and_then_told(
    open_file, tmp_path
):
    file = tmp_path / "state.db"
    store = open_file(file, "?timeout=0.2")
    epoch = store.acquire()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StateUnavailableError, match="locked") as caught:
        store.write(epoch, {"a": "1"})
    assert caught.value.retryable
    assert store.read() == {}

    other.rollback()
    other.close()
    store.write(epoch, {"a": "1"})
    assert store.read() == {"a": "1"}


FIRST_OWNERS = """
import os, sys, time
from kafka_tx.sql.store import SqlStore
import sqlalchemy.dialects.sqlite.pysqlite
moment = time.time() + 0.2
for _ in range(3):
    if not os.fork():
        store = SqlStore(sys.argv[1], "orders")
        time.sleep(max(0, moment - time.time()))
        os.write(1, f"{store.acquire()}\\n".encode())  # in one piece, beside others
        os._exit(0)
for _ in range(3):
    os.wait()
"""


def test_processes_that_make_the_file_at_the_same_moment_all_get_an_epoch(tmp_path):
    answers = run(FIRST_OWNERS, f"sqlite:///{tmp_path}/state.db")

    assert sorted(answers) == ["", "1", "2", "3"]


def test_a_new_file_that_another_writes_to_just_now_is_waited_for(tmp_path):
    file = tmp_path / "state.db"
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE theirs (x)")  # not yet with a log
    other.execute("BEGIN IMMEDIATE")
    other.execute("INSERT INTO theirs VALUES (1)")
    soon = threading.Timer(0.3, other.commit)
    soon.start()

    epoch = SqlStore(f"sqlite:///{file}", "orders").acquire()

    soon.join()
    other.close()
    assert epoch == 1
    assert file.read_bytes()[18:20] == b"\2\2", "it keeps no write-ahead log"


FORKS = """
import os, sys
from kafka_tx.sql.store import SqlStore
store = SqlStore(sys.argv[1], "orders")
epoch = store.acquire()
child = os.fork()
if not child:
    for number in range(20):
        store.write(epoch, {"child": str(number)})
    store.close()
    os._exit(0)
for number in range(20):
    store.write(epoch, {"parent": str(number)})
assert os.waitpid(child, 0)[1] == 0
print(store.read())
"""


def test_a_forked_process_opens_connections_of_its_own(tmp_path):
    assert run(FORKS, f"sqlite:///{tmp_path}/state.db")[0] == str(
        {"child": "19", "parent": "19"}
    )


def test_the_password_is_never_told():
    url = "postgresql+psycopg://me:s3cr%40t@127.0.0.1:1/none"
    store = SqlStore(url, "orders")

    assert store.url == "postgresql+psycopg://me:***@127.0.0.1:1/none"
    with pytest.raises(StateUnavailableError, match=r"127\.0\.0\.1") as caught:
        store.acquire()
    assert "s3cr" not in repr(store) + str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:x@s3cret@host/db",
        "postgresql://me:s3cret@host:port/db",
        "s3cret",
        "",
    ],
)
def test_a_malformed_url_is_refused_without_repeating_it(url):
    with pytest.raises(ConfigError, match="no SQLAlchemy URL") as caught:
        SqlStore(url, "orders")

    assert "s3cr" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"]
)
def test_a_sqlite_database_in_memory_is_refused(url):
    with pytest.raises(ConfigError, match="use memory:"):
        SqlStore(url, "orders")


@pytest.mark.parametrize(
    "url",
    ["nosuch://host/db", "postgresql+nosuch://me:s3cret@host/db", "oracle://host/x"],
)
def test_a_database_without_a_driver_is_named(url):
    with pytest.raises(ConfigError, match="Install the driver") as caught:
        SqlStore(url, "orders").acquire()

    assert "s3cret" not in str(caught.value)


def test_every_write_reaches_the_disk(open_file, tmp_path):
    store = open_file(tmp_path / "state.db")
    store.acquire()

    with store._database.reading(STATE.metadata) as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


@pytest.mark.parametrize(
    ("commit", "names", "standbys", "told"),
    [
        ("off", "one", 1, "synchronous_commit is off"),
        ("on", "one", 1, ""),
        ("on", "", 0, ""),
        ("on", "", 2, "2 standby servers follow asynchronously"),
        ("local", "one", 1, "1 standby servers follow asynchronously"),
        ("local", "one", 0, ""),
    ],
)
def test_postgresql_may_forget_commits_by_these_settings(commit, names, standbys, told):
    weakness = store_module._weakness(commit, names, standbys)

    assert weakness.startswith(told)
    assert bool(weakness) is bool(told)


def test_a_first_owner_finds_each_table_made_by_another_one(tmp_path, monkeypatch):
    """Some databases make tables one by one, and others make them at the same time."""
    create, missing = Database._create, [OWNER, STATE]

    def comes_second(database, tables):
        if missing:
            with database._connect(writes=True) as connection, connection.begin():
                missing.pop().create(connection)
            raise sa.exc.OperationalError("CREATE TABLE", {}, Exception("it exists"))
        create(database, tables)

    monkeypatch.setattr(Database, "_create", comes_second)

    assert SqlStore(f"sqlite:///{tmp_path}/store.db", "id").acquire() == 1
