"""Whole attempts: routing, phases, empty batches, failures, mixed kinds of bolts."""

from collections import Counter
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kafka_tx.errors import ComponentError, ConfigError, FailedException
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.transactional.topology import TransactionalTopologyBuilder
from kafka_tx.topology.declare.bolts import BasicBolt, BatchBolt, DataFrameBolt
from kafka_tx.topology.declare.memory_spouts import MemoryTransactionalSpout
from kafka_tx.topology.run.messages import BatchFailed, BatchStopped
from tests.local_engine import GivenBlocks, LocalEngine, run_commit, run_processing

LINES = ["the cow jumped", "over the moon", "the end", "moon the cow"]
WORDS = Counter(" ".join(LINES).split())
ATTEMPT = TransactionAttempt(1, 11)
ENGINES = pytest.mark.parametrize(
    "engine",
    [
        LocalEngine(),
        LocalEngine(travels=True),
        LocalEngine(travels=True, is_together=True),
    ],
    ids=["in place", "travelling", "together"],
)

log: list = []
"""What the bolts below have done, in order; cleared before every test."""


@pytest.fixture(autouse=True)
def _empty_log():
    log.clear()


class Split(BasicBolt):
    fields = ("word",)

    def execute(self, row, collector):
        for word in row.line.split():
            collector.emit((word,))


class SplitArrow(BasicBolt):
    fields = "word string"

    def execute_arrow(self, batch, collector):
        words = pc.list_flatten(pc.utf8_split_whitespace(batch.column("line")))
        collector.emit_arrow(pa.RecordBatch.from_arrays([words], names=["word"]))


class Count(BatchBolt):
    fields = ("word", "count")

    def prepare(self, context, collector):
        self.context, self.collector = context, collector
        self.counts: Counter[str] = Counter()

    def execute(self, row):
        assert row.tx == self.context.attempt
        self.counts[row.word] += 1

    def finish_batch(self):
        log.append(("count", self.context.task, sorted(self.counts)))
        for word, count in self.counts.items():
            self.collector.emit((word, count))


class CountArrow(BatchBolt):
    fields = "word string, count bigint"

    def prepare(self, context, collector):
        self.attempt, self.collector, self.batches = context.attempt, collector, []

    def execute_arrow(self, batch):
        tx = {"txid": self.attempt.txid, "attempt_id": self.attempt.attempt_id}
        assert batch.column("tx").to_pylist() == [tx] * batch.num_rows
        self.batches.append(batch)

    def finish_batch(self):
        if self.batches:
            table = pa.Table.from_batches(self.batches)
            counts = table.group_by("word").aggregate([("word", "count")])
            counts = counts.rename_columns(["word", "count"])
            self.collector.emit_arrow(counts)


class Sum(BatchBolt):
    def prepare(self, context, collector):
        self.attempt = context.attempt
        self.totals: Counter[str] = Counter()

    def execute(self, row):
        self.totals[row.word] += row.count

    def finish_batch(self):
        log.append(("sum", self.attempt, dict(self.totals)))


def a_builder(parallelism=2):
    rows = [(line,) for line in LINES]
    spout = MemoryTransactionalSpout({0: rows[:2], 1: rows[2:]}, "line string", 10)
    return TransactionalTopologyBuilder("words", "spout", spout, parallelism)


def a_batch(topology, attempt=ATTEMPT):
    spout = topology.spout
    return spout.batch(attempt, spout.initialize_transaction(attempt.txid, None))


def run(topology, engine=None, attempt=ATTEMPT):
    processed = run_processing(topology, attempt, a_batch(topology, attempt), engine)
    if processed.failure is None:
        run_commit(processed, engine)
    return processed


# --- counting words, in every mixture ---


@ENGINES
@pytest.mark.parametrize("tasks", [1, 2, 5])
@pytest.mark.parametrize("count", [Count, CountArrow])
@pytest.mark.parametrize("split", [Split, SplitArrow])
def test_rows_and_arrow_bolts_mix_freely(split, count, tasks, engine):
    builder = a_builder()
    builder.set_bolt("split", split).shuffle_grouping("spout")
    builder.set_bolt("count", count, tasks).fields_grouping("split", ["word"])
    builder.set_committer_bolt("sum", Sum).global_grouping("count")

    processed = run(builder.build(), engine)

    assert processed.failure is None
    assert log[-1] == ("sum", ATTEMPT, WORDS)
    assert processed.emitted == {
        "spout": 4,
        "split": WORDS.total(),
        "count": len(WORDS),
        "sum": 0,
    }


