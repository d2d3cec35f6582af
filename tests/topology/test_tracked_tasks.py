import pickle

import numpy as np
import pytest

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.builder import TopologyBuilder
from kafka_tx.topology.declare.bolts import BasicBolt
from kafka_tx.topology.plan.physical import TaskId
from kafka_tx.topology.run.messages import Emitted, TreeReport
from kafka_tx.topology.tracked.lineage import Lineage
from kafka_tx.topology.tracked.records import RecordPacket
from kafka_tx.topology.tracked.tracked_tasks import RecordTask
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
    *packets, report = RecordTask(plan, SPOUT, attempt).process(source=source)
    return packets, report


def test_edges_that_leave_a_task_are_those_that_arrive(plan):
    packets, begun = packets_of(plan)

    reports = [
        message
        for packet in packets
        for message in RecordTask(plan, TaskId("sink", packet.task), ATTEMPT).process(
            [pickle.loads(pickle.dumps(packet))]
        )
    ]

    sent = dict(zip(begun.begun.tolist(), begun.begun_edges.tolist(), strict=True))
    acked = {
        root: edge
        for report in reports
        if isinstance(report, TreeReport)
        for root, edge in zip(report.acked, report.acked_edges, strict=True)
    }
    assert len(sent) == 20
    assert acked == sent


def test_edges_differ_from_task_to_task_and_from_try_to_try(plan):
    attempts = [ATTEMPT, TransactionAttempt(3, 2), TransactionAttempt(4, 1)]

    edges = [
        edge
        for attempt in attempts
        for packet in packets_of(plan, attempt)[0]
        for edge in packet.edges.tolist()
    ]

    assert len(set(edges)) == len(edges) == 60


def test_a_bolt_is_told_where_it_runs_and_cleaned_up(plan):
    packet = RecordPacket(
        "sink",
        1,
        "spout",
        "default",
        [(7,)],
        Lineage(np.array([5])),
        np.ones(1, np.uint64),
    )

    (report,) = RecordTask(plan, TaskId("sink", 1), ATTEMPT).process([packet])

    assert log == [("sink", 1, 2, ATTEMPT), 7, "cleaned up"]
    assert isinstance(report, TreeReport)
    assert report.emitted == (Emitted("sink", 0),)


def test_an_error_of_the_input_is_not_blamed_on_a_bolt(plan):
    def broken():
        yield from ()
        raise OSError("socket closed")

    with pytest.raises(OSError, match="socket closed"):
        list(RecordTask(plan, SINK, ATTEMPT).process(broken()))
    assert log[-1] == "cleaned up"


def test_an_interrupted_task_cleans_up(plan):
    def interrupted():
        yield from ()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(RecordTask(plan, SINK, ATTEMPT).process(interrupted()))
    assert log[-1] == "cleaned up"


def test_rows_that_are_more_than_a_turn_all_arrive(plan):
    packets, begun = packets_of(plan, rows=10_000)

    assert sum(len(packet.block) for packet in packets) == 10_000
    assert len(begun.begun) == 10_000
    for packet in packets:
        list(RecordTask(plan, TaskId("sink", packet.task), ATTEMPT).process([packet]))
    assert sorted(n for n in log if isinstance(n, int)) == list(range(10_000))
