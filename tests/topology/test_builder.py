import pickle
from collections.abc import Mapping

import pytest
from pyspark import cloudpickle

from kafka_tx.errors import ConfigError
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import (
    BasicBolt,
    BatchBolt,
    Committer,
    DataFrameBolt,
    RichBolt,
)
from kafka_tx.topology.declare.graph import ComponentKind, Placement
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout
from kafka_tx.topology.declare.spouts import TransactionalSpout


class Split(BasicBolt):
    fields = ("word",)

    def execute(self, row, collector):
        collector.emit((row.line,))


class Count(BatchBolt):
    fields = "word string, count bigint"

    def execute(self, row):
        pass


class Sum(BatchBolt):
    def execute(self, row):
        pass


class MarkedSum(Committer, Sum):
    pass


class MarkedSplit(Committer, Split):
    pass


class Idle(BatchBolt):
    pass


class Rich(RichBolt):
    def execute(self, row):
        pass


class Yields(BasicBolt):
    def execute(self, row, collector):
        yield row.word


class Awaits(Sum):
    async def finish_batch(self):  # type: ignore[override]
        pass


class TwoStreams(BatchBolt):
    fields = ("ok",)
    streams: Mapping[str, tuple[str, ...]] = {"bad": ("error", "line")}

    def execute(self, row):
        pass


class NeedsArguments(BatchBolt):
    def __init__(self, size):
        self.size = size

    def execute(self, row):
        pass


class Undeclared(BatchBolt):
    fields = ("tx", "word")

    def execute(self, row):
        pass


SPOUT = MemoryTransactionalSpout({0: [("a b",)]}, ("line",), 2)


def a_builder(spout=SPOUT, parallelism=3):
    builder = TransactionalTopologyBuilder("count", "spout", spout, parallelism)
    builder.set_bolt("split", Split).shuffle_grouping("spout")
    return builder


def refusal(builder, dumps=pickle.dumps):
    with pytest.raises(ConfigError) as refused:
        builder.build(dumps)
    return str(refused.value)


def test_a_topology_knows_its_components_in_graph_order():
    builder = TransactionalTopologyBuilder("count", "spout", SPOUT, 3)
    builder.set_committer_bolt("sum", Sum).global_grouping("count")
    builder.set_bolt("count", Count, 5).fields_grouping("split", ["word"])
    builder.set_bolt("split", Split).shuffle_grouping("spout")

    topology = builder.build()

    kinds = {c.name: c.kind for c in topology.graph.components}
    assert list(kinds.items()) == [
        ("spout", ComponentKind.SPOUT),
        ("split", ComponentKind.BASIC),
        ("count", ComponentKind.BATCH),
        ("sum", ComponentKind.COMMITTER),
    ]
    assert topology.id == "count"
    assert (topology.graph.components[0].name, topology.spout) == ("spout", SPOUT)


def test_parallelism_defaults_to_that_of_the_source_but_one_for_committers():
    builder = a_builder()
    builder.set_bolt("count", Count).fields_grouping("split", "word")
    builder.set_bolt("all", Count).global_grouping("split")
    builder.set_committer_bolt("sum", Sum).fields_grouping("count", "word")
    builder.set_bolt("wide", Count, 7).shuffle_grouping("split")
    builder.set_bolt("both", Sum).shuffle_grouping("count").shuffle_grouping("wide")

    graph = builder.build().graph

    tasks = {component.name: component.tasks for component in graph.components}
    assert tasks == {
        "spout": 3,
        "split": 3,
        "count": 3,
        "all": 1,
        "sum": 1,
        "wide": 7,
        "both": 7,
    }


def test_a_batch_bolt_marked_as_committer_is_one():
    builder = a_builder()
    builder.set_bolt("sum", MarkedSum).global_grouping("split")

    assert builder.build().graph.by_name["sum"].kind is ComponentKind.COMMITTER


def test_named_streams_have_fields_of_their_own():
    builder = a_builder()
    builder.set_bolt("check", TwoStreams).shuffle_grouping("split")
    builder.set_bolt("errors", Sum).fields_grouping("check", ["error"], stream="bad")

    graph = builder.build().graph

    assert graph.fields("check", "bad").names == ("error", "line")


def test_a_bolt_may_have_several_groupings_on_one_source():
    builder = a_builder()
    bolt = builder.set_bolt("sum", Sum, 2)
    bolt.fields_grouping("split", ["word"]).all_grouping("split")

    inputs = builder.build().graph.by_name["sum"].inputs

    assert [str(given) for given in inputs] == [
        "fields(word) from 'split'",
        "all from 'split'",
    ]