def test_a_key_is_counted_by_one_task_only():
    builder = a_builder()
    builder.set_bolt("split", Split).shuffle_grouping("spout")
    builder.set_bolt("count", Count, 3).fields_grouping("split", ["word"])

    run(builder.build())

    keys = [word for _, _, words in log for word in words]
    assert sorted(keys) == sorted(WORDS)


def test_the_same_batch_is_routed_the_same_way_again():
    builder = a_builder()
    builder.set_bolt("split", Split).shuffle_grouping("spout")
    builder.set_bolt("count", Count, 3).shuffle_grouping("split")
    topology = builder.build()

    run(topology)
    first = list(log)
    log.clear()
    run(topology, LocalEngine(travels=True), TransactionAttempt(1, 12))

    assert log == first


def test_all_grouping_gives_every_task_every_row():
    builder = a_builder()
    builder.set_bolt("split", Split).shuffle_grouping("spout")
    builder.set_bolt("count", Count, 3).all_grouping("split")

    run(builder.build())

    assert log == [("count", task, sorted(WORDS)) for task in range(3)]


class ToTwoStreams(BasicBolt):
    fields = ("word",)
    streams = {"long": ("word", "length")}  # noqa: RUF012 - as users write it

    def execute(self, row, collector):
        for word in row.line.split():
            collector.emit((word,))
            if len(word) > 3:
                collector.emit((word, len(word)), stream="long")


class Lengths(BatchBolt):
    def prepare(self, context, collector):
        self.seen = []

    def execute(self, row):
        self.seen.append((row._source, row._stream, row.word, row.length))

    def finish_batch(self):
        log.append(sorted(self.seen))


def test_named_streams_reach_only_those_who_read_them():
    builder = a_builder()
    builder.set_bolt("split", ToTwoStreams).shuffle_grouping("spout")
    builder.set_committer_bolt("sum", Lengths).global_grouping("split", stream="long")

    run(builder.build())

    assert log == [
        [
            ("split", "long", "jumped", 6),
            ("split", "long", "moon", 4),
            ("split", "long", "moon", 4),
            ("split", "long", "over", 4),
        ]
    ]


# --- phases ---


class Step(BatchBolt):
    fields = ("n",)

    def prepare(self, context, collector):
        self.name, self.collector, self.sum = context.component, collector, 0

    def execute(self, row):
        log.append(f"{self.name} executes {row.n} from {row._source}")
        self.sum += row.n

    def finish_batch(self):
        log.append(f"{self.name} finishes with {self.sum}")
        self.collector.emit((self.sum,))

    def cleanup(self):
        log.append(f"{self.name} cleans up")


def abcd(**parallelism):
    spout = MemoryTransactionalSpout({0: [(1,), (2,)]}, ("n",), 10)
    builder = TransactionalTopologyBuilder("phases", "spout", spout)
    builder.set_bolt("A", Step).shuffle_grouping("spout")
    builder.set_committer_bolt("B", Step, parallelism.get("B")).shuffle_grouping("A")
    builder.set_bolt("C", Step).shuffle_grouping("A").shuffle_grouping("B")
    builder.set_committer_bolt("D", Step).shuffle_grouping("C")
    return builder.build()


@ENGINES
def test_what_is_below_a_committer_finishes_in_the_commit_phase(engine):
    topology = abcd()

    processed = run_processing(topology, ATTEMPT, a_batch(topology), engine)

    assert log[:4] == [
        "A executes 1 from spout",
        "A executes 2 from spout",
        "A finishes with 3",
        "A cleans up",
    ]
    assert sorted(log[4:]) == ["B executes 3 from A", "C executes 3 from A"]

    log.clear()
    run_commit(processed, engine)

    assert [line for line in log if "cleans" not in line] == [
        "B finishes with 3",
        "C executes 3 from B",
        "C finishes with 6",
        "D executes 6 from C",
        "D finishes with 6",
    ]


