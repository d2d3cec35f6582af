"""What MySQL is told, as text; a server of its kind runs in ``integration``."""

from __future__ import annotations

import itertools
import socket
import time
from contextlib import closing

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.mysql import pymysql
from sqlalchemy.schema import CreateTable

from kafka_tx.errors import StateUnavailableError
from kafka_tx.sql import mysql
from kafka_tx.sql.map_table import map_table
from kafka_tx.sql.maps import MapBatch, forget_removed, revert
from kafka_tx.sql.progress import progress_table
from kafka_tx.sql.store import SqlStore

DIALECT = pymysql.dialect()
KINDS = ("plain map", "transactional map", "opaque map")


class Recorder:
    """A connection that keeps statements instead of carrying them out."""

    dialect = DIALECT

    def __init__(self):
        self.statements: list[str] = []

    def execute(self, statement, *_):
        self.statements.append(str(statement.compile(dialect=DIALECT)))
        return ()

    def exec_driver_sql(self, text, values=()):
        self.statements.append(text % tuple(map(repr, values)))


def created(table):
    return str(CreateTable(table).compile(dialect=DIALECT))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("key", "value"),
    list(itertools.product((str, int, bytes), (int, float, str, bytes))),
)
def test_every_kind_of_map_has_a_table_with_a_key_that_mysql_can_index(
    kind, key, value
):
    to = map_table("counts", kind, key, value)
    text = created(to.table)

    kept = {str: "VARBINARY(1024)", int: "BIGINT", bytes: "VARBINARY(1024)"}[key]
    assert f"`key` {kept}" in text
    assert "PRIMARY KEY (`key`)" in text
    assert "CHECK" not in text


def test_mysql_which_has_no_partial_indexes_is_asked_for_none():
    statements: list[str] = []
    engine = sa.create_mock_engine(
        "mysql+pymysql://", lambda sql, *_: statements.append(str(sql))
    )

    map_table("counts", "opaque map", str, int).metadata.create_all(
        engine, checkfirst=False
    )

    assert [text.split()[:2] for text in statements] == [["CREATE", "TABLE"]]


def test_progress_is_kept_by_names_that_are_compared_exactly():
    text = created(progress_table(sa.MetaData()))

    assert "name VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin" in text


def merged(kind, reducer="sum"):
    recorder = Recorder()
    to = map_table("counts", kind, str, int)
    batch = MapBatch(recorder, to, 7)  # type: ignore[arg-type]
    batch.update(pa.table({"key": ["a", "b"], "value": [1, 2]}), reducer)
    (statement,) = recorder.statements
    return statement


def test_rows_are_merged_by_one_statement():
    assert merged("transactional map") == (
        "INSERT INTO `counts` (`key`, `value`, `txid`) VALUES ('a', 1, 7), ('b', 2, 7)"
        " ON DUPLICATE KEY UPDATE `value` = `counts`.`value` + VALUES(`value`),"
        " `txid` = VALUES(`txid`)"
    )


def test_the_previous_value_is_kept_before_the_others_change():
    # MySQL assigns from left to right, and later assignments see earlier ones
    changes = merged("opaque map").partition(" ON DUPLICATE KEY UPDATE ")[2]

    assert changes == (
        "`previous` = CASE WHEN `counts`.`txid` = VALUES(`txid`)"
        " THEN `counts`.`previous` ELSE `counts`.`value` END,"
        " `value` = coalesce(`counts`.`value` + VALUES(`value`), VALUES(`value`)),"
        " `txid` = VALUES(`txid`)"
    )


@pytest.mark.parametrize(
    ("reducer", "words"),
    [("max", "greatest("), ("min", "least("), ("last", "`value` = VALUES(`value`)")],
)
def test_reducers_have_words_of_mysql(reducer, words):
    assert words in merged("transactional map", reducer)


def test_an_opaque_replay_is_taken_back_with_mysqls_words():
    recorder = Recorder()
    to = map_table("counts", "opaque map", str, int)

    revert(recorder, to, 7)  # type: ignore[arg-type]
    forget_removed(recorder, to)  # type: ignore[arg-type]

    assert recorder.statements == [
        "DELETE FROM `counts` WHERE `counts`.txid = %s AND `counts`.previous IS NULL",
        "UPDATE `counts` SET value=`counts`.previous, txid=%s WHERE `counts`.txid = %s",
        "DELETE FROM `counts` WHERE `counts`.value IS NULL",
    ]


def test_a_server_that_accepts_and_says_nothing_is_given_up(monkeypatch):
    """One that is stopped, or behind a proxy: its kernel keeps the connection alive."""
    monkeypatch.setattr(mysql, "HANDSHAKE_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"mysql+pymysql://u:p@127.0.0.1:{port}/d?retry_for_ms=0"
        began = time.monotonic()

        store = SqlStore(url, "orders")
        with closing(store), pytest.raises(StateUnavailableError):
            store.read()

    assert time.monotonic() - began < 30
