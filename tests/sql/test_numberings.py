"""Maps and tables know whose txids they count, and whether a replay holds the same."""

from functools import partial

import pyarrow as pa
import pytest
import sqlalchemy as sa

from kafka_tx.errors import AnotherNumberingError, ConfigError, FencedError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.tables import append_rows

KINDS = ["transactional map", "opaque map", "transactional table", "opaque table"]


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/sinks.db"


def attempt(txid, *, epoch=1, numbering="one", **more):
    made = TransactionAttempt.of(txid, epoch=epoch, number=1)
    named = {"numbering": numbering, "source": f"job-{numbering}", **more}
    return TransactionAttempt(made.txid, made.attempt_id, **named)


@pytest.fixture(params=KINDS)
def write(request, url):
    rows = pa.table({"key": ["a"], "value": [1]})
    is_opaque = request.param.startswith("opaque")
    if request.param.endswith("table"):
        return lambda given: append_rows(url, "t", given, rows, opaque=is_opaque)
    kind = OpaqueMap if is_opaque else TransactionalMap
    return lambda given: kind(url, "t").update(given, rows)


def progress(url):
    with sa.create_engine(url).connect() as db:
        return dict(
            db.execute(sa.text("SELECT * FROM kafka_tx_progress")).one()._mapping
        )


@pytest.mark.parametrize("txid", [1, 2, 3])
@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_the_txid_of_another_numbering_is_refused_by_name(url, write, txid, epoch):
    write(attempt(2, epoch=2))
    before = progress(url)

    with pytest.raises(AnotherNumberingError) as told:
        write(attempt(txid, epoch=epoch, numbering="two"))

    for word in ("numbering one ('job-one')", "numbering two ('job-two')"):
        assert word in str(told.value)
    assert "--numbering one --attempt 2:2000000000001" in str(told.value)
    assert progress(url) == before
    assert write(attempt(3, epoch=2))


def test_attempts_made_by_hand_are_compared_as_far_as_they_tell(write):
    write(TransactionAttempt(1, 1))
    write(attempt(2))
    write(TransactionAttempt.of(3, epoch=1, number=7))

    with pytest.raises(AnotherNumberingError):
        write(attempt(4, numbering="two"))
    with pytest.raises(FencedError):
        write(TransactionAttempt(4, 1))


@pytest.mark.parametrize("kind", ["map", "table"])
def test_an_opaque_attempt_is_refused_where_nothing_is_taken_back(url, kind):
    rows = pa.table({"key": ["a"], "value": [1]})
    given = attempt(1, mode="opaque")

    write = TransactionalMap(url, "t").update
    if kind == "table":
        write = partial(append_rows, url, "t")
    with pytest.raises(ConfigError, match="of 'job-one' is opaque: .*OpaqueMap"):
        write(given, rows)
    with sa.create_engine(url).connect() as db:
        assert not db.execute(sa.text("SELECT * FROM kafka_tx_progress")).all()


def test_what_takes_back_takes_attempts_of_both_modes(url):
    rows = pa.table({"key": ["a"], "value": [1]})
    state = OpaqueMap(url, "t")
    for txid, mode in enumerate(("opaque", "transactional"), 1):
        assert state.update(attempt(txid, mode=mode), rows)
        assert append_rows(url, "rows", attempt(txid, mode=mode), rows, opaque=True)


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
        "kafka_tx.transactions.patience.Patience.__call__",
        lambda _, whole: (whole(), whole())[1],
    )

    assert not append_rows(url, "t", attempt(1), rows)
    assert append_rows(url, "u", attempt(1), rows, opaque=True)

    with sa.create_engine(url).connect() as db:
        assert db.execute(sa.text("SELECT count(*) FROM t")).scalar() == 2
        assert db.execute(sa.text("SELECT count(*) FROM u")).scalar() == 2
