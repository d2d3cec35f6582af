"""Which owner may write a map or table, also one that an earlier release has made."""

import pyarrow as pa
import pytest
import sqlalchemy as sa

from kafka_tx.errors import FencedError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.progress import newest
from kafka_tx.sql.tables import append_rows

CLOCK_ID = 1_795_000_000_000_000
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


def execute(url, *statements):
    with sa.create_engine(url).begin() as connection:
        return [connection.execute(sa.text(s)) for s in statements][-1]


def as_an_earlier_release_left_it(url, write, attempt_id):
    """Written by one that knew no epochs: its table, and what it last stored there."""
    write(TransactionAttempt(2, attempt_id))
    execute(url, "ALTER TABLE kafka_tx_progress DROP COLUMN epoch")


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


@pytest.mark.parametrize("txid", [2, 3])
def test_ids_of_a_clock_do_not_fence_the_first_owner(url, write, txid):
    as_an_earlier_release_left_it(url, write, CLOCK_ID)

    write(attempt(txid, epoch=1))

    with pytest.raises(FencedError):
        write(attempt(txid + 1, epoch=0))
    assert write(attempt(txid + 1, epoch=1))


def test_epochs_that_an_earlier_release_has_stored_count(url, write):
    as_an_earlier_release_left_it(url, write, attempt(2, epoch=7).attempt_id)

    with pytest.raises(FencedError):
        write(attempt(3, epoch=6))

    assert write(attempt(3, epoch=7))


def test_a_clock_that_writes_after_an_owner_fences_nobody(url, write):
    write(attempt(2, epoch=7))
    execute(url, f"UPDATE kafka_tx_progress SET txid = 3, attempt_id = {CLOCK_ID}")

    assert write(attempt(4, epoch=8))
    with pytest.raises(FencedError):
        write(attempt(5, epoch=7))


def test_an_earlier_release_may_go_on_writing(url, write):
    write(attempt(2, epoch=7))

    execute(
        url,
        "INSERT INTO kafka_tx_progress (name, kind, txid, attempt_id)"
        f" VALUES ('other', 'opaque map', 1, {CLOCK_ID})",
    )

    assert OpaqueMap(url, "other").last_attempt() == TransactionAttempt(1, CLOCK_ID)


def test_a_reader_needs_no_right_to_change_tables(url):
    state = OpaqueMap(url, "t")
    as_an_earlier_release_left_it(url, writer("opaque map", url), CLOCK_ID)

    assert state.last_attempt() == TransactionAttempt(2, CLOCK_ID)
    assert state.get(["a"]) == {"a": 1}
    columns = execute(url, "SELECT * FROM kafka_tx_progress").keys()
    assert "epoch" not in columns


@pytest.mark.parametrize(
    ("attempt_id", "epoch", "compared"),
    [
        (12, None, 12),
        (3 * 10**12 + 1, None, 3 * 10**12 + 1),
        (CLOCK_ID, None, 0),
        (CLOCK_ID, 3, 0),
        (3 * 10**12 + 1, 3, 3 * 10**12 + 1),
        (3 * 10**12 + 1, 5, 5 * 10**12),
        (1800 * 10**12 + 1, 1800, 1800 * 10**12 + 1),
    ],
)
def test_what_a_row_is_compared_with(attempt_id, epoch, compared):
    assert newest(4, attempt_id, epoch) == TransactionAttempt(4, compared)
