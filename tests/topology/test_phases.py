import pytest

from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import BatchBolt
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout
from kafka_tx.topology.plan.physical import Phase


class Passing(BatchBolt):
    fields = ("n",)

    def execute(self, row):
        pass


def phases(*bolts):
    """Phases of a topology of ``(name, sources)``; capitals are committers."""
    spout = MemoryTransactionalSpout({0: [(1,)]}, ("n",), 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    for name, sources in bolts:
        declare = builder.set_committer_bolt if name.isupper() else builder.set_bolt
        declarer = declare(name, Passing)
        for source in sources.split():
            declarer.shuffle_grouping(source)
    return builder.build().plan.phases


def test_a_committer_takes_what_hangs_below_it_into_the_commit_phase():
    found = phases(("a", "spout"), ("B", "a"), ("c", "a B"), ("D", "c"))

    assert found.processing == ("spout", "a")
    assert found.commit == ("B", "c", "D")


def test_committers_with_none_above_come_first_in_graph_order():
    found = phases(
        ("A", "spout"), ("below", "A"), ("B", "spout"), ("C", "below"), ("D", "spout")
    )

    assert found.commit == ("A", "B", "D", "below", "C")


def test_without_a_committer_everything_is_processing():
    found = phases(("a", "spout"), ("b", "a"))

    assert found.processing == ("spout", "a", "b")
    assert found.commit == ()


@pytest.mark.parametrize(
    ("name", "phase"),
    [("spout", Phase.PROCESSING), ("A", Phase.COMMIT), ("b", Phase.COMMIT)],
)
def test_every_component_finishes_in_one_phase(name, phase):
    assert phases(("A", "spout"), ("b", "A")).of(name) is phase