@ENGINES
def test_committers_on_executors_keep_what_they_executed(engine):
    spout = MemoryTransactionalSpout({n: [(n,), (10,)] for n in range(4)}, ("n",), 10)
    builder = TransactionalTopologyBuilder("phases", "spout", spout, 4)
    builder.set_committer_bolt("B", Step, 4).shuffle_grouping("spout")
    builder.set_bolt("C", Step).global_grouping("B")
    topology = builder.build()

    processed = run_processing(topology, ATTEMPT, a_batch(topology), engine)
    assert not [line for line in log if "finishes" in line]
    run_commit(processed, engine)

    finished = [line for line in log if "finishes" in line]
    assert finished == [
        *(f"B finishes with {10 + n}" for n in range(4)),
        "C finishes with 46",
    ]
    assert log.count("B cleans up") == 4


class EmitsEarly(Step):
    def execute(self, row):
        self.collector.emit((row.n * 100,))


@ENGINES
@pytest.mark.parametrize("tasks", [1, 4])
def test_what_a_committer_emits_in_execute_travels_in_the_commit_phase(engine, tasks):
    spout = MemoryTransactionalSpout({n: [(n,)] for n in range(4)}, ("n",), 10)
    builder = TransactionalTopologyBuilder("phases", "spout", spout, 4)
    builder.set_committer_bolt("B", EmitsEarly, tasks).shuffle_grouping("spout")
    builder.set_bolt("C", Step).global_grouping("B")
    topology = builder.build()

    processed = run_processing(topology, ATTEMPT, a_batch(topology), engine)
    assert log == []
    run_commit(processed, engine)

    assert "C finishes with 600" in log


def test_a_commit_of_driver_committers_runs_no_job():
    jobs = []

    class Counting(LocalEngine):
        def run_tasks(self, job):
            jobs.append(job)
            return super().run_tasks(job)

    topology = abcd()
    processed = run_processing(topology, ATTEMPT, a_batch(topology), Counting())
    assert len(jobs) == 1
    run_commit(processed, Counting())

    assert len(jobs) == 1
    assert "D finishes with 6" in log


# --- empty batches ---


@ENGINES
def test_an_empty_batch_emits_its_zero_result(engine):
    topology = abcd()

    processed = run_processing(topology, ATTEMPT, [], engine)
    run_commit(processed, engine)

    assert processed.failure is None
    assert [line for line in log if "finishes" in line] == [
        "A finishes with 0",
        "B finishes with 0",
        "C finishes with 0",
        "D finishes with 0",
    ]


def test_tasks_without_rows_finish_too():
    builder = a_builder()
    builder.set_bolt("count", Step, 7).fields_grouping("spout", ["line"])

    run_processing(builder.build(), ATTEMPT, [])

    assert log.count("count finishes with 0") == 7


# --- failures ---


class Failing(Step):
    """Fails where its name says, while ``armed`` holds."""

    armed: set = set()  # noqa: RUF012 - shared on purpose

    def _at(self, place):
        if place in self.armed:
            raise FailedException(f"not in {place}")
        if f"crash {place}" in self.armed:
            raise ValueError(f"crashed in {place}")

    def prepare(self, context, collector):
        super().prepare(context, collector)
        self._at("prepare")

    def execute(self, row):
        super().execute(row)
        self._at("execute")

    def finish_batch(self):
        super().finish_batch()
        self._at("finish")

    def cleanup(self):
        super().cleanup()
        self._at("cleanup")


@pytest.fixture
def armed():
    Failing.armed.clear()
    yield Failing.armed
    Failing.armed.clear()


def failing_topology(committer, tasks):
    spout = MemoryTransactionalSpout({0: [(1,)], 1: [(2,)]}, ("n",), 10)
    builder = TransactionalTopologyBuilder("t", "spout", spout, 2)
    declare = builder.set_committer_bolt if committer else builder.set_bolt
    declare("F", Failing, tasks).fields_grouping("spout", ["n"])
    return builder.build()


