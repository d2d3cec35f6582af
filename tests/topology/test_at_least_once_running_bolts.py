import numpy as np
import pyarrow as pa
import pytest

from kafka_tx.errors import ConfigError, FailedException
from kafka_tx.topology.at_least_once.lineage import Lineage, TaskTrees, Tracked
from kafka_tx.topology.at_least_once.running_bolts import (
    RunningBasicBolt,
    RunningRichBolt,
)
from kafka_tx.topology.declare.bolts import BasicBolt, RichBolt
from kafka_tx.topology.declare.graph import Component, ComponentKind
from kafka_tx.topology.plan.physical import TaskId
from kafka_tx.topology.reasons import reason_of
from kafka_tx.topology.rows.blocks import to_rows
from kafka_tx.topology.rows.fields import Fields

FIELDS = Fields(("n",))
COMPONENT = Component("bolt", ComponentKind.BASIC, outputs={"default": FIELDS})


def given(*numbers):
    """Rows whose roots are ten times the number."""
    return Tracked([(n,) for n in numbers], Lineage(np.array(numbers) * 10))


def results_of(trees):
    """The roots that were left open, and those that failed."""
    report = trees.report(TaskId("bolt", 0), (), {})
    return report.open.tolist(), {f.reason: f.roots.tolist() for f in report.failed}


class FailsOdd(BasicBolt):
    def execute(self, row, collector):
        collector.emit((row.n + 1,))
        if row.n % 2:
            raise FailedException("odd")


def test_what_returns_is_acked_and_what_raises_is_failed():
    trees = TaskTrees()
    running = RunningBasicBolt(FailsOdd(), COMPONENT, {"default"}, trees)

    (piece,) = running.feed("spout", FIELDS, given(1, 2, 3, 4))

    assert results_of(trees) == ([], {"odd": [10, 30]})
    assert piece.block == [(3,), (5,)]
    assert piece.lineage.roots.tolist() == [20, 40]


class FailsOddBatches(BasicBolt):
    def execute_arrow(self, batch, collector):
        numbers = batch.column("n").to_pylist()
        if any(n % 2 for n in numbers):
            raise FailedException("odd")
        collector.emit_arrow(batch)


def test_a_failed_batch_is_halved_until_the_guilty_rows_are_found():
    component = Component(
        "bolt", ComponentKind.BASIC, outputs={"default": FIELDS}, reads_arrow=True
    )
    trees = TaskTrees()
    running = RunningBasicBolt(FailsOddBatches(), component, {"default"}, trees)

    pieces = running.feed("spout", FIELDS, given(2, 4, 5, 6, 8))

    assert results_of(trees) == ([], {"odd": [50]})
    rows = [row for piece in pieces for row in to_rows(piece.block)]
    assert rows == [(2,), (4,), (6,), (8,)]
    assert running.outlet.emitted == 4


class KeepsRows(RichBolt):
    """Acks each row when the next one comes."""

    def prepare(self, context, collector):
        self.collector = collector
        self.last = None

    def execute(self, row):
        if self.last is not None:
            self.collector.ack(self.last)
        self.last = row


def test_a_rich_bolt_acks_rows_of_earlier_blocks_and_leaves_the_last_one_open():
    trees = TaskTrees()
    running = RunningRichBolt(KeepsRows(), COMPONENT, {"default"}, trees)
    running.prepare(None)  # type: ignore[arg-type]

    running.feed("spout", FIELDS, given(1, 2))
    running.feed("spout", FIELDS, given(3))
    running.finish()

    assert results_of(trees) == ([30], {})


class Misuses(BasicBolt):
    def execute(self, row, collector):
        collector.emit((1,), stream="nowhere")


@pytest.mark.parametrize("count", [20, 50])
def test_when_every_row_of_many_misuses_the_collector_the_bolt_is_to_blame(count):
    running = RunningBasicBolt(Misuses(), COMPONENT, {"default"}, TaskTrees())

    with pytest.raises(ConfigError, match="nowhere"):
        running.feed("spout", FIELDS, given(*range(count)))


class MisusesForOdd(BasicBolt):
    def execute(self, row, collector):
        collector.emit((1,), stream="nowhere" if row.n % 2 else "default")


def test_a_row_that_leads_to_a_misuse_fails_alone():
    trees = TaskTrees()
    running = RunningBasicBolt(MisusesForOdd(), COMPONENT, {"default"}, trees)

    running.feed("spout", FIELDS, given(1))
    running.feed("spout", FIELDS, given(*range(100, 121)))

    _, failed = results_of(trees)
    ((reason, roots),) = failed.items()
    assert "nowhere" in reason
    assert roots == [10, *range(1010, 1210, 20)]


class Sees(BasicBolt):
    def execute(self, row, collector):
        collector.emit((row.at.year,))


class SeesRich(RichBolt):
    def prepare(self, context, collector):
        self.collector = collector

    def execute(self, row):
        self.collector.emit((row.at.year,), [row])
        self.collector.ack(row)


TIMES = Fields(("at",))
BEYOND_YEAR_9999 = 1_760_000_000_000_000_000


@pytest.mark.parametrize(
    "bolt", [(Sees, RunningBasicBolt), (SeesRich, RunningRichBolt)]
)
def test_a_row_that_python_cannot_hold_fails_alone(bolt):
    kind, running_of = bolt
    trees = TaskTrees()
    running = running_of(kind(), COMPONENT, {"default"}, trees)
    running.prepare(None)
    at = pa.array([0, BEYOND_YEAR_9999, 0], pa.timestamp("us"))
    numbers = np.array([1, 2, 3])
    rows = Tracked(
        pa.RecordBatch.from_arrays([at], names=["at"]),
        Lineage(numbers * 10),
    )

    (piece,) = running.feed("spout", TIMES, rows)
    running.finish()

    left, failed = results_of(trees)
    assert left == []
    assert list(failed.values()) == [[20]]
    assert (piece.block, piece.lineage.roots.tolist()) == ([(1970,)] * 2, [10, 30])


def late_bolt():
    """A bolt of Arrow batches whose time is over, and its trees."""
    component = Component(
        "bolt", ComponentKind.BASIC, outputs={"default": FIELDS}, reads_arrow=True
    )
    trees = TaskTrees()
    given = FailsOddBatches(), component, {"default"}, trees
    return RunningBasicBolt(*given, is_late=lambda: True), trees


def test_what_was_in_no_call_of_its_own_when_the_time_is_over_is_untried():
    running, trees = late_bolt()

    running.feed("spout", FIELDS, given(1, 2, 3, 4))

    report = trees.report(TaskId("bolt", 0), (), {})
    assert [f.roots.tolist() for f in report.failed] == [[10]]
    assert report.untried.tolist() == [20, 30, 40]


def test_rows_that_come_from_no_record_are_given_though_the_time_is_over():
    """Nothing would emit them again."""
    running, trees = late_bolt()
    rows = given(1, 2, 3, 4)
    rows = Tracked(rows.block, Lineage.of_each([(10,), (), (30,), ()]))

    emitted = [*running.feed("spout", FIELDS, rows)]

    report = trees.report(TaskId("bolt", 0), (), {})
    assert report.untried.tolist() == [30]
    assert [row for piece in emitted for row in to_rows(piece.block)] == [(2,), (4,)]


def test_a_reason_is_what_user_code_said():
    assert reason_of(FailedException("no space")) == "no space"
    assert reason_of(KeyError("x")) == "KeyError: 'x'"
