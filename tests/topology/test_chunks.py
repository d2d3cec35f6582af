"""At-least-once topologies, whole chunks: who completes, who fails, who waits."""

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from threading import Lock
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_tx.errors import ComponentError, ConfigError, FailedException, FetchError
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.at_least_once.topology import TopologyBuilder
from kafka_tx.topology.at_least_once.chunks import run_chunk
from kafka_tx.topology.declare.bolts import (
    BasicBolt,
    BatchBolt,
    DataFrameBolt,
    RichBolt,
)
from kafka_tx.topology.run.messages import BatchFailed, BatchStopped
from tests.local_engine import GivenRecords, LocalEngine

ATTEMPT = TransactionAttempt(1, 1)
ENGINES = pytest.mark.parametrize(
    "engine",
    [
        LocalEngine(),
        LocalEngine(travels=True),
        LocalEngine(travels=True, is_together=True),
    ],
    ids=["in place", "travelling", "together"],
)

seen: list = []
"""What the bolts below were given; cleared before every test."""


@pytest.fixture(autouse=True)
def _nothing_seen():
    seen.clear()


class Lines:
    """A spout of one field; what it reads is given to each chunk."""

    def __init__(self, fields=("line",)):
        self.fields = fields

    def empty_chunk(self):
        return GivenRecords(())


class Split(BasicBolt):
    """Fails on a line that says so."""

    fields = "word string"

    def execute(self, row, collector):
        for word in row.line.split():
            collector.emit((word,))
            if word == "fail":
                raise FailedException("as asked")
            if word == "crash":
                raise ValueError("unexpected")


class SplitArrow(BasicBolt):
    fields = "word string"

    def execute_arrow(self, batch, collector):
        lines = batch.column("line")
        for line in lines.to_pylist():
            if "fail" in line:
                raise FailedException("as asked")
            if "crash" in line:
                raise ValueError("unexpected")
        words = pc.utf8_split_whitespace(lines)
        rows = pc.list_parent_indices(words)
        flat = pa.RecordBatch.from_arrays([pc.list_flatten(words)], names=["word"])
        collector.emit_arrow(flat, rows=rows)


class Collect(BasicBolt):
    def execute(self, row, collector):
        assert "tx" not in row._fields
        if row.word:  # Arrow splits the empty line into one empty word
            seen.append(row.word)
        if row.word == "late":
            raise FailedException("too late")


def a_builder(parallelism=2):
    builder = TopologyBuilder("words")
    builder.set_spout("spout", Lines(), parallelism)
    return builder


def run(builder, lines, engine=None, attempt=ATTEMPT):
    """Work off lines as a chunk; the roots that completed, failed, and are open."""
    blocks = tuple([(line,)] for line in lines)
    records = {"spout": GivenRecords(blocks)}
    chunk = run_chunk(builder.build().plan, attempt, records, engine or LocalEngine())
    ended = chunk.settle(0, len(lines))
    assert len(ended.untried) == 0 or chunk.failure
    return chunk, *(
        roots.tolist() for roots in (ended.completed, ended.failed, ended.open)
    )


LINES = ["a b c", "fail", "a crash b", "b late", "", "late late", "x"]


@ENGINES
@pytest.mark.parametrize("tasks", [1, 2, 5])
@pytest.mark.parametrize("split", [Split, SplitArrow])
def test_records_complete_and_fail_one_by_one(split, tasks, engine):
    builder = a_builder()
    builder.set_bolt("split", split).shuffle_grouping("spout")
    builder.set_bolt("collect", Collect, tasks).fields_grouping("split", ["word"])

    chunk, completed, failed, waiting = run(builder, LINES, engine)

    assert chunk.failure is None
    assert sorted(completed) == [0, 4, 6]
    assert sorted(failed) == [1, 2, 3, 5]
    assert waiting == []
    assert sorted(seen) == sorted(["a", "b", "c", "b", "late", "late", "late", "x"])


def test_a_failure_is_told_with_component_and_reason():
    builder = a_builder()
    builder.set_bolt("split", Split).shuffle_grouping("spout")
    builder.set_bolt("collect", Collect).shuffle_grouping("split")

    chunk, *_ = run(builder, LINES)

    failure = {
        (failed.component, failed.reason): failed.roots.tolist()
        for failed in chunk.failed
        if failed.component == "split"
    }
    assert failure == {
        ("split", "as asked"): [1],
        ("split", "ValueError: unexpected"): [2],
    }
    late = [f.roots.tolist() for f in chunk.failed if f.component == "collect"]
    assert sorted(root for roots in late for root in roots) == [3, 5]


