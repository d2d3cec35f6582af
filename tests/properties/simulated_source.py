"""A world around the source's planner: what happens to it, and who puts it right.

The operator does what error texts say, to the letter. In the end every record that
could be read is in the sink, and none is there twice.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kafka_tx.config import Mode
from kafka_tx.errors import (
    BatchIdsAgainError,
    CheckpointDisagreesError,
    ConfigError,
    DataLossError,
    FencedError,
    KafkaTxError,
    OutOfOrderError,
    ReplayImpossibleError,
    StateLostError,
    UnknownTopicError,
)
from kafka_tx.model import SchemaText, TopicPartition, TransactionAttempt
from kafka_tx.offsets.discovery import is_another
from kafka_tx.options.formats import fixed_option
from kafka_tx.options.source import parse_source
from kafka_tx.planning.deleted_topics import CONFIRMED_AFTER_MS
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.sinks.store_beside import check_store_beside
from kafka_tx.testing import ManualClock
from kafka_tx.transactions.layout.commit_stats import STATS, TaskSums
from kafka_tx.transactions.ledger.ledger import Committed, Ledger
from kafka_tx.transactions.ledger.ledger_reading import LedgerReader
from kafka_tx.transactions.ownership.memory import MemorySnapshot, MemoryStore
from tests.properties.simulated_log import Brokers
from tests.properties.simulated_query import Checkpoint, Query, Sink, TaskFailedError
from tests.properties.told_offsets import forget, set_offsets

ONCE = {"tx.onDisagreement": "error", "failOnDataLoss": "", "tx.mode": ""}
SETTLED_AFTER = 400

_names = map(str, itertools.count(1))
_schema_ids = itertools.count(1)


class StoreBeside(MemoryStore):
    """A store that knows the sink, where that is in the same database."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, "sim")
        self._world = world

    def sinks(self, numbering: str) -> dict[str, int]:
        newest = self._world.sink.newest
        return {"sink": newest.txid} if self._world.is_beside and newest.txid else {}

    def write(self, epoch, put, delete=(), *, expect=None):
        before = self.read()
        super().write(epoch, put, delete, expect=expect)
        if STATS in put:
            self._world.check_held(before, self.read())


