import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import make_url

from kafka_tx.errors import StateError, StateUnavailableError
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
        (failed(exc.OperationalError, 1213, "Deadlock found"), MYSQL),
        (failed(exc.OperationalError, 2006, "gone away"), MYSQL),
    ],
)
def test_what_may_pass_is_worth_another_try(error, url):
    translated = translate(error, url)

    assert isinstance(translated, StateUnavailableError)
    assert "db.example" in str(translated)


@pytest.mark.parametrize(
    ("error", "url"),
    [
        (failed(exc.OperationalError, "no password", sqlstate="28P01"), URL),
        (failed(exc.OperationalError, "no database", sqlstate="3D000"), URL),
        (failed(exc.ProgrammingError, "no right", sqlstate="42501"), URL),
        (failed(exc.OperationalError, "FATAL: password authentication failed"), URL),
        (failed(exc.OperationalError, 1045, "Access denied"), MYSQL),
    ],
)
def test_what_the_database_refuses_says_what_to_check(error, url):
    translated = translate(error, url)

    assert type(translated) is StateError
    assert "refuses" in str(translated)
    assert "Check user, password" in str(translated)


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
