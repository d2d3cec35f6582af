"""What maps and tables promise beyond the suite for sinks."""

import pyarrow as pa
import pytest
import sqlalchemy as sa

from kafka_tx.errors import ConfigError, FencedError, ReplayDiffersError
from kafka_tx.sql import progress
from kafka_tx.sql.maps import NonTransactionalMap, OpaqueMap, TransactionalMap
from kafka_tx.sql.progress import PROGRESS, Progress
from kafka_tx.sql.snapshot import SnapshotValue
from kafka_tx.sql.tables import append_rows
from tests.conformance.sink_suite import attempt


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/sinks.db"


def write(url, kind, name, given, value=1):
    rows = pa.table({"key": ["a"], "value": [value]})
    if kind is None:
        return append_rows(url, name, given, rows)
    if kind is SnapshotValue:
        return SnapshotValue(TransactionalMap(url, name)).set(given, value)
    return kind(url, name).update(given, rows)


@pytest.mark.parametrize(
    ("kind", "opaque"),
    [(TransactionalMap, False), (OpaqueMap, True), (None, False), (None, True)],
)
def test_who_replays_is_the_newest_owner_also_where_nothing_is_written(
    url, kind, opaque
):
    rows = pa.table({"key": ["a"], "value": [1]})

    def write(given):
        if kind is None:
            return append_rows(url, "t", given, rows, opaque=opaque)
        return kind(url, "t").update(given, rows)

    write(attempt(2, epoch=7))
    write(attempt(2, epoch=8))

    with pytest.raises(FencedError):
        write(attempt(3, epoch=7))

    assert write(attempt(3, epoch=8))


@pytest.mark.parametrize("opaque", [False, True])
def test_a_table_takes_one_call_of_an_attempt_whatever_its_url_is_called(
    tmp_path, url, opaque
):
    rows = pa.table({"value": [1, 2]})
    other = f"sqlite:///{tmp_path}/../{tmp_path.name}/sinks.db"
    assert append_rows(url, "t", attempt(1), rows, opaque=opaque)

    with pytest.raises(ConfigError, match="'t' was written already in transaction 1:"):
        append_rows(other, "t", attempt(1), rows, opaque=opaque)

    assert append_rows(other, "t", attempt(1, epoch=2), rows, opaque=opaque) is opaque
    assert append_rows(url, "t", attempt(2, epoch=2), rows, opaque=opaque)
    with sa.create_engine(url).connect() as db:
        assert db.execute(sa.text("SELECT count(*) FROM t")).scalar() == 4


@pytest.mark.parametrize("is_refused_first", [True, False])
@pytest.mark.parametrize("kind", [TransactionalMap, SnapshotValue, None])
def test_a_replay_refuses_a_second_write_as_the_first_try_does(
    url, monkeypatch, kind, is_refused_first
):
    """The first try may also die between both."""
    error = ConfigError if kind is None else ReplayDiffersError
    assert write(url, kind, "t", attempt(1))
    if is_refused_first:
        with pytest.raises(error):
            write(url, kind, "t", attempt(1), 2)
    monkeypatch.setattr(progress, "_left", {})  # another process

    for epoch in (2, 3):
        assert not write(url, kind, "t", attempt(1, epoch=epoch))
        with pytest.raises(error):
            write(url, kind, "t", attempt(1, epoch=epoch), 2)
    assert write(url, kind, "t", attempt(2, epoch=3), 2)


def test_a_replay_of_a_map_may_come_again_with_the_same_rows(url):
    tries = attempt(1), attempt(1, epoch=2), attempt(1, epoch=2)

    written = [write(url, TransactionalMap, "t", given) for given in tries]

    assert written == [True, False, False]


def test_a_call_that_is_made_again_knows_what_it_has_written(url, monkeypatch):
    """Its answer was lost: the same call tries once more."""
    rows = pa.table({"value": [1, 2]})
    monkeypatch.setattr(
        "kafka_tx.transactions.ownership.retry_policy.RetryPolicy.__call__",
        lambda _, whole: (whole(), whole())[1],
    )

    assert not append_rows(url, "t", attempt(1), rows)
    assert append_rows(url, "u", attempt(1), rows, opaque=True)

    with sa.create_engine(url).connect() as db:
        assert db.execute(sa.text("SELECT count(*) FROM t")).scalar() == 2
        assert db.execute(sa.text("SELECT count(*) FROM u")).scalar() == 2