class World:
    """One ``tx.id``: its topics, its store, its sink, checkpoints and runs."""

    def __init__(
        self,
        mode: Mode,
        *,
        fails: bool,
        startless: bool = False,
        connect: bool = False,
    ) -> None:
        self.mode: Mode = mode
        self.fails = fails
        self.startless = startless
        self.connect = connect
        self.must_be_classic = False
        self.clock = ManualClock()
        self.brokers = Brokers()
        self.store = StoreBeside(f"sim{next(_names)}", self)
        self.sink = Sink(mode)
        self.sink.check = self.check_store
        self.checkpoint = Checkpoint(next(_names))
        self.others: list[Checkpoint] = []
        self.query: Query | None = None
        self.frozen: list[Query] = []
        self.once: dict[str, str] = {}
        self.checkpoint_copy: Checkpoint | None = None
        self.store_copy: Any = None
        self.is_beside = False
        self.must_keep_checkpoint = False
        self.seen: Counter[str] = Counter()

    # --- runs ---

    def start(self) -> Query:
        """A run on the checkpoint, under what the operator set for one run."""
        fails = "true" if self.fails else "false"
        options = {
            "kafka.bootstrap.servers": "b:9092",
            "subscribe": "a,b",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "5",
            "tx.id": "sim",
            "tx.mode": self.mode,
            "failOnDataLoss": fails,
            "value.format": "avro",
            "value.schema": '"int"',
            # each run finds a newer schema
            **fixed_option("value", SchemaText('"int"', next(_schema_ids))),
        }
        config = parse_source(options | self.once, streaming=True)
        assert config.transactions is not None
        word = config.transactions.sink_batch_ids
        ledger = Ledger(self.store, sink_batch_ids=word)
        self.query = Query(
            config,
            self.brokers,
            ledger,
            self.checkpoint,
            self.sink,
            self.clock,
            startless=self.startless,
            connect=self.connect and not self.must_be_classic,
        )
        return self.query

    def step(self) -> None:
        """The run goes on; if it has ended, the operator reads its error first."""
        query = self.query or self.start()
        self.seen["steps"] += 1
        if not query.step():
            assert query.error is not None
            self.query = None
            self.recover(query.error)
        elif query.is_idle:
            self.once.clear()
            self.must_keep_checkpoint = self.must_be_classic = False

    def recover(self, error: KafkaTxError | TaskFailedError) -> None:
        """Do what the text says."""
        self.seen[type(error).__name__] += 1
        match error:
            case CheckpointDisagreesError():
                self.seen[f"disagreed: {error.fields['case']}"] += 1
                self._decide(str(error))
            case ReplayImpossibleError():
                self._read_what_is_left(error)
            case DataLossError():
                self.once["failOnDataLoss"] = "false"
            case OutOfOrderError():
                self.new_checkpoint()
            case BatchIdsAgainError():
                assert "or you use for_each_transaction, set tx.sink" in str(error)
                self.once["tx.sinkBatchIds"] = "ignored"
            case ConfigError():
                assert "in a classic session" in str(error)
                self.must_be_classic = True
                self.seen["finished in a classic session"] += 1
            case KafkaTxError() if not error.retryable and not isinstance(
                error, FencedError | StateLostError | UnknownTopicError
            ):
                raise error

    def _decide(self, text: str) -> None:
        may_be_new = " start with a new checkpointLocation" in text.replace(
            "Do not start with", ""
        )
        may_be_store = "tx.onDisagreement=store" in text
        asked = re.search(r"Txid (\d+) or later: set tx.onDisagreement=check", text)
        if asked and self.sink.newest.txid < int(asked[1]):
            self.seen["stores that their sinks went back with"] += 1
            if self.once.get("tx.onDisagreement") == "store":
                self.new_checkpoint()  # a batch without records cannot be finished
                self.others.pop()
            self.once["tx.onDisagreement"] = "store"
        elif "tx.onDisagreement=checkpoint" in text:
            assert "Do not start with a new checkpointLocation" in text
            self.once["tx.onDisagreement"] = "checkpoint"
        elif may_be_store and (not may_be_new or self.seen["steps"] % 2):
            if self.once.get("tx.onDisagreement") == "store":
                self.new_checkpoint()
                if not may_be_new:
                    self.others.pop()
            self.once["tx.onDisagreement"] = "store"
        else:
            assert may_be_new, text
            self.new_checkpoint()

    def _read_what_is_left(self, error: ReplayImpossibleError) -> None:
        if "It is committed" in str(error):
            self.new_checkpoint()
            return
        gone = re.findall(r" --topic ([^` ]+)", str(error))
        if any(self.brokers.exists(name) for name in gone):  # "if it is not deleted"
            self.seen["hidden topics shown"] += 1
            for name in gone:
                self.brokers.topics_[name].is_hidden = False
            return
        if not gone and "--offsets '" not in str(error):  # the planner says what to do
            self.seen["another topic was read"] += 1
            return
        self.frozen.clear()  # "no other run lives"
        txid = int(str(error.fields["txid"]))
        commands = str(error).split("--offsets '")[1:]
        if commands:  # else no topic is left
            has_it, has_it_not = commands
            text = has_it if self.sink.newest.txid >= txid else has_it_not
            set_offsets(self.store, text.partition("'")[0])
        if gone:
            self.seen["topics forgotten"] += 1
            forget(self.store, gone)
        self.new_checkpoint()

    def kill(self) -> None:
        self.query = None

    def new_checkpoint(self) -> None:
        self.query = None
        self.once.pop("tx.onDisagreement", None)
        self.others.append(self.checkpoint)
        self.checkpoint = Checkpoint(next(_names))

    # --- what happens ---

    def freeze(self) -> None:
        """The driver stops for a while; another query takes over."""
        if self.query is not None and not self.must_keep_checkpoint:
            self.frozen.append(self.query)
            self.new_checkpoint()

    def leave_checkpoint(self) -> None:
        if not self.must_keep_checkpoint:
            self.new_checkpoint()

    def wake(self, which: int) -> None:
        if self.frozen:
            query = self.frozen[which % len(self.frozen)]
            self.seen["steps of the frozen"] += 1
            if not query.step():
                self.seen[f"frozen: {type(query.error).__name__}"] += 1
                self.frozen.remove(query)

    def use_another_checkpoint(self, which: int) -> None:
        """The fenced query is started again, on what it had."""
        if self.others:
            self.query = None
            self.once.pop("tx.onDisagreement", None)
            other = self.others.pop(which % len(self.others))
            self.frozen = [q for q in self.frozen if q.checkpoint is not other]
            self.others.append(self.checkpoint)
            self.checkpoint = other
            self.checkpoint.forget_late()

    def lose_commit_entry(self) -> None:
        self.query = None
        if self.checkpoint.commits:
            self.checkpoint.commits.discard(max(self.checkpoint.commits))

    def copy_checkpoint(self) -> None:
        self.checkpoint_copy = self.checkpoint.copy()

    def restore_checkpoint(self) -> None:
        if self.checkpoint_copy is not None:
            self.query = None
            self.once.pop("tx.onDisagreement", None)
            is_older = self.checkpoint_copy.offsets != self.checkpoint.offsets
            self.seen["checkpoints put back"] += is_older
            self.checkpoint = self.checkpoint_copy.copy()
            self.checkpoint.forget_late()

    def copy_store(self) -> None:
        self.store_copy = self.store.snapshot(), self.sink.copy()

    def restore_database(self, which: int) -> None:
        """Store and sink go back together, perhaps under a query that lives on."""
        if self.store_copy is None or self.must_keep_checkpoint:
            return
        store, sink = self.store_copy
        if (
            not self._is_newest()
            or self._is_last_write(store, sink)
            or not sink[0].txid
        ):
            return
        self.once.clear()
        self.frozen.clear()
        self.others.clear()
        self.checkpoint_copy = None
        self.seen["databases that went back"] += 1
        self.is_beside = which > 0  # else two databases, from copies of one time
        self.store.restore(store)
        self.sink.put_back(sink)
        if which != 1:
            self.query = None
        self.checkpoint.forget_late()
        self.must_keep_checkpoint = True
        for _ in range(120):
            self.step()
            if self._is_idle():
                break
        self.is_beside = False

    def check_store(self, attempt: TransactionAttempt) -> None:
        """As a map does whose store is in the same database."""
        if self.is_beside:
            texts, epoch = self.store.read(), self.store.epoch()
            check_store_beside(attempt, texts, epoch, what="the sink", store="memory:")

    def _is_last_write(self, store: MemorySnapshot, sink: Any) -> bool:
        """Whether only the sink's newest batch went back: the store cannot know that.

        It was planned then, and the checkpoint says that it is finished. Txids that
        were given up before no sink has.
        """
        newest = _carried(self.checkpoint)
        finished = LedgerReader(self.store.url, self.store.id).read(store.values).txid
        return newest <= max(int(sink[0].txid), finished) + 1

    def _is_newest(self) -> bool:
        """Whether the checkpoint is the one that the sink was written from.

        With no txid between them: by one that was given up nobody can tell whether the
        sink went back.
        """
        written, carried = self.sink.newest.txid, _carried(self.checkpoint)
        is_written = written in (carried, carried - 1)
        return is_written and self.sink.writer in ("", self.checkpoint.name)

    def restore_store(self) -> None:
        """Only where the newest checkpoint is there: without it nobody can tell.

        Nor can it where the newest batch was replayed in part (opaque): how much was
        read of it is told by the store alone.
        """
        planned = Ledger(self.store).load().planned.values()
        is_in_part = any(batch.logged for batch in planned)
        if self.store_copy is None or not self._is_newest() or is_in_part:
            return
        self.query = None
        self.once.clear()
        self.frozen.clear()
        self.others.clear()
        self.checkpoint_copy = None
        self.seen["stores put back"] += 1
        self.store.restore(self.store_copy[0])
        self.checkpoint.forget_late()
        self.must_keep_checkpoint = True  # "do not start with a new checkpointLocation"
        for _ in range(60):
            self.step()
            if self._is_idle():
                break

    def commit_from_the_listener(self) -> None:
        """What the user's process does once a batch is in Spark's commit log."""
        done = self.checkpoint.commits
        end = (
            SourceOffset.from_json(self.checkpoint.offsets[max(done)]) if done else None
        )
        if end is None or end.mark is None:
            return
        ledger = Ledger(self.store)
        batch = ledger.load().planned.get(end.mark.txid)
        if batch is None or batch.ends() != dict(end.positions):
            return
        try:
            ledger.commit(end.mark.epoch, end.mark.txid, 0)
            ledger.store_task_sums(
                end.mark.epoch,
                {(end.mark.epoch, end.mark.txid): TaskSums(records=len(batch.ranges))},
            )
            self.seen["told"] += any(
                each.from_tasks != TaskSums() for each in ledger.state.commit_stats
            )
        except KafkaTxError as error:
            self.seen[f"listener: {type(error).__name__}"] += 1

    # --- what happens to topics ---

    def produce(self, which: int, count: int) -> None:
        self.brokers.append(self._partition(which), count)

    def trim(self, which: int, count: int) -> None:
        self.brokers.trim(self._partition(which), count)

    def make_anew(self, which: int, more: int) -> None:
        """With fewer, as many, or more records.

        While a batch is under way: before the next question, or between that and tasks.
        """
        partition = self._partition(which)
        length = self.brokers.log(partition).end + more
        if self._is_at_rest():
            self._make_anew(partition, length)
        elif more % 2:
            self.brokers.before_reading.append(
                lambda: self._make_anew(partition, length)
            )
        else:
            self.brokers.questions.before(1, lambda: self._make_anew(partition, length))

    def _make_anew(self, partition: TopicPartition, length: int) -> None:
        self.brokers.make(partition.topic)
        self.brokers.append(TopicPartition(partition.topic, 0), max(0, length))
        self.seen["topics made anew"] += 1

    def elect(self, which: int, lost: int, others: int) -> None:
        """An unclean election if records are lost; others may take their offsets.

        While a batch is under way: before the next question, or between that and tasks.
        """
        partition = self._partition(which)
        made = self.brokers.topics_[partition.topic]

        def happen() -> None:
            is_there = partition.partition < len(made.logs)
            if is_there and self.brokers.topics_[partition.topic] is made:
                self.brokers.elect(partition, lost)
                self.brokers.append(partition, others)
                self.store_copy = None  # else two disasters at once
                self.seen["ends lost" if lost else "leaders moved"] += 1
                self.seen["offsets taken"] += others >= lost > 0

        if self._is_at_rest():
            happen()
        elif others % 2:
            self.brokers.before_reading.append(happen)
        else:
            self.brokers.questions.before(1, happen)

    def hide(self, which: int) -> None:
        topic = self.brokers.topics_[self._partition(which).topic]
        topic.is_hidden = not topic.is_hidden
        self.seen["topics hidden"] += topic.is_hidden

    def delete(self, which: int) -> None:
        """A topic is deleted for long, while another one is read; or it comes back."""
        name, other = ("a", "b") if which % 2 else ("b", "a")
        if not self.brokers.topics_[name].logs:
            self._make_anew(TopicPartition(name, 0), which)
            return
        if not (self._is_at_rest() and self.brokers.topics_[other].logs):
            return
        self.brokers.delete(name)
        self.seen["topics deleted"] += 1
        for _ in range(which):
            self.brokers.append(TopicPartition(other, 0), 1)
            self.clock.sleep_ms(CONFIRMED_AFTER_MS)
            self.step()
            self.step()
        state = Ledger(self.store).load().committed
        known = {p.topic for p in state.offsets} if state else {name}
        self.seen["positions dropped"] += name not in known

    def lose_leaders(self, which: int) -> None:
        topic = self.brokers.topics_[self._partition(which).topic]
        topic.has_leaders = not topic.has_leaders

    def grow(self, which: int) -> None:
        topic = self.brokers.topics_[self._partition(which).topic]
        if len(topic.logs) < 3:
            topic.logs.append(type(topic.logs[0])())

    def _partition(self, which: int) -> TopicPartition:
        known = self.brokers.partitions()
        return known[which % len(known)]

    def _is_idle(self) -> bool:
        return self.query is not None and self.query.is_idle

    def _is_at_rest(self) -> bool:
        """Nothing can happen between what a query asks and what it reads."""
        self.frozen.clear()
        return self.query is None or not self.query.batch_under_way

    # --- the end ---

    def settle(self) -> None:
        """All is well again, and a query runs until there is nothing left to read."""
        for topic in self.brokers.topics_.values():
            topic.is_hidden, topic.has_leaders = False, True
        for name, topic in self.brokers.topics_.items():
            if not topic.logs:
                self._make_anew(TopicPartition(name, 0), 3)
        self.kill()
        for _ in range(SETTLED_AFTER):
            self.step()
            if self._is_idle():
                break
        else:
            raise AssertionError(f"never settled: {self.seen}")
        self.check()
        missing = (
            set(self.brokers.produced) - set(self.sink.records()) - self.brokers.gone
        )
        assert not missing, f"lost {sorted(missing)}"
        self.seen["ranges of other topics left out"] += self.brokers.left_out

    def check_held(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        """What is stored of a commit tells each offset that it has jumped over."""
        ledger = LedgerReader(self.store.url, self.store.id)
        former, after = ledger.read(before), ledger.read(now)
        if former.txid == after.txid:  # tasks told of batches that are committed
            untold = [
                replace(each, from_tasks=TaskSums()) for each in after.commit_stats
            ]
            assert untold == [
                replace(each, from_tasks=TaskSums()) for each in former.commit_stats
            ]
            return
        held, batch = after.commit_stats[-1], after.planned[after.txid]
        assert held.txid == batch.txid == former.txid + 1
        assert (held.skipped, held.attempts) == (batch.skipped, batch.attempts)
        self.seen["tries counted"] += batch.attempts > 1
        self.seen["skips counted"] += bool(batch.skipped)
        reasons = {reason for _, reason in batch.skipped}
        self.seen["skips of retention counted"] += "retention" in reasons
        was = former.committed or Committed(0, {})
        for wanted in batch.ranges:
            partition = wanted.topic_partition
            ids = (
                was.topic_ids.get(partition.topic),
                batch.topic_ids.get(partition.topic),
            )
            is_cut = (partition, "cut") in batch.skipped
            if partition in was.offsets and not is_another(*ids) and not is_cut:
                skipped = batch.skipped.get((partition, "retention"), 0)
                assert wanted.start == was.offsets[partition] + skipped, (was, batch)

    def check(self) -> None:
        counts = Counter(self.sink.records())
        doubled = [record for record, n in counts.items() if n > 1]
        assert not doubled, f"doubled {doubled}"


def _carried(checkpoint: Checkpoint) -> int:
    """The txid of its last batch; where the store went back, not the greatest."""
    logged = checkpoint.offsets
    return _mark(logged[max(logged)]) if logged else 0


def _mark(end: dict[str, Any]) -> int:
    mark = SourceOffset.from_json(end).mark
    return mark.txid if mark else 0


ACTIONS: tuple[tuple[Callable[..., None], tuple[int, ...]], ...] = (
    *[(World.step, ())] * 12,
    *[(World.produce, (8, 9))] * 3,
    (World.kill, ()),
    (World.freeze, ()),
    (World.wake, (4,)),
    (World.wake, (4,)),
    (World.use_another_checkpoint, (4,)),
    (World.lose_commit_entry, ()),
    (World.leave_checkpoint, ()),
    (World.copy_checkpoint, ()),
    (World.restore_checkpoint, ()),
    (World.copy_store, ()),
    (World.restore_store, ()),
    (World.commit_from_the_listener, ()),
    (World.commit_from_the_listener, ()),
    (World.trim, (8, 6)),
    (World.make_anew, (8, 7)),
    (World.elect, (8, 6, 9)),
    (World.hide, (2,)),
    (World.lose_leaders, (2,)),
    (World.grow, (8,)),
    (World.delete, (8,)),
)


def empty_batch(world: World) -> None:
    """Spark runs a batch without new records, to emit late state."""
    if world.query is not None:
        world.query.wants_empty_batch = True


def run(world: World, data: bytes) -> None:
    """Each byte is an event or a step of the run."""
    numbers = iter(data)
    for number in numbers:
        if number >= 200:
            empty_batch(world) if number % 8 == 0 else world.step()
            continue
        action, sizes = ACTIONS[number % len(ACTIONS)]
        given = [next(numbers, 0) % size for size in sizes]
        if action.__name__ == "make_anew":
            given[1] -= 3
        action(world, *given)
        world.check()
