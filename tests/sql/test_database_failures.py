import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import make_url

from kafka_tx.errors import StateError, StateLostError, StateUnavailableError
from kafka_tx.sql.database_failures import translate

URL = make_url("postgresql+psycopg://me:s3cret@db.example/orders")
MYSQL = make_url("mysql+pymysql://me:s3cret@db.example/orders")


class DriverError(Exception):
    def __init__(self, *args, sqlstate=None):
        super().__init__(*args)
        self.sqlstate = sqlstate


def failed(kind, *args, sqlstate=None):
    return kind("SELECT 1", {}, DriverError(*args, sqlstate=sqlstate))


@pytest.mark.parametrize(
    ("error", "url"),
    [
        (failed(exc.OperationalError, "gone", sqlstate="08006"), URL),
        (failed(exc.OperationalError, "deadlock", sqlstate="40P01"), URL),
        (failed(exc.OperationalError, "serialize", sqlstate="40001"), URL),
        (failed(exc.OperationalError, "lock timeout", sqlstate="55P03"), URL),
        (failed(exc.OperationalError, "too many", sqlstate="53300"), URL),
        (failed(exc.OperationalError, "shutting down", sqlstate="57P01"), URL),
        (failed(exc.OperationalError, "connection refused"), URL),
        (failed(exc.InternalError, "read-only", sqlstate="25006"), URL),
        (failed(exc.InterfaceError, "closed"), URL),
        (exc.TimeoutError("the pool is empty"), URL),
        (failed(exc.OperationalError, 1213, "Deadlock", sqlstate="40001"), MYSQL),
        (failed(exc.OperationalError, 2013, "lost", sqlstate="HY000"), MYSQL),
        (failed(exc.OperationalError, 2006, "gone away"), MYSQL),
    ],
)
def test_what_may_pass_is_worth_another_try(error, url):
    translated = translate(error, url)

    assert isinstance(translated, StateUnavailableError)
    assert "db.example" in str(translated)


REFUSED_AT_ONCE = [
    (failed(exc.OperationalError, "no password", sqlstate="28P01"), URL, "pg_hba.conf"),
    (failed(exc.OperationalError, "none", sqlstate="3D000"), URL, "restore it before"),
    (failed(exc.ProgrammingError, "none", sqlstate="3F000"), URL, "ALTER ROLE me SET"),
    (failed(exc.ProgrammingError, "no", sqlstate="42501"), URL, "ON DATABASE orders"),
    (
        failed(exc.OperationalError, "FATAL: password authentication failed"),
        URL,
        "Check user and password",
    ),
    (
        failed(exc.OperationalError, 'permission denied for database "orders"'),
        URL,
        "GRANT CONNECT, TEMPORARY ON DATABASE orders TO me",
    ),
    (failed(exc.OperationalError, 1045, "Access denied"), MYSQL, "Check user and pas"),
    (
        failed(exc.OperationalError, 1142, "denied", sqlstate="42000"),
        MYSQL,
        "ON orders.* TO me",
    ),
    (failed(exc.OperationalError, 1049, "Unknown"), MYSQL, "has no such database"),
]
REFUSED_FOR_NOW = [
    (failed(exc.OperationalError, "full", sqlstate="53100"), URL, "raise the quota"),
    (failed(exc.OperationalError, "too many", sqlstate="53300"), URL, "CONNECTION LI"),
    (failed(exc.OperationalError, "gone", sqlstate="57014"), URL, "SET statement_time"),
    (failed(exc.InternalError, "no", sqlstate="25006"), URL, "name the primary"),
    (failed(exc.OperationalError, "too many clients already"), URL, "max_connections"),
    (
        failed(exc.OperationalError, 1290, "--read", sqlstate="HY000"),
        MYSQL,
        "switch them on",
    ),
    (failed(exc.OperationalError, 1114, "table is full"), MYSQL, "raise the quota"),
    (failed(exc.OperationalError, 1226, "max_updates"), MYSQL, "raise it"),
]


@pytest.mark.parametrize(("error", "url", "advice"), REFUSED_AT_ONCE)
def test_what_the_database_refuses_says_what_to_do(error, url, advice):
    translated = translate(error, url)

    assert type(translated) is StateError
    assert "refuses" in str(translated)
    assert advice in str(translated)


@pytest.mark.parametrize(("error", "url", "advice"), REFUSED_FOR_NOW)
def test_what_it_refuses_for_now_is_tried_again_and_says_what_to_do(error, url, advice):
    translated = translate(error, url)

    assert isinstance(translated, StateUnavailableError)
    assert advice in str(translated)


@pytest.mark.parametrize(
    ("error", "url"),
    [
        (failed(exc.ProgrammingError, "no relation", sqlstate="42P01"), URL),
        (failed(exc.ProgrammingError, 1146, "no table", sqlstate="42S02"), MYSQL),
    ],
)
def test_a_table_that_is_gone_is_a_store_that_is_lost(error, url):
    with pytest.raises(StateLostError, match=r"are gone .*restore the newest state"):
        raise translate(error, url)


@pytest.mark.parametrize(
    ("error", "url"),
    [
        (failed(exc.ProgrammingError, "no column", sqlstate="42703"), URL),
        (failed(exc.OperationalError, 1054, "no column"), MYSQL),
        (failed(exc.IntegrityError, 1406, "no column"), MYSQL),
    ],
)
def test_a_wrong_statement_is_told_and_not_tried_again(error, url):
    translated = translate(error, url)

    assert type(translated) is StateError
    assert "no column" in str(translated)
    assert "refuses a statement" in str(translated)


def test_a_wrong_statement_in_sqlite_is_not_blamed_on_the_file(tmp_path):
    url = make_url(f"sqlite:///{tmp_path}/state.db")
    engine = sa.create_engine(url)
    with engine.connect() as connection, pytest.raises(exc.OperationalError) as raised:
        connection.exec_driver_sql("SELECT nowhere")
    engine.dispose()

    text = str(translate(raised.value, url))

    assert "refuses a statement: no such column: nowhere" in text
    assert "Grant it" not in text


def test_a_driver_that_repeats_the_password_is_not_quoted_with_it():
    error = failed(exc.OperationalError, "cannot connect: me:s3cret@db.example")

    assert "s3cret" not in str(translate(error, URL))