@ENGINES
@pytest.mark.parametrize("place", ["prepare", "execute", "finish", "cleanup"])
@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("committer", [True, False])
def test_a_failed_exception_anywhere_fails_the_batch_and_cleans_up(
    committer, tasks, place, engine, armed
):
    topology = failing_topology(committer, tasks)
    armed.add(place)

    processed = run(topology, engine)

    assert isinstance(processed.failure, BatchFailed)
    assert processed.failure.attempt == ATTEMPT
    assert processed.failure.component == "F"
    assert processed.failure.reason == f"not in {place}"
    assert "F cleans up" in log


@ENGINES
@pytest.mark.parametrize("place", ["prepare", "execute", "finish", "cleanup"])
@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("committer", [True, False])
def test_any_other_error_stops_with_component_and_attempt(
    committer, tasks, place, engine, armed
):
    topology = failing_topology(committer, tasks)
    armed.add(f"crash {place}")

    processed = run(topology, engine)

    assert isinstance(processed.failure, BatchStopped)
    error = processed.failure.error
    assert isinstance(error, ComponentError)
    assert (error.component, error.txid, error.attempt_id) == ("F", 1, 11)
    assert f"ValueError: crashed in {place}" in str(error)


def test_after_a_failure_nothing_more_runs_and_the_driver_is_cleaned_up(armed):
    spout = MemoryTransactionalSpout({0: [(1,)]}, ("n",), 10)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    builder.set_committer_bolt("first", Step).global_grouping("spout")
    builder.set_committer_bolt("F", Failing).global_grouping("spout")
    builder.set_committer_bolt("last", Step).global_grouping("spout")
    topology = builder.build()
    processed = run_processing(topology, ATTEMPT, a_batch(topology))
    armed.add("finish")
    log.clear()

    run_commit(processed)

    assert isinstance(processed.failure, BatchFailed)
    assert log == [
        "first finishes with 1",
        "first cleans up",
        "F finishes with 1",
        "F cleans up",
        "last cleans up",
    ]


def test_an_abandoned_attempt_cleans_up_its_committers():
    topology = abcd()
    processed = run_processing(topology, ATTEMPT, a_batch(topology))
    log.clear()

    processed.abandon()
    processed.abandon()

    assert log == ["B cleans up", "C cleans up"]


class StopsReading(Step):
    def execute(self, row):
        raise FailedException("enough")


def test_a_failed_task_still_takes_all_its_input():
    spout = MemoryTransactionalSpout({0: []}, ("n",), 10)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    builder.set_bolt("F", StopsReading, 2).fields_grouping("spout", ["n"])
    topology = builder.build()
    jobs = []

    class Watching(LocalEngine):
        def run_tasks(self, job):
            jobs.append(job)
            return super().run_tasks(job)

    run_processing(topology, ATTEMPT, [[(n,) for n in range(20_000)]], Watching())
    (job,) = jobs
    first = list(job.run_partition(0, 0, []))
    packets = iter([message for _, message in first])

    results = [message for _, message in job.run_partition(1, 0, packets)]

    assert any(isinstance(message, BatchFailed) for message in results)
    assert next(packets, None) is None


# --- state between the phases ---


def processed_by(committer):
    """A batch of one row, whose committer waits for its phase on an executor."""
    spout = MemoryTransactionalSpout({0: [(1,)]}, ("n",), 10)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    declared = builder.set_committer_bolt("B", committer)
    declared.global_grouping("spout").on_executors()
    return run(builder.build())


class HoldsAConnection(Step):
    def execute(self, row):
        self.connection = Lock()


def test_what_cannot_wait_for_the_commit_phase_names_its_component():
    processed = processed_by(HoldsAConnection)

    assert isinstance(processed.failure, BatchStopped)
    assert isinstance(processed.failure.error, ComponentError)
    assert processed.failure.error.component == "B"
    assert "cannot be pickled" in str(processed.failure.error)


class WritesWhatItHolds(Step):
    def __getstate__(self):
        raise FailedException("the broker is away")


def test_a_bolt_that_writes_before_it_waits_asks_for_a_replay():
    processed = processed_by(WritesWhatItHolds)

    assert isinstance(processed.failure, BatchFailed)
    assert "the broker is away" in processed.failure.reason


