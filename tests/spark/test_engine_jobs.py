"""With a stand-in for Spark's context: how many partitions its jobs have."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple
from unittest.mock import MagicMock

import pytest

from kafka_tx.errors import FormatError, TransactionError
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.topologies import engine
from kafka_tx.spark.topologies.engine import SparkEngine
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.spark.versions.job_failures import JobLostError
from kafka_tx.topology.declare.bolts import BatchBolt
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout
from kafka_tx.topology.plan.physical import Phase
from kafka_tx.topology.run.jobs import TaskJob
from kafka_tx.topology.run.messages import BatchStopped


class Keep(BatchBolt):
    def execute(self, row):
        pass


@pytest.fixture
def job():
    spout = MemoryTransactionalSpout([[(1,)]], "n bigint", 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout, 4)
    builder.set_bolt("keep", Keep, 3).fields_grouping("spout", ["n"])
    plan = builder.build(dumps=lambda _: b"N.").plan
    reads = {"spout": [0] * 200}
    attempt = TransactionAttempt(1, 1)
    return TaskJob(plan, Phase.PROCESSING, plan.processing, attempt, reads)


class Jobs:
    """Runs jobs that take ``took_s`` each, on a clock that only they move."""

    def __init__(self, job, replace_in):
        self.now_s, self.took_s, self.fails = 0.0, 0.0, False
        self.ended, self.said = 4, []
        replace_in(engine, "time", monotonic=lambda: self.now_s)
        self._context = MagicMock()
        self._context.getConf.return_value.get = {}.get
        rdd = self._context.parallelize.return_value
        rdd.mapPartitionsWithIndex.return_value = rdd
        rdd.partitionBy.return_value = rdd
        rdd.collect.side_effect = self._collect
        self._rdd = rdd
        self._engine = SparkEngine(MagicMock(sparkContext=self._context), job.plan)

    def _collect(self):
        self.now_s += self.took_s
        if self.fails:
            raise OSError("cancelled")
        return [*self.said, *[(0, None)] * self.ended]

    def waves(self, job):
        """How many waves a job had."""
        before = self._rdd.mapPartitionsWithIndex.call_count
        self._engine.run_tasks(job)
        return self._rdd.mapPartitionsWithIndex.call_count - before

    def messages(self, job):
        return self._engine.run_tasks(job)

    def close(self):
        self._engine.close()

    @property
    def widths(self):
        return {call.args[1] for call in self._context.parallelize.call_args_list}


@pytest.fixture
def run(replace_in):
    return partial(Jobs, replace_in=replace_in)


def test_few_rows_are_processed_by_one_task_without_an_exchange(job, run):
    jobs = run(job)

    assert jobs.waves(job) == 1
    assert jobs.widths == {1}


class Named(NamedTuple):
    """A source of a user's: its length says nothing about rows."""

    path: str


@pytest.mark.parametrize("reads", [{"spout": [0] * 201}, {}, {"spout": Named("x")}])
def test_more_rows_and_unknown_ones_have_all_their_tasks(job, run, reads):
    jobs = run(job)

    assert jobs.waves(replace(job, reads=reads)) == 2
    assert jobs.widths == {4}


def test_a_commit_phase_has_all_its_tasks(job, run):
    jobs = run(job)

    assert jobs.waves(replace(job, phase=Phase.COMMIT)) == 2
    jobs.close()


@pytest.mark.parametrize(("ended", "is_lost"), [(3, False), (2, True), (0, True)])
def test_results_that_end_before_those_of_a_task_are_a_lost_job(
    job, run, ended, is_lost
):
    """A JVM that ends meanwhile ends what it sends, and Spark takes it for all."""
    jobs = run(job)
    jobs.ended = ended

    with pytest.raises(JobLostError, match="all results") if is_lost else nullcontext():
        jobs.waves(replace(job, phase=Phase.COMMIT))
    jobs.close()


def test_workers_of_another_version_are_told_of_though_they_end_with_that(job, run):
    """A lost job would be tried again, for ever."""
    jobs = run(job)
    stopped = BatchStopped(job.attempt, FormatError("of another version"))
    jobs.ended, jobs.said = 0, [(0, stopped)]

    assert jobs.messages(replace(job, phase=Phase.COMMIT)) == [stopped]
    jobs.close()


@pytest.mark.parametrize("fails", [False, True])
def test_after_a_slow_job_tasks_run_side_by_side_for_a_while(job, run, fails):
    jobs = run(job)
    jobs.took_s, jobs.fails = 0.26, fails
    with pytest.raises(TransactionError) if fails else nullcontext():
        jobs.waves(job)
    assert jobs.widths == {1}
    jobs.took_s, jobs.fails = 0.0, False

    assert [jobs.waves(job) for _ in range(22)] == [2] * 20 + [1] * 2


def test_if_more_tasks_make_a_slow_job_no_quicker_the_next_ones_run_as_one_task(
    job, run
):
    jobs = run(job)
    jobs.took_s = 0.26
    jobs.waves(job)
    jobs.took_s = 0.3

    assert jobs.waves(job) == 2
    assert [jobs.waves(job) for _ in range(3)] == [1] * 3
    jobs.took_s = 0.0
    assert [jobs.waves(job) for _ in range(17)] == [1] * 17
    jobs.took_s = 0.26
    assert [jobs.waves(job) for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("fails", [False, True])
def test_large_reads_are_removed_after_their_job(job, run, monkeypatch, fails):
    """PySpark would leave a file of them for each batch."""
    monkeypatch.setattr(engine, "_LARGE", 1 << 16)
    jobs = run(job)
    jobs.fails = fails
    large = replace(job, reads={"spout": [bytes(1 << 16)]})

    with pytest.raises(TransactionError) if fails else nullcontext():
        jobs.messages(large)

    shipped = jobs._context.broadcast
    shipped.assert_called_once()
    shipped.return_value.destroy.assert_called_once()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_large_plan_is_removed_unless_its_session_is_gone(
    job, monkeypatch, is_stopped
):
    """A new session has a broadcast of the same number, perhaps its plan."""
    monkeypatch.setattr(engine, "_LARGE", 1)
    monkeypatch.setattr(engine, "is_stopped", lambda _: is_stopped)
    context = MagicMock()
    context.getConf.return_value.get = {}.get
    made = SparkEngine(MagicMock(sparkContext=context), job.plan)
    unused = SparkEngine(MagicMock(sparkContext=context), job.plan)
    made._shipped_plan()
    made._shipped_plan()

    made.close()
    unused.close()

    context.broadcast.assert_called_once()
    assert context.broadcast.return_value.destroy.called is not is_stopped
