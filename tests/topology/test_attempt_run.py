import random
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.errors import ComponentError
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import BasicBolt, BatchBolt
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout
from kafka_tx.topology.plan.physical import TaskId
from kafka_tx.topology.run.attempt_run import Processed, run_commit, run_processing
from kafka_tx.topology.run.messages import (
    BatchFailed,
    BatchStopped,
    Emitted,
    Packet,
    TaskReport,
)
from tests.local_engine import GivenBlocks, LocalEngine

ATTEMPT = TransactionAttempt(2, 5)
FAILED = BatchFailed(ATTEMPT, "a", 0, "first")
STOPPED = BatchStopped(ATTEMPT, ComponentError("boom"))

cleaned: list = []


class Sum(BatchBolt):
    fields = ("n",)

    def execute(self, row):
        pass

    def cleanup(self):
        cleaned.append(self)


@pytest.fixture
def plan():
    cleaned.clear()
    spout = MemoryTransactionalSpout({0: [(1,)]}, ("n",), 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout, 2)
    builder.set_committer_bolt("sum", Sum).global_grouping("spout")
    builder.set_bolt("wide", Sum, 3).fields_grouping("sum", ["n"])
    return builder.build().plan


class BrokenEngine(LocalEngine):
    """Runs the first job only."""

    def run_tasks(self, job):
        if job.phase == "commit":
            raise OSError("cluster is gone")
        return super().run_tasks(job)


def test_an_engine_that_cannot_run_a_job_is_heard_and_the_driver_cleaned_up(plan):
    processed = run_processing(plan, ATTEMPT, GivenBlocks(([(1,)],)), BrokenEngine())

    with pytest.raises(OSError, match="cluster is gone"):
        run_commit(processed, BrokenEngine())
    assert len(cleaned) == 1


def test_a_driver_task_is_cleaned_up_when_processing_cannot_go_on(plan):
    class LosesTheDriver(LocalEngine):
        def run_tasks(self, job):
            raise OSError("no executor")

    with pytest.raises(OSError, match="no executor"):
        run_processing(plan, ATTEMPT, GivenBlocks(()), LosesTheDriver())
    assert cleaned == []


def test_a_failed_attempt_is_never_committed(plan):
    processed = Processed(plan, ATTEMPT, failure=FAILED)

    with pytest.raises(AssertionError):
        run_commit(processed, LocalEngine())


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        ([FAILED, BatchFailed(ATTEMPT, "b", 0, "second")], FAILED),
        ([FAILED, STOPPED], STOPPED),
        ([STOPPED, FAILED], STOPPED),
    ],
)
def test_the_first_failure_counts_but_one_that_stops_counts_more(plan, messages, kept):
    processed = Processed(plan, ATTEMPT)

    processed.accept(messages)

    assert processed.failure is kept


def test_reports_of_all_tasks_add_up(plan):
    processed = Processed(plan, ATTEMPT)

    processed.accept(
        TaskReport(TaskId("spout", n), (Emitted("spout", 4),), {f"p{n}": n}, 0)
        for n in range(2)
    )

    assert processed.emitted == {"spout": 8}
    assert processed.facts == {"p0": 0, "p1": 1}


def test_what_waits_for_a_task_is_taken_once(plan):
    processed = Processed(plan, ATTEMPT)
    packet = Packet("sum", 0, "spout", "default", [(1,)])
    processed.accept([packet])

    assert processed.take([TaskId("sum", 0)]) == (packet,)
    assert processed.take([TaskId("sum", 0)]) == ()


# --- Spark runs a task again ---

committed: list[int] = []


class Scatter(BasicBolt):
    """Sends each row to any task of the next bolt."""

    fields = ("key", "n")

    def execute(self, row, collector):
        collector.emit((random.randrange(1_000), row.n))


class Count(BatchBolt):
    fields = ("rows",)

    def prepare(self, context, collector):
        self.rows, self.collector = 0, collector

    def execute(self, row):
        self.rows += 1

    def finish_batch(self):
        self.collector.emit((self.rows,))


class Total(Count):
    def execute(self, row):
        self.rows += row.rows

    def finish_batch(self):
        committed.append(self.rows)


class RunsAgain(LocalEngine):
    """Runs the tasks of the first wave twice.

    Each task of the second wave gets what each task of the first one sent in one of
    its runs.
    """

    taken: ClassVar[list[list[int]]] = []

    def run_tasks(self, job):
        inbox = job.first()
        runs = [
            [list(job.run_partition(0, task, inbox[task])) for task in range(2)]
            for _ in range(2)
        ]
        return [
            message
            for to, taken in enumerate(self.taken)
            for _, message in job.run_partition(
                1,
                to,
                [m for task in range(2) for t, m in runs[taken[task]][task] if t == to],
            )
        ]


RUN = st.integers(0, 1)
TAKEN = st.lists(st.lists(RUN, min_size=2, max_size=2), min_size=2, max_size=2)


@given(TAKEN)
def test_rows_of_two_runs_of_a_task_are_committed_never(taken):
    committed.clear()
    RunsAgain.taken[:] = taken
    spout = MemoryTransactionalSpout({0: [(1,)]}, ("n",), 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout, 2)
    builder.set_bolt("scatter", Scatter).shuffle_grouping("spout")
    builder.set_bolt("count", Count, 2).fields_grouping("scatter", ["key"])
    builder.set_committer_bolt("total", Total).global_grouping("count")
    blocks = GivenBlocks(([(n,) for n in range(10)], [(n,) for n in range(10)]))

    processed = run_processing(builder.build().plan, ATTEMPT, blocks, RunsAgain())

    if taken[0] == taken[1]:
        run_commit(processed, RunsAgain())
        assert committed == [20]
    else:
        assert isinstance(processed.failure, BatchFailed)
        assert "ran a task again" in str(processed.failure)