class Upper(BasicBolt):
    fields = ("line",)

    def execute(self, row, collector):
        collector.emit((row.line.upper(),))


@ENGINES
def test_a_row_that_goes_two_ways_completes_when_both_are_done(engine):
    builder = a_builder()
    builder.set_bolt("near", Split).shuffle_grouping("spout")
    builder.set_bolt("upper", Upper).shuffle_grouping("spout")
    builder.set_bolt("far", Split, 3).all_grouping("spout")
    builder.set_bolt("both", Collect, 3).fields_grouping("near", ["word"]).all_grouping(
        "far"
    )

    _, completed, failed, waiting = run(builder, ["a b", "fail", "c late"], engine)

    assert (sorted(completed), sorted(failed), waiting) == ([0], [1, 2], [])
    assert Counter(seen)["a"] == 1 + 3 * 3


class PassOn(BasicBolt):
    fields = ("word",)
    streams: Mapping[str, tuple[str, ...]] = {"odd": ("word",)}

    def execute(self, row, collector):
        collector.emit((row.line,), stream="odd")


def test_rows_that_nobody_reads_hold_nothing_back():
    builder = a_builder()
    builder.set_bolt("pass", PassOn).shuffle_grouping("spout")
    builder.set_bolt("collect", Collect).shuffle_grouping("pass")

    _, completed, _, _ = run(builder, ["a", "b"])

    assert sorted(completed) == [0, 1]
    assert seen == []


# --- rich bolts ---


class Rich(RichBolt):
    """Does with each line what the line says."""

    fields = ("word",)

    def prepare(self, context, collector):
        self.collector = collector
        self.kept = []

    def execute(self, row):
        what, *words = row.line.split()
        getattr(self, what)(row, *words)

    def ack(self, row, *times):
        self.collector.ack(row)
        if times:
            self.collector.ack(row)
            self.collector.fail(row)

    def fail(self, row):
        self.collector.fail(row)

    def forget(self, row):
        pass

    def crash(self, row):
        raise ValueError("unexpected")

    def loose(self, row, word):
        self.collector.emit((word,))
        self.collector.ack(row)

    def emit(self, row, *words):
        for word in words:
            self.collector.emit((word,), [row])
        self.collector.ack(row)

    def anchor_twice(self, row, word):
        self.collector.emit((word,), [row, row])
        self.collector.ack(row)

    def keep(self, row):
        self.kept.append(row)

    def join(self, row, word):
        rows = [*self.kept, row]
        self.collector.emit((word,), rows)
        for each in rows:
            self.collector.ack(each)
        self.kept.clear()

    def ack_all_and_crash(self, row):
        for each in (row, *self.kept):
            self.collector.ack(each)
        self.kept.clear()
        raise ValueError("unexpected")

    def anchor_late(self, row):
        self.collector.ack(row)
        self.collector.emit(("x",), [row])

    def cleanup(self):
        for row in self.kept:
            self.collector.emit(("cleaned",), [row])
            self.collector.ack(row)


def rich(lines, engine=None, tasks=1):
    builder = a_builder(1)
    builder.set_bolt("rich", Rich).shuffle_grouping("spout")
    builder.set_bolt("collect", Collect, tasks).fields_grouping("rich", ["word"])
    return run(builder, lines, engine)


@ENGINES
@pytest.mark.parametrize("tasks", [1, 3])
def test_a_rich_bolt_decides_for_each_row(engine, tasks):
    lines = [
        "ack",
        "ack twice",
        "fail",
        "forget",
        "crash",
        "loose late",
        "emit a b",
        "emit a late",
        "anchor_twice c",
    ]

    _, completed, failed, waiting = rich(lines, engine, tasks)

    assert sorted(completed) == [0, 1, 5, 6, 8]
    assert sorted(failed) == [2, 4, 7]
    assert waiting == [3]


@pytest.mark.parametrize(
    ("word", "completed", "failed"), [("ok", [0, 1, 2], []), ("late", [], [0, 1, 2])]
)
def test_a_row_anchored_on_several_records_decides_for_all(word, completed, failed):
    _, done, lost, _ = rich(["keep", "keep", f"join {word}"])

    assert (sorted(done), sorted(lost)) == (completed, failed)


def test_what_is_acked_in_cleanup_still_counts():
    _, completed, _, waiting = rich(["keep", "ack"])

    assert (sorted(completed), waiting) == ([0, 1], [])
    assert seen == ["cleaned"]


