import pickle
from dataclasses import replace
from functools import reduce
from operator import xor

import pyarrow as pa
import pytest

from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import BatchBolt, DataFrameBolt
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout
from kafka_tx.topology.plan.physical import Phase, TaskId
from kafka_tx.topology.run.jobs import FrameJob, TaskJob, addressee
from kafka_tx.topology.run.messages import BatchFailed, Packet, Suspended, TaskReport
from tests.local_engine import GivenBlocks, LocalEngine

ATTEMPT = TransactionAttempt(2, 5)


class Passing(BatchBolt):
    fields = "n int"

    def prepare(self, context, collector):
        self.collector = collector

    def execute(self, row):
        self.collector.emit((row.n,))


def a_plan():
    """spout[2] → a[3] → b[2], and straight from the spout to the driver: total."""
    spout = MemoryTransactionalSpout({0: [(1,)]}, "n int", 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout, 2)
    builder.set_bolt("a", Passing, 3).all_grouping("spout")
    builder.set_bolt("b", Passing, 2).fields_grouping("a", ["n"])
    builder.set_bolt("b2", Passing, 2).fields_grouping("spout", ["n"])
    builder.set_committer_bolt("total", Passing).global_grouping("spout")
    return builder.build().plan


@pytest.fixture
def job():
    plan = a_plan()
    return TaskJob(
        plan,
        Phase.PROCESSING,
        plan.processing[:3],
        ATTEMPT,
        {"spout": GivenBlocks(([(1,)], [(2,)]))},
    )


def test_a_job_tells_how_many_partitions_its_waves_have(job):
    assert job.partitions == [2, 5, 2]


def test_packets_go_to_the_partition_of_their_task(job):
    sent = [
        (partition, addressee(job.plan, message))
        for partition, message in job.run_partition(0, 0, [])
        if isinstance(message, Packet) and message.target != "total"
    ]

    assert sent[:3] == [(n, TaskId("a", n)) for n in range(3)]
    ((partition, task),) = sent[3:]
    assert task is not None
    assert partition == 3 + task.task
    assert task.stage == "b2"


def test_what_is_not_for_the_next_wave_passes_through_it(job):
    far = Packet("total", 0, "spout", "default", [(9,)])
    near = Packet("a", 1, "spout", "default", [(7,)])

    out = list(job.run_partition(1, 1, [far, near]))

    assert (1, far) in out
    assert next(m for _, m in out if isinstance(m, TaskReport)).task == TaskId("a", 1)
    to_b = [m for _, m in out if isinstance(m, Packet) and m.target == "b"]
    assert [m.block for m in to_b] == [[(7,)]]


def test_after_the_last_wave_everything_is_for_the_driver(job):
    far = Packet("total", 0, "spout", "default", [(9,)])

    assert {partition for partition, _ in job.run_partition(2, 1, [far])} == {0}


def test_partitions_are_shipped_without_the_inbox():
    plan = a_plan()
    inbox = tuple(Packet("a", n % 3, "spout", "default", [(n,)] * 99) for n in range(9))
    job = TaskJob(plan, Phase.PROCESSING, plan.processing[1:2], ATTEMPT, inbox=inbox)

    assert len(pickle.dumps(job.shipped())) < 6_000
    assert [len(messages) for messages in job.first()] == [3, 3, 3, 0, 0]


def test_what_is_for_later_waves_enters_with_the_first():
    plan = a_plan()
    late = Suspended(TaskId("b", 1), {})
    job = TaskJob(plan, Phase.COMMIT, plan.processing[1:3], ATTEMPT, inbox=(late,))

    first = job.first()

    assert [late] in first
    assert sum(map(len, first)) == 1


def test_the_driver_is_nobodys_addressee():
    failed = BatchFailed(ATTEMPT, "a", 0, "no")

    assert addressee(a_plan(), failed) is None


# --- DataFrame stages ---


def twice(table):
    return pa.concat_tables([table, table])


def a_frame_plan():
    spout = MemoryTransactionalSpout({0: [(1,)]}, "n int", 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout, 2)
    builder.set_bolt("f", DataFrameBolt(twice, "n bigint")).shuffle_grouping("spout")
    builder.set_bolt("g", DataFrameBolt(twice, "n bigint")).shuffle_grouping("f")
    builder.set_bolt("rows", Passing, 2).fields_grouping("f", ["n"])
    builder.set_bolt("end", Passing).global_grouping("g")
    return builder.build().plan


def run(job):
    return list(job.run(lambda table: table, lambda frame, names: frame.select(names)))


def test_a_frame_stage_emits_what_others_read_with_the_declared_types():
    plan = a_frame_plan()
    block = pa.RecordBatch.from_pydict({"n": pa.array([1, 2], pa.int32())})
    packet = Packet("f", 0, "spout", "default", block)

    *messages, report = run(FrameJob(plan, plan.stages["f"], ATTEMPT, (packet,)))

    rows = sorted(
        n for m in messages if m.target == "rows" for n in m.block["n"].to_pylist()
    )
    assert rows == [1, 1, 2, 2]
    ends = [m for m in messages if m.target == "end"]
    assert [m.block.num_rows for m in ends] == [8]
    assert ends[0].block.schema.types == [pa.int64()]
    assert report.packets == reduce(xor, (m.id for m in messages), packet.id)


def test_a_frame_stage_without_rows_has_a_typed_empty_frame():
    plan = a_frame_plan()
    seen = []

    def to_frame(table):
        seen.append(table)
        return table

    job = FrameJob(plan, plan.stages["f"], ATTEMPT)
    (report,) = job.run(to_frame, lambda frame, names: frame.select(names))

    assert isinstance(report, TaskReport)
    assert report.packets == 0
    assert seen[0].schema.names == ["tx", "n"]
    assert seen[0].num_rows == 0
    assert seen[0].column("n").num_chunks == 1  # Spark refuses a column without any


def test_tasks_that_run_together_tell_the_driver_what_they_tell_apart(job):
    far = Packet("total", 0, "spout", "default", [(9,)])
    apart = LocalEngine().run_tasks(replace(job, inbox=(far,)))
    together = replace(job, inbox=(far,), is_together=True)

    assert together.partitions == [1]
    assert together.first() == [[far]]
    sent = list(together.run_partition(0, 0, [far]))

    assert {partition for partition, _ in sent} == {0}
    told = [message for _, message in sent]
    for facts in (_blocks_of, _tasks_of):
        assert facts(told) == facts(apart) != []


def _blocks_of(messages):
    return sorted(str(m.block) for m in messages if isinstance(m, Packet))


def _tasks_of(messages):
    return sorted(str(m.task) for m in messages if isinstance(m, TaskReport))


def test_a_job_knows_its_rows_if_all_its_sources_know_them(job):
    assert job.most_rows is None
    assert replace(job, reads={}).most_rows is None
    assert replace(job, reads={"spout": [1, 2], "other": [3]}).most_rows == 3
    assert (
        replace(job, reads={"spout": [1], "other": GivenBlocks(())}).most_rows is None
    )
