"""Errors of users' code, whatever they are."""

from __future__ import annotations

import asyncio
import pickle
import sys
from typing import Any

import pyarrow as pa
import pytest

from kafka_tx.errors import ComponentError, FailedException, KafkaTxError
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.at_least_once.topology import TopologyBuilder
from kafka_tx.topology.at_least_once.chunks import run_chunk
from kafka_tx.topology.declare.bolts import BasicBolt, RichBolt
from kafka_tx.topology.reasons import LONGEST, cut, reason_of
from kafka_tx.topology.run.messages import BatchStopped
from kafka_tx.topology.run.task_failures import failure_of
from tests.local_engine import GivenRecords, LocalEngine, WordSpout

ATTEMPT = TransactionAttempt(1, 1)


class Mute(Exception):  # noqa: N818 - a user's
    def __str__(self):
        raise RuntimeError("no text")


class Unpicklable(KafkaTxError):  # noqa: N818 - a user's
    def __init__(self, message, lock=None):
        super().__init__(message)
        self.lock = lambda: lock


def misbehave(word):
    match word:
        case "exit":
            sys.exit("bye")
        case "cancel":
            raise asyncio.CancelledError
        case "mute":
            raise Mute
        case "surrogate":
            raise ValueError("\ud800")
        case "large":
            raise ValueError("x" * 100_000)
        case "odd":
            raise FailedException(7)  # type: ignore[arg-type]
        case "lock":
            raise Unpicklable("locked")
        case _:
            pass


class Rows(BasicBolt):
    fields = "word string, number int"

    def execute(self, row, collector):
        misbehave(row.word)
        collector.emit((row.word, "no number" if row.word == "type" else 1))


class Rich(RichBolt):
    fields = "word string, number int"

    def prepare(self, context, collector):
        self.collector = collector

    def execute(self, row):
        misbehave(row.word)
        values = (row.word, "no number" if row.word == "type" else 1)
        self.collector.emit(values, [row])
        self.collector.ack(row)


class Batches(BasicBolt):
    def execute_arrow(self, batch, collector):
        for word in batch.column(batch.schema.get_field_index("word")).to_pylist():
            misbehave(word)


WORDS = ["a", "exit", "b", "cancel", "mute", "surrogate", "large", "odd", "lock", "c"]


def run(builder, words):
    records = {"spout": GivenRecords(([(word,) for word in words],))}
    engine = LocalEngine(travels=True)
    chunk = run_chunk(builder.build().plan, ATTEMPT, records, engine)
    assert chunk.failure is None
    settled = chunk.settle(0, len(words))
    reasons = {words[r]: f.reason for f in chunk.failed for r in f.roots.tolist()}
    return [words[r] for r in settled.completed.tolist()], reasons


@pytest.mark.parametrize("bolt", [Rows, Rich, Batches])
def test_whatever_a_bolt_raises_fails_its_own_record(bolt):
    builder = TopologyBuilder("job")
    builder.set_spout("spout", WordSpout())
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout")

    completed, reasons = run(builder, WORDS)

    assert completed == ["a", "b", "c"]
    assert reasons["exit"] == "SystemExit: bye"
    assert reasons["cancel"].startswith("CancelledError")
    assert reasons["mute"] == "Mute: (its text cannot be had)"
    assert reasons["surrogate"] == "ValueError: ?"
    assert reasons["odd"] == "7"
    assert len(reasons["large"].encode()) <= LONGEST


@pytest.mark.parametrize("bolt", [Rows, Rich])
def test_a_value_of_another_type_fails_its_own_record(bolt):
    builder = TopologyBuilder("job")
    builder.set_spout("spout", WordSpout())
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout")
    builder.set_bolt("next", Batches).shuffle_grouping("bolt")

    completed, reasons = run(builder, ["a", "type", "b"])

    assert completed == ["a", "b"]
    assert "in field 'number'" in reasons["type"]


class Ungroupable(BasicBolt):
    fields = ("word",)

    def execute(self, row, collector):
        collector.emit((object() if row.word == "odd" else row.word,))


def test_a_value_that_cannot_be_grouped_fails_its_own_record():
    builder = TopologyBuilder("job")
    builder.set_spout("spout", WordSpout())
    builder.set_bolt("bolt", Ungroupable).shuffle_grouping("spout")
    builder.set_bolt("next", Rows, 2).on_executors().fields_grouping("bolt", ["word"])

    completed, reasons = run(builder, ["a", "odd", "b"])

    assert completed == ["a", "b"]
    assert set(reasons) == {"odd"}


@pytest.mark.parametrize("error", [Mute(), Unpicklable("locked"), SystemExit(3)])
def test_what_stops_a_topology_can_always_be_sent(error):
    failure: Any = failure_of(error, ATTEMPT, "bolt", 0, is_spout=False)

    assert isinstance(failure, BatchStopped)
    arrived = pickle.loads(pickle.dumps(failure)).error
    assert isinstance(arrived, ComponentError)
    assert "component 'bolt', task 0" in str(arrived)
    assert type(error).__name__ in str(arrived)


def test_texts_are_cut_between_characters():
    assert cut("Köln", 5) == "Köln"
    assert cut("Kölner", 5) == "K…"
    assert cut("Kölner", 6) == "Kö…"
    assert reason_of(ValueError("bad")) == "ValueError: bad"


class Large(BasicBolt):
    fields = "word string"

    def execute(self, row, collector):
        collector.emit((row.word * (3 << 20),))


class LargeBatch(BasicBolt):
    fields = "word string"

    def execute_arrow(self, batch, collector):
        words = [word * (3 << 20) for word in batch.column("word").to_pylist()]
        collector.emit_arrow(pa.RecordBatch.from_pydict({"word": words}))


class Sink(BasicBolt):
    def execute(self, row, collector):
        assert len(row.word) == 3 << 20


@pytest.mark.parametrize("bolt", [Large, LargeBatch])
def test_packets_are_bounded_by_bytes(bolt):
    builder = TopologyBuilder("job")
    builder.set_spout("spout", WordSpout())
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout")
    builder.set_bolt("sink", Sink, 2).on_executors().fields_grouping("bolt", ["word"])
    sizes: list[int] = []

    class Watching(LocalEngine):
        def _moved(self, given):
            if isinstance(given, list):
                sizes.extend(len(pickle.dumps(m)) for box in given for m in box)
            return super()._moved(given)

    records = {"spout": GivenRecords(([(w,) for w in "abcdefghij"],))}
    chunk = run_chunk(builder.build().plan, ATTEMPT, records, Watching())

    assert chunk.failure is None
    assert not chunk.failed
    assert 6 << 20 < max(sizes) < 9 << 20