def test_a_record_that_is_anchored_on_after_its_ack_fails_alone():
    chunk, completed, failed, _ = rich(["ack", "anchor_late", "ack"])

    assert chunk.failure is None
    assert completed == [0, 2]
    (failure,) = chunk.failed
    assert "anchored" in failure.reason
    assert failed == failure.roots.tolist() == [1]


@pytest.mark.parametrize("kept", [0, 1])
def test_a_row_that_raises_after_it_was_acked_fails(kept):
    _, completed, failed, _ = rich([*["keep"] * kept, "ack_all_and_crash", "ack"])

    assert (completed, failed) == ([*range(kept), kept + 1], [kept])


# --- what is nobody's record ---


class Misdeclared(BasicBolt):
    fields = ("word",)

    def execute(self, row, collector):
        collector.emit((row.line,), stream="nowhere")


class CannotPrepare(Collect):
    def prepare(self, context):
        raise OSError("no database")


class AsksToWait(Collect):
    def prepare(self, context):
        raise FailedException("not yet")


def test_a_bolt_that_contradicts_its_declaration_stops_the_topology():
    builder = a_builder(1)
    builder.set_bolt("bolt", Misdeclared).shuffle_grouping("spout")

    chunk, *_ = run(builder, ["a"] * 20)

    assert isinstance(chunk.failure, BatchStopped)
    assert isinstance(chunk.failure.error, ComponentError)
    assert chunk.failure.error.component == "bolt"


@pytest.mark.parametrize(
    ("bolt", "reason"),
    [(CannotPrepare, "OSError: no database"), (AsksToWait, "not yet")],
)
def test_a_bolt_that_cannot_be_prepared_fails_the_chunk(bolt, reason):
    builder = a_builder()
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout")

    chunk, *_ = run(builder, ["a"])

    assert chunk.failure == BatchFailed(ATTEMPT, "bolt", 0, f"prepare: {reason}")
    assert isinstance(chunk.failure.stops, ComponentError)


class CannotCleanUp(Collect):
    def cleanup(self):
        raise OSError("the last rows were not written")


def test_a_cleanup_that_raises_fails_the_chunk():
    builder = a_builder(1)
    builder.set_bolt("bolt", CannotCleanUp).shuffle_grouping("spout")

    chunk, *_ = run(builder, [""])

    reason = "cleanup: OSError: the last rows were not written"
    assert chunk.failure == BatchFailed(ATTEMPT, "bolt", 0, reason)
    assert chunk.failure.stops is None


class Cut(BasicBolt):
    """An untyped field; a line that begins with # becomes what cannot be pickled."""

    fields = ("line", "rest")

    def execute(self, row, collector):
        rest = Lock() if row.line.startswith("#") else b""
        collector.emit((row.line, rest))


class CollectLines(BasicBolt):
    def execute(self, row, collector):
        seen.append(row.line)


@ENGINES
def test_a_record_whose_row_cannot_be_pickled_fails_alone(engine):
    builder = a_builder(1)
    builder.set_bolt("cut", Cut).shuffle_grouping("spout")
    builder.set_bolt("collect", CollectLines, 2).fields_grouping("cut", ["line"])

    chunk, completed, failed, _ = run(builder, ["a", "b", "#c", "d", "#e"], engine)

    assert (completed, failed) == ([0, 1, 3], [2, 4])
    assert sorted(seen) == ["a", "b", "d"]
    assert all(failure.component == "cut" for failure in chunk.failed)
    assert all("cannot be pickled" in failure.reason for failure in chunk.failed)