def test_bolts_are_put_on_the_driver_or_on_executors_by_request():
    builder = a_builder()
    builder.set_bolt("here", Sum).shuffle_grouping("split").on_driver()
    builder.set_committer_bolt("there", Sum).global_grouping("split").on_executors()

    by_name = builder.build().graph.by_name

    assert by_name["here"].placement is Placement.DRIVER
    assert by_name["there"].placement is Placement.EXECUTORS


def test_the_plan_travels_and_the_topology_stays_as_it_was_built():
    builder = a_builder()
    topology = builder.build()

    builder.set_bolt("late", Sum).shuffle_grouping("split")

    assert list(topology.graph.by_name) == ["spout", "split"]
    again = pickle.loads(pickle.dumps(topology.plan))
    assert list(again.stages) == ["spout"]
    with pytest.raises(AttributeError):
        topology.id = "other"


def test_a_cycle_is_refused_with_its_path():
    builder = a_builder()
    builder.set_bolt("a", Count).shuffle_grouping("split").shuffle_grouping("c")
    builder.set_bolt("b", Count).shuffle_grouping("a")
    builder.set_bolt("c", Count).shuffle_grouping("b")
    builder.set_bolt("below", Count).shuffle_grouping("c")

    assert "component 'a': it is in a cycle: a → b → c → a." in refusal(builder)


def test_a_bolt_that_reads_itself_is_a_cycle():
    builder = a_builder()
    builder.set_bolt("a", Count).shuffle_grouping("a")

    assert "component 'a': it is in a cycle: a → a." in refusal(builder)


def _unknown_source(builder):
    builder.set_bolt("count", Count).shuffle_grouping("splitt")


def _unknown_stream(builder):
    builder.set_bolt("count", Count).shuffle_grouping("split", stream="errors")


def _source_without_fields(builder):
    builder.set_bolt("sum", Sum).shuffle_grouping("split")
    builder.set_bolt("count", Count).shuffle_grouping("sum")


def _wrong_field(builder):
    builder.set_bolt("count", Count).fields_grouping("split", ["word", "wrod"])


def _no_field(builder):
    builder.set_bolt("count", Count).fields_grouping("split", [])


def _grouped_by_tx(builder):
    builder.set_bolt("count", Count).fields_grouping("split", ["tx"])


def _no_grouping(builder):
    builder.set_bolt("count", Count)


def _same_name(builder):
    builder.set_bolt("split", Count).shuffle_grouping("spout")


def _named_as_the_spout(builder):
    builder.set_bolt("spout", Count).shuffle_grouping("split")


def _basic_committer(builder):
    builder.set_committer_bolt("sum", Split).global_grouping("split")


def _marked_basic(builder):
    builder.set_bolt("sum", MarkedSplit).global_grouping("split")


def _dataframe_committer(builder):
    bolt = DataFrameBolt(len, fields="a int")
    builder.set_committer_bolt("sum", bolt).global_grouping("split")


def _no_task(builder):
    builder.set_bolt("count", Count, 0).shuffle_grouping("split")


def _half_a_task(builder):
    builder.set_bolt("count", Count, 1.5).shuffle_grouping("split")


def _illegal_name(builder):
    builder.set_bolt("a/b", Count).shuffle_grouping("split")


def _reserved_name(builder):
    builder.set_bolt("__acker", Count).shuffle_grouping("split")


def _rich_bolt(builder):
    builder.set_bolt("rich", Rich).shuffle_grouping("split")


def _idle_bolt(builder):
    builder.set_bolt("idle", Idle).shuffle_grouping("split")


def _yields(builder):
    builder.set_bolt("yields", Yields).shuffle_grouping("split")


def _awaits(builder):
    builder.set_bolt("awaits", Awaits).shuffle_grouping("split")


def _needs_arguments(builder):
    builder.set_bolt("sized", NeedsArguments).shuffle_grouping("split")


def _tx_declared(builder):
    builder.set_bolt("count", Undeclared).shuffle_grouping("split")


def _untyped_dataframe(builder):
    bolt = DataFrameBolt(len, fields="a int")
    builder.set_bolt("frame", bolt).shuffle_grouping("split")


def _grouped_dataframe(builder):
    builder.set_bolt("count", Count).shuffle_grouping("split")
    bolt = DataFrameBolt(len, fields="a int")
    builder.set_bolt("frame", bolt).fields_grouping("count", ["word"])