def test_what_another_thread_commits_while_there_is_no_row_is_no_loss(url, monkeypatch):
    """A row that is absent locks nobody, where the database has no other lock."""
    row = Progress._row

    def interleaved(self, connection, *, lock=False):
        found = row(self, connection, lock=lock)
        self.left(attempt(1), "")
        return found

    monkeypatch.setattr(Progress, "_row", interleaved)

    assert append_rows(url, "t", attempt(1, number=2), pa.table({"value": [1]}))


@pytest.mark.parametrize("opaque", [False, True])
def test_who_comes_second_to_the_first_write_of_a_name_is_told_so(
    url, monkeypatch, opaque
):
    """Both found no row, and the database lets the other one insert it first."""
    rows, row = pa.table({"value": [1]}), Progress._row
    assert append_rows(url, "t", attempt(1), rows, opaque=opaque)
    monkeypatch.setattr(progress, "_left", {})  # another process has written that
    answers = [None]

    def late(self, connection, *, lock=False):
        return answers.pop() if answers else row(self, connection, lock=lock)

    monkeypatch.setattr(Progress, "_row", late)

    with pytest.raises(ConfigError, match="'t' was written already in transaction 1:"):
        append_rows(url, "t", attempt(1), rows, opaque=opaque)
    assert not answers


KINDS = (NonTransactionalMap, TransactionalMap, OpaqueMap, SnapshotValue, None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_a_name_that_sqlite_takes_for_another_is_refused(url, kind, second):
    write(url, kind, "Counts", attempt(1))

    with pytest.raises(ConfigError, match="'counts'.*own.*'Counts'.*Nothing was writ"):
        write(url, second, "counts", attempt(1))

    write(url, kind, "Counts", attempt(2))
    with sa.create_engine(url).connect() as db:
        names = db.scalars(sa.text(f"SELECT name FROM {PROGRESS}")).all()
    assert set(names) <= {"Counts"}


@pytest.mark.parametrize("kind", [NonTransactionalMap, TransactionalMap, OpaqueMap])
@pytest.mark.parametrize(
    "read", [lambda m: m.get(["a"]), lambda m: m.to_arrow()], ids=["get", "to_arrow"]
)
def test_the_map_of_such_a_name_is_not_read_either(url, kind, read):
    write(url, kind, "Counts", attempt(1))

    with pytest.raises(ConfigError, match="'Counts'"):
        read(kind(url, "COUNTS"))


def test_two_such_names_from_before_are_named_with_both_ways_out(url):
    write(url, TransactionalMap, "Counts", attempt(1))
    with sa.create_engine(url).begin() as db:
        db.execute(
            sa.text(
                f"INSERT INTO {PROGRESS} SELECT 'counts', kind, 2, attempt_id, epoch,"
                f" plan, numbering, source, digest, format FROM {PROGRESS}"
            )
        )

    with pytest.raises(ConfigError, match="rows of both.*named 'Counts' from kafka_tx"):
        write(url, TransactionalMap, "counts", attempt(3))

    with sa.create_engine(url).begin() as db:
        db.execute(sa.text(f"DELETE FROM {PROGRESS} WHERE name = 'Counts'"))
    assert write(url, TransactionalMap, "counts", attempt(3))


def test_a_table_of_the_users_keeps_its_writer_under_any_spelling(url):
    with sa.create_engine(url).begin() as db:
        db.execute(sa.text("CREATE TABLE counts (key TEXT, value INTEGER)"))
        db.execute(sa.text("CREATE TABLE earlier (key TEXT, value INTEGER)"))
    with pytest.raises(ConfigError, match="write its name as it stands here"):
        write(url, None, "Counts", attempt(1))
    write(url, None, "earlier", attempt(1))
    with sa.create_engine(url).begin() as db:
        db.execute(sa.text(f"UPDATE {PROGRESS} SET name = 'Earlier'"))

    assert write(url, None, "Earlier", attempt(2))


def test_columns_that_sqlite_takes_for_one_are_refused_by_name(url):
    rows = pa.table({"a": [1], "A": [2]})
    with pytest.raises(ConfigError, match="none twice, as the database compares"):
        append_rows(url, "t", attempt(1), rows)

    with pytest.raises(ConfigError, match="'txid' is written by append_once"):
        append_rows(url, "t", attempt(1), pa.table({"TXID": [1]}), opaque=True)
