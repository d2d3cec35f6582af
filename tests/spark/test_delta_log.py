"""What a program remembers of the log of a Delta table."""

from unittest.mock import Mock

from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.sinks import delta
from kafka_tx.spark.sinks.delta import DeltaAppend, Found


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

    def _commit_info(self, _, version):
        self.between()
        return {"version": version}

    def _commit(self, info, version):
        return Found(TransactionAttempt(version, 0, numbering="n"), version)

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
