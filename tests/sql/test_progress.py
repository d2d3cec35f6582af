"""What maps and tables promise beyond the suite for sinks."""

import pyarrow as pa
import pytest
import sqlalchemy as sa

from kafka_tx.errors import ConfigError, FencedError
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.tables import append_rows
from tests.conformance.sink_suite import attempt


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/sinks.db"


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


def test_a_call_that_is_made_again_knows_what_it_has_written(url, monkeypatch):
    """Its answer was lost: the same call tries once more."""
    rows = pa.table({"value": [1, 2]})
    monkeypatch.setattr(
        "kafka_tx.transactions.retry_policy.RetryPolicy.__call__",
        lambda _, whole: (whole(), whole())[1],
    )

    assert not append_rows(url, "t", attempt(1), rows)
    assert append_rows(url, "u", attempt(1), rows, opaque=True)

    with sa.create_engine(url).connect() as db:
        assert db.execute(sa.text("SELECT count(*) FROM t")).scalar() == 2
        assert db.execute(sa.text("SELECT count(*) FROM u")).scalar() == 2
