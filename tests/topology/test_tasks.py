from collections.abc import Generator
from functools import reduce
from operator import xor

import pytest

from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import BasicBolt, BatchBolt
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout
from kafka_tx.topology.plan.physical import TaskId
from kafka_tx.topology.run.messages import Emitted, Packet, TaskReport
from kafka_tx.topology.run.tasks import Task
from tests.local_engine import GivenBlocks

ATTEMPT = TransactionAttempt(2, 5)

log: list = []


@pytest.fixture(autouse=True)
def _empty_log():
    log.clear()


class Explode(BasicBolt):
    fields = ("n",)

    def execute(self, row, collector):
        for _ in range(row.n):
            collector.emit((row.n,))


class Largest(BatchBolt):
    fields = ("n",)

    def prepare(self, context, collector):
        log.append(context)
        self.largest = 0

    def execute(self, row):
        self.largest = max(self.largest, row.n)

    def finish_batch(self):
        log.append(f"finished with {self.largest}")

    def cleanup(self):
        log.append("cleaned up")


@pytest.fixture
def plan():
    spout = MemoryTransactionalSpout({0: [(1,)]}, ("n",), 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout, 2)
    builder.set_bolt("explode", Explode).shuffle_grouping("spout")
    builder.set_bolt("largest", Largest, 3).fields_grouping("explode", ["n"])
    return builder.build().plan


def test_packets_leave_while_the_task_still_reads(plan):
    blocks = GivenBlocks(([(9_000,)], [(1,)] * 4, [(9_000,)], [(1,)], [(9_000,)]))
    task = Task(plan, TaskId("spout", 0), ATTEMPT)

    messages = task.process(source=blocks, suspend=True)

    first = next(messages)
    assert isinstance(first, Packet)
    assert (first.target, len(first.block)) == ("largest", 9_000)
    assert sum(isinstance(m, Packet) for m in messages) == 2


def test_a_task_reports_what_it_emitted_and_found_out(plan):
    task = Task(plan, TaskId("spout", 0), ATTEMPT)

    *sent, report = task.process(source=GivenBlocks(([(3,), (4,)],)), suspend=True)

    ids = [packet.id for packet in sent if isinstance(packet, Packet)]
    assert report == TaskReport(
        TaskId("spout", 0),
        (Emitted("spout", 2), Emitted("explode", 7)),
        {"task 0": {"blocks": 1}},
        packets=reduce(xor, ids),
    )


def test_a_bolt_is_told_where_it_runs(plan):
    task = Task(plan, TaskId("largest", 2), ATTEMPT)

    list(task.process(suspend=True))

    context = log[0]
    assert (context.component, context.task, context.tasks) == ("largest", 2, 3)
    assert context.attempt == ATTEMPT
    assert context.settings == {}


def test_every_attempt_has_instances_of_its_own(plan):
    packet = Packet("largest", 0, "explode", "default", [(7,)])
    first = Task(plan, TaskId("largest", 0), ATTEMPT)
    second = Task(plan, TaskId("largest", 0), TransactionAttempt(2, 6))

    list(first.process([packet], suspend=True))
    list(second.process([], suspend=True))

    assert [line for line in log if isinstance(line, str)] == [
        "finished with 7",
        "cleaned up",
        "finished with 0",
        "cleaned up",
    ]


def test_an_error_of_the_input_is_not_blamed_on_a_bolt(plan):
    def broken():
        yield Packet("largest", 0, "explode", "default", [(7,)])
        raise OSError("socket closed")

    task = Task(plan, TaskId("largest", 0), ATTEMPT)

    with pytest.raises(OSError, match="socket closed"):
        list(task.process(broken(), suspend=True))
    assert log[-1] == "cleaned up"


def test_a_task_that_is_interrupted_cleans_up(plan):
    packet = Packet("largest", 0, "explode", "default", [(7,)])
    task = Task(plan, TaskId("largest", 0), ATTEMPT)

    def interrupted():
        yield packet
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(task.process(interrupted(), suspend=True))
    assert log[-1] == "cleaned up"


def test_a_task_whose_reader_goes_away_cleans_up():
    spout = MemoryTransactionalSpout({0: [(1,)]}, ("n",), 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout, 2)
    builder.set_bolt("explode", Explode).shuffle_grouping("spout")
    builder.set_bolt("near", Largest, 2).shuffle_grouping("spout")
    builder.set_bolt("far", Largest).global_grouping("explode")
    task = Task(builder.build().plan, TaskId("spout", 0), ATTEMPT)

    messages = task.process(source=GivenBlocks(([(9_000,)], [(1,)])), suspend=True)
    next(messages)
    assert isinstance(messages, Generator)
    messages.close()

    assert log[1:] == ["cleaned up"]