def _lambda(builder):
    builder.set_bolt("count", lambda: Count()).shuffle_grouping("split")


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (
            _unknown_source,
            "component 'count': unknown source 'splitt'; legal: 'spout',",
        ),
        (_unknown_stream, "source 'split' declares no fields for stream 'errors'"),
        (
            _source_without_fields,
            "source 'sum' declares no fields for stream 'default'",
        ),
        (_wrong_field, "component 'count': fields grouping on 'wrod', which is not"),
        (_no_field, "component 'count': fields grouping from 'split' names no field"),
        (_grouped_by_tx, "component 'count': 'tx' is the same for all rows of a batch"),
        (_no_grouping, "component 'count': no grouping; call e.g. .shuffle_grouping"),
        (_same_name, "component 'split': two components have this name"),
        (_named_as_the_spout, "component 'spout': two components have this name"),
        (_basic_committer, "component 'sum': a committer must be a batch bolt, and Sp"),
        (_marked_basic, "component 'sum': a committer must be a batch bolt, and Mark"),
        (_dataframe_committer, "component 'sum': a committer must be a batch bolt"),
        (_no_task, "component 'count': parallelism is 0; legal: a whole number from 1"),
        (_half_a_task, "component 'count': parallelism is 1.5"),
        (_illegal_name, "component 'a/b': illegal name"),
        (_reserved_name, "component '__acker': illegal name"),
        (_rich_bolt, "component 'rich': a rich bolt cannot be used in this topology"),
        (_idle_bolt, "component 'idle': Idle overrides none of the methods"),
        (_yields, "component 'yields': Yields.execute has yield or async"),
        (_awaits, "component 'awaits': Awaits.finish_batch has yield or async"),
        (_needs_arguments, "component 'sized': its bolt cannot be made: TypeError"),
        (_tx_declared, "component 'count': option 'fields' is ('tx', 'word')"),
        (
            _untyped_dataframe,
            "component 'frame': a DataFrame bolt needs types: declare",
        ),
        (_grouped_dataframe, "component 'frame': a DataFrame bolt spreads its rows"),
        (_lambda, "component 'count' cannot be sent to executors"),
    ],
)
def test_what_cannot_work_is_refused_at_build_by_name(declare, text):
    builder = a_builder()
    declare(builder)

    assert text in refusal(builder)


def test_everything_that_is_wrong_is_told_at_once():
    builder = a_builder()
    _no_grouping(builder)
    _same_name(builder)
    builder.set_bolt("sum", Sum).shuffle_grouping("nobody")

    text = refusal(builder)

    assert "topology 'count' cannot be built:" in text
    for name in ("'count'", "'split'", "'sum'"):
        assert f"component {name}" in text


def test_a_lambda_is_fine_with_a_pickler_that_can():
    builder = a_builder()
    _lambda(builder)

    assert "count" in builder.build(cloudpickle.dumps).graph.by_name


class Unpicklable(TransactionalSpout):
    fields = ("line",)

    def __init__(self):
        self.open_file = open
        self.refused = lambda: None


class NoFields(TransactionalSpout):
    pass


@pytest.mark.parametrize(
    ("spout", "parallelism", "text"),
    [
        (Unpicklable(), 1, "component 'spout' cannot be sent to executors"),
        (NoFields(), 1, "component 'spout': the spout declares no fields"),
        ("kafka", 1, "component 'spout': 'kafka' is no transactional spout"),
        (SPOUT, 0, "component 'spout': parallelism is 0"),
    ],
)
def test_a_spout_that_cannot_work_is_refused(spout, parallelism, text):
    builder = TransactionalTopologyBuilder("count", "spout", spout, parallelism)

    assert text in refusal(builder)


@pytest.mark.parametrize("topology_id", ["", "a/b", "..", "ünï", "x" * 201])
def test_an_id_no_store_can_hold_is_refused(topology_id):
    with pytest.raises(ConfigError, match="topology id"):
        TransactionalTopologyBuilder(topology_id, "spout", SPOUT)


def test_an_unknown_way_to_explain_is_refused():
    with pytest.raises(ConfigError, match="'text' or 'mermaid'"):
        a_builder().build().explain("svg")


def test_to_describe_is_to_explain_as_text():
    topology = a_builder().build()

    assert topology.describe() == topology.explain()
    assert topology.explain("mermaid").startswith("flowchart LR")
