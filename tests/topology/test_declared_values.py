"""Wrong types and numbers of values: one answer at all doors, fused or not."""

import datetime
import decimal
import pickle
from typing import Any

import pyarrow as pa
import pytest

from kafka_tx.errors import ComponentError, ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.at_least_once.topology import TopologyBuilder
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.at_least_once.records import AtLeastOncePacket
from kafka_tx.topology.at_least_once.tasks import AtLeastOnceTask
from kafka_tx.topology.declare.bolts import BasicBolt, BatchBolt, RichBolt
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout
from kafka_tx.topology.plan.physical import TaskId
from kafka_tx.topology.rows.declared_values import ValueCheck
from kafka_tx.topology.rows.fields import Fields, parse_type
from kafka_tx.topology.run.messages import BatchStopped, TreeReport
from tests.local_engine import GivenBlocks, GivenRecords, LocalEngine, run_processing

ATTEMPT = TransactionAttempt(1, 11)
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
LEGAL: dict[str, list[Any]] = {
    "string": ["a", "ü", "", b"utf-8"],
    "binary": [b"a", "text"],
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1, 2.0],
    "float": [1.5, 2],
    "double": [1.5, float("nan"), 2],
    "date": [NOW.date()],
    "timestamp": [NOW, NOW.replace(tzinfo=None)],
    "decimal(5,2)": [decimal.Decimal("1.25")],
    "array<int>": [[1, 2], ()],
    "struct<a: int>": [{"a": 1}, {}],
}
ILLEGAL: dict[str, list[Any]] = {
    "string": [1, "half a pair: \ud800", ["a"]],
    "binary": [1],
    "boolean": [1, "true"],
    "tinyint": [128, "1"],
    "int": [2**31, int],
    "bigint": [2**63, "1", 1.5, True],
    "float": ["1.5"],
    "double": ["1.5", 2**60 + 1],
    "date": ["2026-01-02"],
    "timestamp": ["2026-01-02"],
    "decimal(5,2)": [decimal.Decimal("1000.25"), "x"],
    "array<int>": [["a"], 1],
    "struct<a: int>": [{"a": "x"}, 3],
}


def check(kind):
    return ValueCheck("bolt", Fields.parse(f"n {kind}"))


@pytest.mark.parametrize("kind", LEGAL)
def test_what_makes_an_arrow_column_is_legal(kind):
    arrow = parse_type(kind)
    for value in [*LEGAL[kind], None]:
        pa.array([value], arrow)
        check(kind)((value,))


@pytest.mark.parametrize("kind", ILLEGAL)
def test_what_makes_none_is_refused_by_name(kind):
    for value in ILLEGAL[kind]:
        with pytest.raises(ConfigError, match="component 'bolt' emitted .* field 'n'"):
            check(kind)((value,))


def test_untyped_fields_hold_anything():
    ValueCheck("bolt", Fields(("n",)))((object(),))


def test_a_check_travels_and_shows_no_more_than_a_part_of_a_value():
    travelled = pickle.loads(pickle.dumps(check("bigint")))

    with pytest.raises(ConfigError) as raised:
        travelled(("x" * 1_000_000,))
    assert len(str(raised.value)) < 1_000


class Odd(BasicBolt):
    fields = "n bigint"

    def execute(self, row, collector):
        collector.emit(misfit if row.n == 5 else (row.n,))


class OddRich(RichBolt):
    fields = "n bigint"

    def prepare(self, context, collector):
        self.collector = collector

    def execute(self, row):
        self.collector.emit(misfit if row.n == 5 else (row.n,), row)
        self.collector.ack(row)


class OddArrow(BasicBolt):
    """Emits rows, although it is given record batches."""

    fields = "n bigint"

    def execute_arrow(self, batch, collector):
        for n in batch.column("n").to_pylist():
            collector.emit(misfit if n == 5 else (n,))


class TakesRows(BasicBolt):
    def execute(self, row, collector):
        seen.append(row.n)


class TakesArrow(BasicBolt):
    def execute_arrow(self, batch, collector):
        seen.extend(batch.column("n").to_pylist())


class TakesBatch(BatchBolt):
    def execute(self, row):
        seen.append(row.n)


seen: list = []
misfit: tuple = ()

MISFITS = pytest.mark.parametrize(
    ("values", "said"),
    [
        (("no number",), "emitted 'no number' in field 'n'"),
        ((5, "one too many"), "emitted 2 values on stream 'default'"),
        ((), "emitted 0 values on stream 'default'"),
    ],
    ids=["type", "too-many", "none"],
)


@pytest.fixture(autouse=True)
def _anew():
    global misfit  # bolts are made by the tasks
    seen.clear()
    yield
    misfit = ()


class Spout:
    fields = "n bigint"

    def empty_chunk(self):
        return GivenRecords(())


def run_records(odd, reader, apart):
    builder = TopologyBuilder("t")
    builder.set_spout("spout", Spout())
    builder.set_bolt("odd", odd).shuffle_grouping("spout")
    end = builder.set_bolt("end", reader, 2 if apart else 1)
    end.shuffle_grouping("odd")
    plan = builder.build().plan
    source = GivenRecords(([(n,) for n in range(8)],))
    said = list(AtLeastOnceTask(plan, TaskId("spout", 0), ATTEMPT).process((), source))
    packets = [packet for packet in said if isinstance(packet, AtLeastOncePacket)]
    for task in range(2 if packets else 0):
        mine = [packet for packet in packets if packet.task == task]
        said += AtLeastOnceTask(plan, TaskId("end", task), ATTEMPT).process(mine)
    reports = [report for report in said if isinstance(report, TreeReport)]
    return bool(packets), [failed for report in reports for failed in report.failed]


@MISFITS
@pytest.mark.parametrize("apart", [False, True], ids=["fused", "apart"])
@pytest.mark.parametrize("reader", [TakesRows, TakesArrow])
@pytest.mark.parametrize("odd", [Odd, OddRich, OddArrow])
def test_at_least_once_it_fails_its_own_record(odd, reader, apart, values, said):
    global misfit
    misfit = values

    travelled, failed = run_records(odd, reader, apart)

    assert travelled == apart
    (found,) = failed
    assert (found.component, found.roots.tolist()) == ("odd", [5])
    assert said in found.reason
    assert sorted(seen) == [0, 1, 2, 3, 4, 6, 7]


@MISFITS
@pytest.mark.parametrize("apart", [False, True], ids=["fused", "apart"])
@pytest.mark.parametrize("reader", [TakesRows, TakesArrow, TakesBatch])
def test_in_a_transactional_topology_the_bolt_that_emitted_it_is_named(
    reader, apart, values, said
):
    global misfit
    misfit = values
    spout = MemoryTransactionalSpout([[]], "n bigint", 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    builder.set_bolt("odd", Odd).shuffle_grouping("spout")
    end = builder.set_bolt("end", reader, 2 if apart else 1)
    end.shuffle_grouping("odd")
    blocks = GivenBlocks(([(n,) for n in range(8)],))

    processed = run_processing(builder.build(), ATTEMPT, blocks, LocalEngine())
    failure = processed.failure

    assert isinstance(failure, BatchStopped)
    assert isinstance(failure.error, ComponentError)
    assert failure.error.fields["component"] == "odd"
    assert said in str(failure.error)
