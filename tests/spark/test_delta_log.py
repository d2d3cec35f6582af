"""What a program remembers of the log of a Delta table."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.sinks import delta, delta_append
from kafka_tx.spark.sinks.delta import DeltaAppend, DeltaStatement, Found
from kafka_tx.spark.sinks.iceberg import IcebergAppend, IcebergStatement


class Reader(DeltaAppend):
    """Of a log whose every version holds the txid of its number."""

    def __init__(self):
        self._name = "sink"
        self.between = lambda: None

    def read(self, version):
        log, snapshot = Mock(), Mock()
        log.dataPath().toString.return_value = "/t"
        snapshot.version.return_value = version
        snapshot.metadata().id.return_value = "id"
        return self._up_to_date(log, snapshot)

    def _read(self, _, version):
        self.between()
        found = Found(TransactionAttempt(version, 0, numbering="n"), version)
        return {"version": version}, found

    def _read_log(self, _, snapshot):
        return delta._Seen(snapshot.version())


def test_a_thread_that_reads_an_older_version_takes_nothing_from_another(monkeypatch):
    monkeypatch.setattr(delta, "_seen", {})
    slow, fast = Reader(), Reader()
    slow.read(0)
    newest = []
    slow.between = lambda: newest.append(fast.read(2))

    older = slow.read(1)

    assert older.last["n"].attempt.txid == 1
    assert newest[0].last["n"].attempt.txid == 2
    assert fast.read(2).last["n"].attempt.txid == 2


STATS = "spark.databricks.delta.stats.collect"


@pytest.mark.parametrize(
    ("kind", "is_known", "conf", "commits"),
    [
        (DeltaStatement, True, {}, True),
        (IcebergStatement, True, {}, True),
        (DeltaAppend, False, {}, True),
        (DeltaAppend, True, {STATS: "false"}, True),
        (DeltaAppend, True, {}, False),
        (IcebergAppend, True, {}, False),
    ],
)
def test_it_is_known_which_sinks_commit_a_batch_without_rows(
    monkeypatch, kind, is_known, conf, commits
):
    monkeypatch.setattr(delta_append, "is_known", lambda _: is_known)
    sink = object.__new__(kind)
    sink._df = SimpleNamespace(isEmpty=lambda: True)
    sink._jvm, sink._spark = None, SimpleNamespace(conf=conf)

    assert sink.has_rows() == commits