def test_a_connection_on_the_driver_lives_through_both_phases():
    spout = MemoryTransactionalSpout({0: [(1,)]}, ("n",), 10)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    builder.set_committer_bolt("B", HoldsAConnection).global_grouping("spout")

    assert run(builder.build()).failure is None


# --- DataFrame bolts ---


def keep_long(table):
    return table.filter(pc.greater(pc.utf8_length(table.column("word")), 3))


def lengths(table):
    return table.append_column("length", pc.utf8_length(table.column("word")))


def joined(left, right):
    return left.select(["word"]).join(
        right.select(["word", "count"]), "word", join_type="inner"
    )


FRAMES = LocalEngine(travels=True, to_frame=lambda table: table)


class SumOfLengths(BatchBolt):
    def prepare(self, context, collector):
        self.total = 0

    def execute(self, row):
        self.total += row.length

    def finish_batch(self):
        log.append(self.total)


def test_dataframe_bolts_take_part_as_tables():
    builder = a_builder()
    builder.set_bolt("split", SplitArrow).shuffle_grouping("spout")
    builder.set_bolt("long", DataFrameBolt(keep_long, "word string")).shuffle_grouping(
        "split"
    )
    builder.set_bolt(
        "lengths", DataFrameBolt(lengths, "word string, length int")
    ).shuffle_grouping("long")
    builder.set_committer_bolt("sum", SumOfLengths).global_grouping("lengths")

    processed = run(builder.build(), FRAMES)

    assert processed.failure is None
    assert log == [len("jumped") + len("over") + len("moon") * 2]


def test_a_dataframe_bolt_may_join_several_sources():
    builder = a_builder()
    builder.set_bolt("split", SplitArrow).shuffle_grouping("spout")
    builder.set_bolt("count", CountArrow, 2).fields_grouping("split", ["word"])
    bolt = DataFrameBolt(joined, "word string, count bigint")
    builder.set_bolt("join", bolt).shuffle_grouping("split").shuffle_grouping("count")
    builder.set_committer_bolt("sum", Sum).global_grouping("join")

    run(builder.build(), FRAMES)

    assert log[-1][2] == {word: count * count for word, count in WORDS.items()}


class EmitsLine(BatchBolt):
    fields = "line string"

    def prepare(self, context, collector):
        self.collector = collector

    def execute(self, row):
        self.collector.emit((row.line.upper(),))


def test_a_dataframe_bolt_below_a_committer_runs_in_the_commit_phase():
    builder = a_builder()
    builder.set_committer_bolt("B", EmitsLine).global_grouping("spout")
    seen = []

    def union(from_committer, from_spout):
        seen.append((from_committer.num_rows, from_spout.num_rows))
        return pa.concat_tables([from_committer, from_spout])

    from pyspark import cloudpickle

    bolt = DataFrameBolt(union, "line string")
    builder.set_bolt("f", lambda: bolt).shuffle_grouping("B").shuffle_grouping("spout")
    topology = builder.build(cloudpickle.dumps)
    engine = LocalEngine(to_frame=lambda table: table)

    processed = run_processing(topology, ATTEMPT, a_batch(topology), engine)
    assert seen == []
    run_commit(processed, engine)

    assert processed.failure is None
    assert seen == [(4, 4)]


def crash(table):
    raise FailedException("no table today")


def test_a_failing_dataframe_bolt_fails_the_batch():
    builder = a_builder()
    builder.set_bolt("f", DataFrameBolt(crash, "line string")).shuffle_grouping("spout")

    processed = run(builder.build(), FRAMES)

    assert processed.failure == BatchFailed(ATTEMPT, "f", 0, "no table today")


def test_an_engine_without_dataframes_says_so():
    builder = a_builder()
    builder.set_bolt("f", DataFrameBolt(crash, "line string")).shuffle_grouping("spout")

    with pytest.raises(ConfigError, match="The topology has DataFrame bolts: f"):
        run(builder.build())


# --- given blocks ---


def test_given_blocks_are_shared_among_the_tasks():
    blocks = GivenBlocks(tuple([(n,)] for n in range(5)))
    facts: dict = {}

    assert [list(blocks.read(task, 2, facts)) for task in range(2)] == [
        [[(0,)], [(2,)], [(4,)]],
        [[(1,)], [(3,)]],
    ]
