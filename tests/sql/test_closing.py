"""Connections that a thread uses while another one closes the database."""

import logging
import sqlite3

import pytest
import sqlalchemy as sa
from sqlalchemy import event, exc

from kafka_tx.errors import StateUnavailableError
from kafka_tx.sql.database import Database, Pool

TABLES = sa.MetaData()


@pytest.fixture
def database(tmp_path):
    made = Database(f"sqlite:///{tmp_path}/state.db")
    yield made
    made.close()


def close(database):
    database.close()


def lose(database):
    """As if it did not answer in mid-call."""
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorname = "SQLITE_BUSY"
    with pytest.raises(StateUnavailableError), database.reading(TABLES):
        raise exc.OperationalError("SELECT 1", {}, busy)


@pytest.mark.parametrize("happens", [close, lose])
def test_a_connection_in_use_is_closed_when_it_is_given_back(database, happens):
    closed = []
    with database.reading(TABLES) as connection:
        event.listen(connection.engine, "close", lambda *_: closed.append(1))
        happens(database)
        connection.execute(sa.text("SELECT 1"))
        others = len(closed)

    assert len(closed) == others + 1
    with database.reading(TABLES) as connection:
        assert connection.execute(sa.text("SELECT 1")).scalar() == 1


def test_a_pool_logs_in_sqlalchemys_name(database, caplog):
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.INFO, "sqlalchemy.pool")

    lose(database)

    told = [each for each in caplog.records if each.getMessage().startswith("Pool")]
    assert {each.name.split(".")[0] for each in told} == {"sqlalchemy"}


def test_connections_of_later_calls_are_kept(database):
    lose(database)
    with database.reading(TABLES) as connection:
        first = connection.connection.dbapi_connection
    with database.reading(TABLES) as connection:
        assert connection.connection.dbapi_connection is first


def test_connections_can_be_left_while_one_is_given_back(database):
    closed = []
    pool = Pool(database._here())
    with pool.engine.connect():
        event.listen(pool.engine, "checkin", lambda *_: pool.leave_connections())
        event.listen(pool.engine, "close", lambda *_: closed.append(1))

    assert len(closed) == 1
