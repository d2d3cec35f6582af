import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from kafka_tx.sql.dialects import upsert

TABLES = sa.MetaData()
COUNTS = sa.Table(
    "counts",
    TABLES,
    sa.Column("id", sa.String(20), primary_key=True),
    sa.Column("word", sa.String(20), primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
)


def row(word, count):
    return {"id": "a", "word": word, "count": count}


@pytest.fixture
def connection():
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        TABLES.create_all(connection)
        yield connection
    engine.dispose()


@pytest.mark.parametrize("dialect", ["sqlite", "some other database"])
def test_rows_are_added_or_overwritten(connection, dialect, monkeypatch):
    monkeypatch.setattr(connection.dialect, "name", dialect)

    upsert(connection, COUNTS, [row("one", 1), row("two", 1)])
    upsert(connection, COUNTS, [row("two", 2), row("three", 2)])
    upsert(connection, COUNTS, [])

    found = connection.execute(sa.select(COUNTS.c.word, COUNTS.c.count)).all()
    assert sorted(found) == [("one", 1), ("three", 2), ("two", 2)]


class Recorder:
    """Keeps the statement instead of carrying it out."""

    def __init__(self, dialect):
        self.dialect = dialect
        self.text = ""

    def execute(self, statement, rows):
        self.text = str(statement.compile(dialect=self.dialect))


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        (mysql.dialect(), "ON DUPLICATE KEY UPDATE"),
        (postgresql.dialect(), "ON CONFLICT (id, word) DO UPDATE"),
    ],
)
def test_a_database_with_a_word_for_it_hears_that_word(dialect, words):
    recorder = Recorder(dialect)

    upsert(recorder, COUNTS, [row("one", 1)])  # type: ignore[arg-type]

    assert words in recorder.text
