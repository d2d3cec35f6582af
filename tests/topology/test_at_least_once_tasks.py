import pickle

import numpy as np
import pyarrow as pa
import pytest

from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.at_least_once.topology import TopologyBuilder
from kafka_tx.topology.at_least_once.lineage import Lineage
from kafka_tx.topology.at_least_once.records import AtLeastOncePacket
from kafka_tx.topology.at_least_once.tasks import AtLeastOnceTask
from kafka_tx.topology.declare.bolts import BasicBolt
from kafka_tx.topology.plan.physical import TaskId
from kafka_tx.topology.rows.fields import Fields
from kafka_tx.topology.run.messages import Emitted, TreeReport
from tests.local_engine import GivenRecords

ATTEMPT = TransactionAttempt(3, 1)
SPOUT = TaskId("spout", 0)
SINK = TaskId("sink", 0)

log: list = []


class Spout:
    fields = ("n",)

    def empty_chunk(self):
        return GivenRecords(())


class Sink(BasicBolt):
    def prepare(self, context):
        log.append((context.component, context.task, context.tasks, context.attempt))

    def execute(self, row, collector):
        log.append(row.n)

    def cleanup(self):
        log.append("cleaned up")


@pytest.fixture
def plan():
    log.clear()
    builder = TopologyBuilder("t")
    builder.set_spout("spout", Spout())
    builder.set_bolt("sink", Sink, 2).fields_grouping("spout", ["n"])
    return builder.build().plan


def packets_of(plan, attempt=ATTEMPT, rows=20):
    source = GivenRecords(([(n,) for n in range(rows)],))
    *packets, report = AtLeastOnceTask(plan, SPOUT, attempt).process(source=source)
    return packets, report


def test_packets_that_leave_a_task_are_those_that_arrive(plan):
    packets, begun = packets_of(plan)

    reports = [
        message
        for task in range(2)
        for message in AtLeastOnceTask(plan, TaskId("sink", task), ATTEMPT).process(
            pickle.loads(pickle.dumps(each)) for each in packets if each.task == task
        )
        if isinstance(message, TreeReport)
    ]

    assert len(packets) == 2
    assert begun.begun == ((0, 20),)
    assert begun.packets == reports[0].packets ^ reports[1].packets != 0


def test_a_task_that_runs_again_sends_other_packets(plan):
    ids = [packet.id for _ in range(2) for packet in packets_of(plan)[0]]

    assert len(set(ids)) == 4


def test_a_bolt_is_told_where_it_runs_and_cleaned_up(plan):
    packet = AtLeastOncePacket(
        "sink",
        1,
        "spout",
        "default",
        [(7,)],
        lineage=Lineage(np.array([5])),
    )

    (report,) = AtLeastOnceTask(plan, TaskId("sink", 1), ATTEMPT).process([packet])

    assert log == [("sink", 1, 2, ATTEMPT), 7, "cleaned up"]
    assert isinstance(report, TreeReport)
    assert report.emitted == (Emitted("sink", 0),)


def test_an_error_of_the_input_is_not_blamed_on_a_bolt(plan):
    def broken():
        yield from ()
        raise OSError("socket closed")

    with pytest.raises(OSError, match="socket closed"):
        list(AtLeastOnceTask(plan, SINK, ATTEMPT).process(broken()))
    assert log[-1] == "cleaned up"


def test_an_interrupted_task_cleans_up(plan):
    def interrupted():
        yield from ()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(AtLeastOnceTask(plan, SINK, ATTEMPT).process(interrupted()))
    assert log[-1] == "cleaned up"


def test_rows_that_are_more_than_a_turn_all_arrive(plan):
    packets, begun = packets_of(plan, rows=10_000)

    assert sum(len(packet.block) for packet in packets) == 10_000
    assert begun.begun == ((0, 10_000),)
    for packet in packets:
        list(
            AtLeastOnceTask(plan, TaskId("sink", packet.task), ATTEMPT).process(
                [packet]
            )
        )
    assert sorted(n for n in log if isinstance(n, int)) == list(range(10_000))


class Typed:
    fields = Fields.parse("n int")

    def empty_chunk(self):
        return GivenRecords(())


@pytest.mark.parametrize("count", [1, 20])
def test_arrow_rows_keep_their_schema_on_their_way_to_other_tasks(count):
    schema = pa.schema([pa.field("n", pa.int32(), nullable=False)])
    numbers = pa.array(range(count), pa.int32())
    batch = pa.RecordBatch.from_arrays([numbers], schema=schema)
    builder = TopologyBuilder("t")
    builder.set_spout("spout", Typed())
    builder.set_bolt("sink", Sink, 2).fields_grouping("spout", ["n"])
    task = AtLeastOnceTask(builder.build().plan, SPOUT, ATTEMPT)

    sent = list(task.process(source=GivenRecords((batch,))))

    packets = [message for message in sent if isinstance(message, AtLeastOncePacket)]
    found = []
    for packet in packets:
        assert isinstance(packet.block, pa.RecordBatch)
        assert packet.block.schema.equals(schema)
        assert packet.block.column("n").to_pylist() == packet.lineage.roots.tolist()
        found += packet.lineage.roots.tolist()
    assert sorted(found) == list(range(count))
