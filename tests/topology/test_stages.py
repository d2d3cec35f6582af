import pickle

import pytest

from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import BasicBolt, BatchBolt, DataFrameBolt
from kafka_tx.topology.declare.graph import Placement
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout

EXECUTORS, DRIVER, FRAME = Placement.EXECUTORS, Placement.DRIVER, Placement.DATAFRAME


class Row(BasicBolt):
    fields = "n int"

    def execute(self, row, collector):
        pass


class Batch(BatchBolt):
    fields = "n int"

    def execute(self, row):
        pass


class Frame(DataFrameBolt):
    fields = "n int"

    def transform(self, *frames):
        return frames[0]


@pytest.fixture
def builder():
    spout = MemoryTransactionalSpout({0: [(1,)]}, "n int", 1)
    return TransactionalTopologyBuilder("t", "spout", spout, 4)


def stages(builder):
    return [
        ("+".join(stage.components), stage.tasks, stage.placement)
        for stage in builder.build().plan.stages.values()
    ]


def test_a_chain_of_shuffles_shares_the_tasks_of_the_spout(builder):
    builder.set_bolt("a", Row, 4).shuffle_grouping("spout")
    builder.set_bolt("b", Batch, 2).shuffle_grouping("a")

    assert stages(builder) == [("spout+a+b", 4, EXECUTORS)]


def test_more_tasks_than_the_source_need_an_exchange_unless_rows_stay_local(builder):
    builder.set_bolt("wide", Batch, 8).shuffle_grouping("spout")
    builder.set_bolt("near", Batch, 8).local_or_shuffle_grouping("spout")

    assert stages(builder) == [
        ("spout+near", 4, EXECUTORS),
        ("wide", 8, EXECUTORS),
    ]


def test_a_batch_bolt_with_one_task_gets_exactly_one(builder):
    builder.set_bolt("one", Batch, 1).shuffle_grouping("spout")
    builder.set_bolt("each", Row, 1).shuffle_grouping("spout")

    assert stages(builder) == [
        ("spout+each", 4, EXECUTORS),
        ("one", 1, DRIVER),
    ]


def test_a_fields_grouping_begins_a_stage(builder):
    builder.set_bolt("count", Batch, 5).fields_grouping("spout", ["n"])

    assert stages(builder) == [("spout", 4, EXECUTORS), ("count", 5, EXECUTORS)]


def test_a_global_grouping_is_collected_to_the_driver(builder):
    builder.set_bolt("total", Batch).global_grouping("spout")
    builder.set_bolt("next", Row).fields_grouping("total", ["n"])

    assert stages(builder) == [
        ("spout", 4, EXECUTORS),
        ("total+next", 1, DRIVER),
    ]


def test_an_all_grouping_is_an_exchange(builder):
    builder.set_bolt("copy", Batch, 2).all_grouping("spout")

    assert stages(builder) == [("spout", 4, EXECUTORS), ("copy", 2, EXECUTORS)]


def test_a_committer_with_one_task_runs_alone_on_the_driver(builder):
    builder.set_committer_bolt("sum", Batch).fields_grouping("spout", ["n"])
    builder.set_bolt("below", Row, 1).shuffle_grouping("sum")

    assert stages(builder) == [
        ("spout", 4, EXECUTORS),
        ("sum", 1, DRIVER),
        ("below", 1, DRIVER),
    ]


def test_a_committer_with_more_tasks_runs_with_its_source_on_executors(builder):
    builder.set_bolt("count", Batch, 4).shuffle_grouping("spout")
    builder.set_committer_bolt("write", Batch, 4).shuffle_grouping("count")

    assert stages(builder) == [("spout+count+write", 4, EXECUTORS)]


def test_a_wish_decides_where_a_bolt_runs(builder):
    builder.set_committer_bolt("sum", Batch).global_grouping("spout").on_executors()
    builder.set_bolt("here", Batch, 4).shuffle_grouping("spout").on_driver()

    assert stages(builder) == [
        ("spout", 4, EXECUTORS),
        ("sum", 1, EXECUTORS),
        ("here", 4, DRIVER),
    ]


def test_a_bolt_joins_only_when_all_its_sources_are_in_one_stage(builder):
    builder.set_bolt("a", Row).shuffle_grouping("spout")
    builder.set_bolt("b", Row).shuffle_grouping("spout").shuffle_grouping("a")
    builder.set_bolt("far", Batch, 3).fields_grouping("a", ["n"])
    builder.set_bolt("c", Row, 3).shuffle_grouping("b").shuffle_grouping("far")

    assert stages(builder) == [
        ("spout+a+b", 4, EXECUTORS),
        ("far", 3, EXECUTORS),
        ("c", 3, EXECUTORS),
    ]


def test_dataframe_bolts_that_read_only_each_other_share_a_stage(builder):
    builder.set_bolt("f", Frame).shuffle_grouping("spout")
    builder.set_bolt("g", Frame).shuffle_grouping("f")
    builder.set_bolt("h", Frame).shuffle_grouping("g").shuffle_grouping("spout")
    builder.set_bolt("row", Row, 4).shuffle_grouping("g")

    assert stages(builder) == [
        ("spout", 4, EXECUTORS),
        ("f+g", 1, FRAME),
        ("h", 1, FRAME),
        ("row", 4, EXECUTORS),
    ]


def test_edges_know_which_rows_stay_and_which_travel(builder):
    builder.set_bolt("a", Row).shuffle_grouping("spout")
    builder.set_bolt("count", Batch, 5).fields_grouping("a", ["n"])
    builder.set_bolt("frame", Frame).shuffle_grouping("a")

    plan = builder.build().plan

    assert [
        (e.target, e.is_local, e.tasks, e.as_arrow) for e in plan.edges["spout"]
    ] == [("a", True, 4, False)]
    assert [(e.target, e.is_local, e.tasks, e.as_arrow) for e in plan.edges["a"]] == [
        ("count", False, 5, False),
        ("frame", False, 1, True),
    ]


def test_a_plan_is_small_and_the_same_after_travelling(builder):
    builder.set_bolt("a", Row).shuffle_grouping("spout")
    builder.set_committer_bolt("sum", Batch).global_grouping("a")
    plan = builder.build().plan

    data = pickle.dumps(plan)

    assert len(data) < 5_000
    assert pickle.loads(data).stages == plan.stages
    assert pickle.loads(data).commit == plan.commit