class OneWay(Exception):  # noqa: N818 - what users write
    """As ``Exception`` pickles it, it cannot be read back."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class EmitsOneWay(BasicBolt):
    fields = ("line",)

    def execute(self, row, collector):
        is_odd = row.line.startswith("#")
        collector.emit((OneWay(1, row.line) if is_odd else row.line,))


@pytest.mark.parametrize("on_driver", [False, True])
def test_a_row_that_cannot_be_read_back_fails_its_chunk_and_does_not_stop(on_driver):
    builder = a_builder(1)
    builder.set_bolt("odd", EmitsOneWay).shuffle_grouping("spout")
    collect = builder.set_bolt("collect", CollectLines, 2).shuffle_grouping("odd")
    if on_driver:
        collect.on_driver()

    chunk, *_ = run(builder, ["a", "#b", "c"], LocalEngine(travels=True))

    assert isinstance(chunk.failure, BatchFailed)
    assert chunk.failure.stops is None
    assert str(chunk.failure).startswith("component 'collect', task ")
    assert "unpickle: TypeError: " in chunk.failure.reason


def raises(error):
    raise error


class NeedsPackage:
    def __init__(self, error):
        self._error = error

    def __reduce__(self):
        return raises, (self._error,)


class EmitsNeedy(BasicBolt):
    fields = ("line",)

    def __init__(self, error):
        self._error = error

    def execute(self, row, collector):
        collector.emit((NeedsPackage(self._error),))


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'sales'"),
        AttributeError("Can't get attribute 'Order' on <module 'sales' from …>"),
    ],
)
def test_a_package_that_only_some_machines_have_stops_the_topology(error):
    """Or of which some have an older version."""
    builder = a_builder(1)
    builder.set_bolt("odd", EmitsNeedy(error)).shuffle_grouping("spout")
    builder.set_bolt("collect", CollectLines, 2).shuffle_grouping("odd")

    chunk, *_ = run(builder, ["a"], LocalEngine(travels=True))

    assert isinstance(chunk.failure, BatchStopped)
    assert str(error) in str(chunk.failure.error)


class Unreadable(GivenRecords):
    def read(self, task, tasks, facts):
        yield from ()
        raise FetchError("no progress")


def test_a_source_that_cannot_be_read_now_fails_the_chunk():
    builder = a_builder(1)
    builder.set_bolt("collect", Upper).shuffle_grouping("spout")

    chunk = run_chunk(
        builder.build().plan, ATTEMPT, {"spout": Unreadable(())}, LocalEngine()
    )

    assert isinstance(chunk.failure, BatchFailed)
    assert chunk.failure.component == "spout"


class OfOnePartition(GivenRecords):
    def read(self, task, tasks, facts):
        yield from super().read(task, tasks, {})
        facts["t-0"] = {"records": task, "errors": [f"of {task}"]}


def test_what_several_tasks_found_out_about_a_partition_is_joined():
    builder = a_builder(3)
    builder.set_bolt("collect", Upper).shuffle_grouping("spout")

    chunk = run_chunk(
        builder.build().plan, ATTEMPT, {"spout": OfOnePartition(())}, LocalEngine()
    )

    assert chunk.facts["t-0"]["records"] == 0 + 1 + 2
    assert sorted(chunk.facts["t-0"]["errors"]) == ["of 0", "of 1", "of 2"]


class ReadsUntil(GivenRecords):
    """Reads so many blocks: then the time is over."""

    until: ClassVar[list[int]] = []

    def read(self, task, tasks, facts):
        yield from islice(super().read(task, tasks, facts), self.until[-1])


class RunsAgain(LocalEngine):
    """Runs the tasks of the first wave twice.

    Each task of the second wave gets what each task of the first one sent in one of
    its runs.
    """

    taken: ClassVar[list[list[int]]] = []
    reads: ClassVar[list[int]] = []

    def run_tasks(self, job):
        runs = []
        for until in self.reads:
            ReadsUntil.until[:] = [until]
            runs.append([list(job.run_partition(0, task, ())) for task in range(2)])
        inboxes = (
            [
                message
                for task, run in enumerate(self.taken[to])
                for target, message in runs[run][task]
                if target == to
            ]
            for to in range(2)
        )
        return [
            message
            for to, inbox in enumerate(inboxes)
            for _, message in job.run_partition(1, to, inbox)
        ]


def run_again(reads, taken):
    seen.clear()
    RunsAgain.reads[:], RunsAgain.taken[:] = reads, taken
    builder = a_builder(2)
    builder.set_bolt("collect", CollectLines, 2).fields_grouping("spout", ["line"])
    records = {"spout": ReadsUntil(tuple([(f"l{n}",)] for n in range(20)))}
    return run_chunk(builder.build().plan, ATTEMPT, records, RunsAgain())


def test_a_task_that_ran_twice_and_sent_other_rows_loses_the_chunk_not_the_rows():
    chunk = run_again([10, 5], [[0, 0], [1, 0]])

    assert isinstance(chunk.failure, BatchFailed)
    assert chunk.failure.stops is None
    assert "ran a task again" in str(chunk.failure)


RUN = st.integers(0, 1)
TAKEN = st.lists(st.lists(RUN, min_size=2, max_size=2), min_size=2, max_size=2)


@given(st.lists(st.integers(0, 10), min_size=2, max_size=2), TAKEN)
def test_whatever_runs_again_no_record_completes_whose_row_was_given_to_no_bolt(
    reads, taken
):
    chunk = run_again(reads, taken)

    if chunk.failure is None:
        completed = chunk.settle(0, 20).completed.tolist()
        assert {f"l{root}" for root in completed} <= set(seen)
    else:
        assert taken[0] != taken[1]


# --- poison in batches ---


class CountsCalls(SplitArrow):
    calls: list = []  # noqa: RUF012 - shared on purpose

    def execute_arrow(self, batch, collector):
        self.calls.append(batch.num_rows)
        super().execute_arrow(batch, collector)


def batch_of(lines):
    builder = a_builder(1)
    builder.set_bolt("split", CountsCalls).shuffle_grouping("spout")
    CountsCalls.calls.clear()
    records = {"spout": GivenRecords(([(line,) for line in lines],))}
    chunk = run_chunk(builder.build().plan, ATTEMPT, records, LocalEngine())
    return {root for failed in chunk.failed for root in failed.roots.tolist()}


def test_one_poison_record_in_a_batch_is_found_in_a_few_calls():
    lines = ["a"] * 1_000
    lines[637] = "crash"

    assert batch_of(lines) == {637}
    assert len(CountsCalls.calls) <= 2 * 10 + 1


def test_when_everything_fails_each_record_fails_in_a_call_of_its_own():
    assert batch_of(["fail"] * 4_000) == set(range(4_000))
    assert CountsCalls.calls.count(1) == 4_000


def test_no_record_fails_for_its_neighbours_however_many_fail():
    lines = ["fail" if n % 10 == 0 else "a" for n in range(4_000)]

    assert batch_of(lines) == set(range(0, 4_000, 10))


# --- builder ---


class Batch(BatchBolt):
    def execute(self, row):
        pass


class Unpicklable(Lines):
    def empty_chunk(self):
        return Lock()


def _batch_bolt(builder):
    builder.set_bolt("sum", Batch).shuffle_grouping("spout")


def _frame(builder):
    builder.set_bolt("f", DataFrameBolt(len, "n int")).shuffle_grouping("spout")


def _second_spout(builder):
    builder.set_spout("spout", Lines())


def _bad_spout(builder):
    builder.set_spout("bad", Unpicklable())


def _no_fields(builder):
    builder.set_spout("bad", Lines(()))


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (_batch_bolt, "component 'sum': a batch bolt cannot be used in this topology"),
        (_frame, "component 'f': a DataFrame bolt cannot be used in this topology"),
        (_second_spout, "component 'spout': two components have this name"),
        (_bad_spout, "component 'bad' cannot be sent to executors"),
        (_no_fields, "component 'bad': the spout declares no fields"),
    ],
)
def test_what_an_at_least_once_topology_cannot_have_is_refused(declare, text):
    builder = a_builder()
    declare(builder)

    with pytest.raises(ConfigError) as refused:
        builder.build()

    assert text in str(refused.value)


def test_a_topology_without_a_spout_is_refused():
    with pytest.raises(ConfigError, match="the topology has no spout"):
        TopologyBuilder("t").build()


def test_several_spouts_feed_one_topology():
    builder = a_builder(1)
    other = Lines()
    builder.set_spout("other", other, 2)
    builder.set_bolt("split", Split, 2).fields_grouping("spout", ["line"]).all_grouping(
        "other"
    )
    topology = builder.build()
    assert topology.spouts["other"] is other

    records = {
        "spout": GivenRecords(([("a fail",)],), first_root=0),
        "other": GivenRecords(([("b",)], [("c",)]), first_root=1),
    }
    chunk = run_chunk(topology.plan, ATTEMPT, records, LocalEngine())
    ended = chunk.settle(0, 3)

    assert sorted(ended.completed.tolist()) == [1, 2]
    assert ended.failed.tolist() == [0]
    assert "topology words" in topology.describe()


# --- anything, anywhere ---


WORDS = st.lists(st.sampled_from(["a", "b", "fail", "crash", "late", "x"]), max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(WORDS, max_size=12),
    st.sampled_from([Split, SplitArrow]),
    st.integers(1, 4),
    st.sampled_from(["shuffle", "fields", "all", "global"]),
    st.booleans(),
)
def test_a_record_completes_exactly_when_nothing_of_it_failed(
    lines, split, tasks, grouping, travels
):
    seen.clear()
    builder = a_builder()
    builder.set_bolt("split", split).shuffle_grouping("spout")
    bolt = builder.set_bolt("collect", Collect, tasks)
    if grouping == "fields":
        bolt.fields_grouping("split", ["word"])
    else:
        getattr(bolt, f"{grouping}_grouping")("split")

    engine = LocalEngine(travels=travels)
    _, completed, failed, waiting = run(builder, [" ".join(w) for w in lines], engine)

    guilty = {
        n for n, words in enumerate(lines) if {"fail", "crash", "late"} & {*words}
    }
    assert sorted(failed) == sorted(guilty)
    assert sorted(completed) == sorted(set(range(len(lines))) - guilty)
    assert waiting == []
