"""Which run of a query is asked for the number of a batch."""

from types import SimpleNamespace

from kafka_tx.spark.queries import foreach
from kafka_tx.spark.versions import jvm
from kafka_tx.spark.versions.names import QUERY_ID, RUN_ID


def test_each_run_of_a_query_is_asked_itself(monkeypatch):
    """Its id stays in a new session, where the former run may not have ended yet."""
    monkeypatch.setattr(jvm, "source_options", lambda *_: {})
    monkeypatch.setattr(jvm, "RunningQuery", lambda *_: None)
    monkeypatch.setattr(foreach, "_Run", lambda *_: SimpleNamespace(tries=object()))
    properties = {QUERY_ID: "query", RUN_ID: "one"}
    context = SimpleNamespace(getLocalProperty=properties.get)
    df = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    made = foreach._ForEach(print, None)

    first = made._numbers(df)

    assert made._numbers(df) is first
    properties[RUN_ID] = "two"
    assert made._numbers(df) is not first
