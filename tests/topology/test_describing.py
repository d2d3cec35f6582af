from collections.abc import Mapping

from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import BatchBolt, DataFrameBolt
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout


class Count(BatchBolt):
    fields = "n int"
    streams: Mapping[str, str] = {"odd": "n int"}

    def execute(self, row):
        pass


class Sum(BatchBolt):
    fields = ("total",)

    def execute(self, row):
        pass


class Last(BatchBolt):
    def execute(self, row):
        pass


def a_topology():
    spout = MemoryTransactionalSpout({0: [(1,)]}, "n int", 1)
    builder = TransactionalTopologyBuilder("phases", "spout", spout, 2)
    builder.set_bolt("count", Count, 3).fields_grouping("spout", ["n"])
    frame = DataFrameBolt(len, fields="n int")
    builder.set_bolt("frame", frame).shuffle_grouping("count")
    builder.set_committer_bolt("sum", Sum).global_grouping("count", stream="odd")
    builder.set_bolt("last", Last).shuffle_grouping("sum")
    return builder.build()


def test_a_topology_is_described_with_its_phases_and_places():
    assert a_topology().describe() == (
        "topology phases\n"
        "  spout  spout → n int32\n"
        "  count  batch bolt → n int32; odd: n int32\n"
        "           fields(n) from 'spout'\n"
        "  frame  DataFrame bolt → n int32\n"
        "           shuffle from 'count'\n"
        "  sum    committer → total\n"
        "           global from 'count' stream 'odd'\n"
        "  last   batch bolt\n"
        "           shuffle from 'sum'\n"
        "processing phase\n"
        "  1. on executors, 2 tasks: spout\n"
        "  2. on executors, 3 tasks: count\n"
        "  3. in Spark's own plan: frame\n"
        "  4. on the driver, 1 task: sum (execute only)\n"
        "commit phase, in txid order\n"
        "  1. on the driver, 1 task: commit sum\n"
        "  2. on the driver, 1 task: finish last"
    )


def test_a_topology_without_committers_says_so():
    spout = MemoryTransactionalSpout({0: [(1,)]}, "n int", 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    builder.set_bolt("last", Last).shuffle_grouping("spout")

    assert builder.build().describe().endswith("commit phase: nothing to do")


def test_a_topology_is_drawn_with_mermaid():
    assert a_topology().explain("mermaid") == (
        "flowchart LR\n"
        '  subgraph processing["processing phase"]\n'
        '    c0(["spout<br/>spout, on executors, 2 tasks"])\n'
        '    c1["count<br/>batch bolt, on executors, 3 tasks"]\n'
        '    c2["frame<br/>DataFrame bolt, in Spark\'s own plan"]\n'
        "  end\n"
        '  subgraph commit["commit phase"]\n'
        '    c3[["sum<br/>committer, on the driver, 1 task"]]\n'
        '    c4["last<br/>batch bolt, on the driver, 1 task"]\n'
        "  end\n"
        '  c0 -- "fields(n)" --> c1\n'
        '  c1 -- "shuffle" --> c2\n'
        '  c1 -- "odd: global" --> c3\n'
        '  c3 -- "shuffle" --> c4\n'
    )
