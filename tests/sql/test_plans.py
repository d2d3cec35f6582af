"""A txid that comes with other records than those that were written for it."""

import pyarrow as pa
import pytest
import sqlalchemy as sa

from kafka_tx.errors import ReplayDiffersError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.tables import append_rows


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/sinks.db"


def attempt(txid, epoch, plan):
    made = TransactionAttempt.of(txid, epoch=epoch, number=1)
    return TransactionAttempt(made.txid, made.attempt_id, plan=plan)


def into_map(kind, url):
    return lambda attempt, rows: kind(url, "t").update(attempt, rows)


def into_table(url, *, opaque):
    return lambda attempt, rows: append_rows(url, "t", attempt, rows, opaque=opaque)


def keys(url):
    with sa.create_engine(url).connect() as db:
        return sorted(db.execute(sa.text('SELECT "key" FROM t')).scalars())


def rows(*keys):
    return pa.table({"key": list(keys), "value": [1] * len(keys)})


@pytest.mark.parametrize("kind", ["map", "table"])
def test_it_is_refused_with_what_to_do(url, kind):
    write = (
        into_map(TransactionalMap, url)
        if kind == "map"
        else into_table(url, opaque=False)
    )
    write(attempt(1, 1, "one"), rows("a"))
    write(attempt(1, 2, "one"), rows("a"))

    with pytest.raises(ReplayDiffersError, match="txid 1 .*ended elsewhere.*`kafka-tx"):
        write(attempt(1, 3, "other"), rows("a", "b"))
    assert keys(url) == ["a"]
    write(attempt(2, 3, "next"), rows("b"))
    write(attempt(2, 4, ""), rows("b"))  # one that does not tell

    assert keys(url) == ["a", "b"]


@pytest.mark.parametrize("kind", ["map", "table"])
def test_an_opaque_one_replaces_what_it_was(url, kind):
    write = into_map(OpaqueMap, url) if kind == "map" else into_table(url, opaque=True)
    write(attempt(1, 1, "one"), rows("a"))
    write(attempt(1, 2, "other"), rows("b"))

    assert keys(url) == ["b"]
