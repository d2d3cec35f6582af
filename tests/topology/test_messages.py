import pickle

import pyarrow as pa
import pytest

from kafka_tx.errors import ComponentError
from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.plan.physical import TaskId
from kafka_tx.topology.run.messages import (
    BatchFailed,
    BatchStopped,
    Emitted,
    Packet,
    Suspended,
    TaskReport,
)

ATTEMPT = TransactionAttempt(3, 9)
TASK = TaskId("count", 1)


@pytest.mark.parametrize(
    "message",
    [
        Packet("count", 1, "split", "default", [("a", 1), ("b", None)]),
        Suspended(TASK, {"sum": b"state"}),
        TaskReport(TASK, (Emitted("count", 7),), {"0": {"records": 7}}),
        BatchFailed(ATTEMPT, "count", 1, "service is down"),
    ],
)
def test_messages_survive_travelling(message):
    assert pickle.loads(pickle.dumps(message)) == message


def test_an_error_travels_with_its_fields():
    error = ComponentError("boom", component="count", task=1, txid=3)

    again = pickle.loads(pickle.dumps(BatchStopped(ATTEMPT, error)))

    assert isinstance(again.error, ComponentError)
    assert (again.error.component, again.error.txid) == ("count", 3)


def test_a_slice_of_a_record_batch_travels_without_the_rest():
    whole = pa.RecordBatch.from_pydict({"n": list(range(100_000))})
    packet = Packet("count", 0, "split", "default", whole.slice(500, 3))

    data = pickle.dumps(packet)

    assert len(data) < 2_000
    assert pickle.loads(data).block.to_pydict() == {"n": [500, 501, 502]}


def test_a_failure_reads_as_a_sentence():
    failed = BatchFailed(ATTEMPT, "count", 1, "service is down")

    assert str(failed) == "component 'count', task 1: service is down"
