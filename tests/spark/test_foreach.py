"""Which run of a query is asked for the number of a batch."""

from types import SimpleNamespace

import pytest

from kafka_tx.spark.queries import foreach
from kafka_tx.spark.versions import jvm


class Context:
    def getLocalProperty(self, _):  # noqa: N802 - as in Spark
        return "query"


@pytest.fixture
def made(monkeypatch):
    def run(query, tx_id):
        return SimpleNamespace(query=query, tries=object())

    monkeypatch.setattr(jvm, "source_options", lambda *_: {})
    monkeypatch.setattr(foreach, "_Run", run)
    running = SimpleNamespace(is_running=True)
    monkeypatch.setattr(jvm, "RunningQuery", lambda *_: running)
    return foreach._ForEach(print, None), running


def batch(context):
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))


def test_a_run_is_asked_until_it_has_ended(made):
    function, query = made
    df = batch(Context())

    first = function._numbers(df)

    assert function._numbers(df) is first
    query.is_running = False
    assert function._numbers(df) is not first


def test_the_run_of_a_session_that_was_stopped_is_not_asked(made):
    """It may sleep until its next trigger; a query keeps its id in the next session."""
    function, _ = made

    first = function._numbers(batch(Context()))

    assert function._numbers(batch(Context())) is not first
