"""Which owner may write a map or table."""

import pyarrow as pa
import pytest

from kafka_tx.errors import FencedError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.tables import append_rows

KINDS = ["transactional map", "opaque map", "transactional table", "opaque table"]


def attempt(txid, epoch, number=1):
    return TransactionAttempt.of(txid, epoch=epoch, number=number)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/maps.db"


@pytest.fixture(params=KINDS)
def write(request, url):
    return writer(request.param, url)


def writer(kind, url):
    rows = pa.table({"key": ["a"], "value": [1]})
    if kind.endswith("table"):
        is_opaque = kind.startswith("opaque")
        return lambda attempt: append_rows(url, "t", attempt, rows, opaque=is_opaque)
    made = OpaqueMap if kind.startswith("opaque") else TransactionalMap
    return lambda attempt: made(url, "t").update(attempt, rows)


@pytest.mark.parametrize("txid", [1, 2, 3])
def test_an_older_owner_is_refused_whatever_txid_it_brings(write, txid):
    write(attempt(2, epoch=7))

    with pytest.raises(FencedError, match="is older than .*epochs 6 and 7"):
        write(attempt(txid, epoch=6, number=99))

    assert write(attempt(3, epoch=7, number=2))


def test_who_replays_is_the_newest_owner_also_where_nothing_is_written(write):
    write(attempt(2, epoch=7))
    write(attempt(2, epoch=8))

    with pytest.raises(FencedError):
        write(attempt(3, epoch=7))

    assert write(attempt(3, epoch=8))
