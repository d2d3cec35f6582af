"""What Spark calls in the partitions of a job, called without Spark."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark import cloudpickle

from kafka_tx.errors import ComponentError
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.at_least_once.topology import TopologyBuilder
from kafka_tx.spark.topologies import engine
from kafka_tx.spark.topologies.engine import PartitionRun
from kafka_tx.stored import VERSION
from kafka_tx.topology.at_least_once.chunks import AtLeastOnceJob, Chunk
from kafka_tx.topology.declare.bolts import BasicBolt
from kafka_tx.topology.declare.graph import Placement
from kafka_tx.topology.plan.physical import Phase
from kafka_tx.topology.run.messages import BatchStopped, TreeReport
from tests.local_engine import GivenRecords, WordSpout

ATTEMPT = TransactionAttempt(4, 1)


class Work(BasicBolt):
    def execute(self, row, collector):
        pass


NO_PICKLE = b"no pickle"
ENDED = 0, None
"""The last word of each partition of the last wave."""


def plan():
    builder = TopologyBuilder("job")
    builder.set_spout("spout", WordSpout(), 2)
    builder.set_bolt("work", Work, 2).fields_grouping("spout", ["word"])
    return builder.build(cloudpickle.dumps).plan


def run(made, wave, partition, given=(), records=b"", version=VERSION):
    waves = tuple(w for w in made.processing if w.placement is Placement.EXECUTORS)
    make = AtLeastOnceJob(made, Phase.PROCESSING, waves, ATTEMPT).shipped()
    work = cloudpickle.dumps(made), ATTEMPT, make, records, wave
    called = PartitionRun(version, *work)
    found = list(pickle.loads(pickle.dumps(called))(partition, iter(given)))
    is_whole = version == VERSION and records != NO_PICKLE
    assert found.count(ENDED) == (is_whole and wave == len(waves) - 1)
    return [each for each in found if each != ENDED]


@pytest.mark.parametrize("wave", [0, 1])
def test_a_task_of_another_version_than_the_driver_does_nothing_and_takes_all(wave):
    given = iter([(0, "a"), (0, "b")])

    ((partition, found),) = run(plan(), wave, 1, given, b"not read", version="9.9")

    assert partition == 0
    assert isinstance(found, BatchStopped)
    assert "a driver with version 9.9" in str(found.error)
    assert next(given, None) is None, "a worker that leaves input unread is lost"


def test_the_first_wave_reads_the_records_that_were_sent():
    made = plan()
    blocks: list[Any] = [[("a",)], [("b",), ("c",)]]
    source = GivenRecords(tuple(blocks), first_root=10)
    sent = cloudpickle.dumps({made.stage_of["spout"].name: source})

    found = [run(made, 0, partition, records=sent) for partition in range(2)]

    begun = sorted(
        run
        for each in found
        for _, m in each
        if isinstance(m, TreeReport)
        for run in m.begun
    )
    assert begun == [(10, 11), (11, 13)]


def test_the_next_wave_takes_what_the_one_before_sent():
    made = plan()
    blocks: list[Any] = [[("a",), ("b",), ("c",)]]
    sent = cloudpickle.dumps({made.stage_of["spout"].name: GivenRecords(tuple(blocks))})
    between = [m for p in range(2) for m in run(made, 0, p, records=sent)]
    assert {target for target, _ in between} <= {0, 1}

    found = [
        pair
        for partition in range(2)
        for pair in run(
            made, 1, partition, [(t, m) for t, m in between if t == partition]
        )
    ]

    chunk = Chunk(made, ATTEMPT)
    chunk.accept(message for _, message in found)
    assert chunk.is_whole
    assert chunk.settle(0, 3).completed.tolist() == [0, 1, 2]


def test_records_that_cannot_be_unpickled_are_word_to_the_driver():
    ((target, message),) = run(plan(), 0, 1, records=NO_PICKLE)

    assert target == 0
    assert isinstance(message, BatchStopped)
    assert isinstance(message.error, ComponentError)
    assert message.error.component == "spout"


def test_input_is_read_to_its_end_also_if_records_cannot_be_unpickled():
    given = iter([["a"], ["b"]])

    run(plan(), 0, 1, given, records=NO_PICKLE)

    assert list(given) == []


@pytest.mark.parametrize("records", [cloudpickle.dumps({}), NO_PICKLE])
def test_a_worker_is_told_that_a_task_is_done(monkeypatch, records):
    done = []
    monkeypatch.setattr(engine, "task_done", lambda: done.append(1))

    run(plan(), 0, 0, records=records)

    assert done == [1]
