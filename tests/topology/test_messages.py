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
        TaskReport(TASK, (Emitted("count", 7),), {"0": {"records": 7}}, 2**63 + 1),
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


@pytest.mark.parametrize(
    "block", [[("a", 1)], pa.RecordBatch.from_pydict({"word": ["a"], "n": [1]})]
)
def test_a_packet_keeps_its_id_on_the_way_and_each_has_its_own(block):
    one, other = (Packet("count", 1, "split", "default", block) for _ in range(2))

    assert one.id != other.id
    assert pickle.loads(pickle.dumps(one)).id == one.id


def test_a_failure_reads_as_a_sentence():
    failed = BatchFailed(ATTEMPT, "count", 1, "service is down")

    assert str(failed) == "component 'count', task 1: service is down"
