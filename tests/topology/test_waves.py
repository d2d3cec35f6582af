import pytest

from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout
from kafka_tx.topology.plan.physical import TaskId
from tests.topology.test_stages import Batch, Frame


@pytest.fixture
def builder():
    spout = MemoryTransactionalSpout({0: [(1,)]}, "n int", 1)
    return TransactionalTopologyBuilder("t", "spout", spout, 2)


def waves(found):
    return [(wave.placement.name, [s.name for s in wave.stages]) for wave in found]


def test_stages_that_need_nothing_of_each_other_run_in_one_wave(builder):
    builder.set_bolt("a", Batch, 3).fields_grouping("spout", ["n"])
    builder.set_bolt("b", Batch, 2).fields_grouping("spout", ["n"])
    builder.set_bolt("c", Batch, 2).fields_grouping("a", ["n"]).fields_grouping(
        "b", "n"
    )

    plan = builder.build().plan

    assert waves(plan.processing) == [
        ("EXECUTORS", ["spout"]),
        ("EXECUTORS", ["a", "b"]),
        ("EXECUTORS", ["c"]),
    ]
    assert plan.processing[1].task_ids == (
        TaskId("a", 0),
        TaskId("a", 1),
        TaskId("a", 2),
        TaskId("b", 0),
        TaskId("b", 1),
    )
    assert plan.processing[1].partitions[TaskId("b", 1)] == 4


def test_executors_go_on_as_long_as_they_can_before_the_driver_has_its_turn(builder):
    builder.set_bolt("total", Batch).global_grouping("spout")
    builder.set_bolt("a", Batch, 3).fields_grouping("spout", ["n"])
    builder.set_bolt("b", Batch, 3).fields_grouping("a", ["n"])
    builder.set_bolt("after", Batch, 3).all_grouping("total")
    builder.set_bolt("frame", Frame).shuffle_grouping("b")

    assert waves(builder.build().plan.processing) == [
        ("EXECUTORS", ["spout"]),
        ("EXECUTORS", ["a"]),
        ("EXECUTORS", ["b"]),
        ("DATAFRAME", ["frame"]),
        ("DRIVER", ["total"]),
        ("EXECUTORS", ["after"]),
    ]


def test_what_executes_in_the_processing_phase_has_a_place_in_it(builder):
    builder.set_bolt("a", Batch).shuffle_grouping("spout")
    builder.set_committer_bolt("b", Batch).global_grouping("a")
    builder.set_bolt("c", Batch).shuffle_grouping("a").shuffle_grouping("b")
    builder.set_committer_bolt("d", Batch).shuffle_grouping("c")

    plan = builder.build().plan

    assert waves(plan.processing) == [
        ("EXECUTORS", ["spout"]),
        ("EXECUTORS", ["c"]),
        ("DRIVER", ["b"]),
    ]
    assert waves(plan.commit) == [
        ("DRIVER", ["b"]),
        ("EXECUTORS", ["c"]),
        ("DRIVER", ["d"]),
    ]


def test_the_commit_phase_keeps_the_order_of_the_graph_across_placements(builder):
    builder.set_committer_bolt("a", Batch).global_grouping("spout")
    builder.set_committer_bolt("b", Batch).global_grouping("spout")
    builder.set_committer_bolt("c", Batch, 3).fields_grouping("spout", ["n"])
    builder.set_committer_bolt("d", Batch).global_grouping("spout")
    builder.set_bolt("below", Batch).global_grouping("a")

    assert waves(builder.build().plan.commit) == [
        ("DRIVER", ["a", "b"]),
        ("EXECUTORS", ["c"]),
        ("DRIVER", ["d", "below"]),
    ]


def test_a_stage_never_shares_a_wave_with_what_it_reads(builder):
    builder.set_committer_bolt("a", Batch).global_grouping("spout")
    builder.set_committer_bolt("b", Batch).global_grouping("a")

    assert waves(builder.build().plan.commit) == [("DRIVER", ["a"]), ("DRIVER", ["b"])]


def test_a_dataframe_bolt_below_a_committer_runs_in_the_commit_phase_only(builder):
    builder.set_committer_bolt("a", Batch).global_grouping("spout")
    builder.set_bolt("f", Frame).shuffle_grouping("a").shuffle_grouping("spout")

    plan = builder.build().plan

    assert waves(plan.processing) == [("EXECUTORS", ["spout"]), ("DRIVER", ["a"])]
    assert waves(plan.commit) == [("DRIVER", ["a"]), ("DATAFRAME", ["f"])]
