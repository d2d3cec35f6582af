"""A world around a query with two sources: its checkpoints, its sink, and who runs it.

The second source may have no ``tx.id``. What Spark and the driver do between the two
planners is played here, with the driver's own code; the operator does what texts say.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka_tx.config import Mode
from kafka_tx.errors import (
    CheckpointDisagreesError,
    DataLossError,
    FencedError,
    KafkaTxError,
    OutOfOrderError,
    ReplayImpossibleError,
)
from kafka_tx.model import QueryShape, TopicPartition, TransactionAttempt
from kafka_tx.options.source import parse_source
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source.microbatches import MicroBatches
from kafka_tx.source.questions import Answer, Question, moves
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.spark.queries import foreach
from kafka_tx.testing import ManualClock
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ownership.memory import MemoryStore
from tests.properties.simulated_log import Brokers
from tests.properties.simulated_query import Sink
from tests.properties.told_offsets import set_offsets

PLAIN = "topic b"
SETTLED_AFTER = 600

_names = map(str, itertools.count(1))
Log = dict[str, SourceOffset]


@dataclass
class Checkpoint:
    """Spark's offset log and commit log, of both sources."""

    name: str
    offsets: dict[int, Log] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)


class Query:
    """One run: a life that may stop after any of its steps. Asked as the driver asks.

    ``sources``: those that it reads, in the order in which Spark asks them.
    """

    def __init__(self, world: World, checkpoint: Checkpoint, sources: list[str]):
        self.checkpoint = checkpoint
        self.sources = sources
        self.error: KafkaTxError | None = None
        self.is_idle = False
        self.planners = {name: world.planner(name) for name in sources}
        self._world = world
        self._batch = -1
        self._tries: Any = None
        self._life = self._live()

    # --- what the driver asks ---

    is_running = True

    @property
    def tx_ids(self) -> list[str]:
        return sorted(n for n, p in self.planners.items() if is_numbered(p))

    def shape(self) -> QueryShape:
        others = set(self.sources) - set(self.tx_ids)
        return QueryShape(tuple(self.tx_ids), tuple(others))

    def question(self, tx_id: str, batch_id: int) -> Question:
        log = self.checkpoint.offsets
        start = log.get(batch_id - 1, {}).get(tx_id)
        return Question(self.checkpoint.name, batch_id, start, log[batch_id][tx_id])

    def other_ends(self) -> dict[str, str]:
        ends = self.checkpoint.offsets[self._batch]
        return {n: ends[n].digest() for n in self.sources if n not in self.tx_ids}

    def ask(self, tx_id: str, question: Question) -> Answer:
        self._world.between()
        asked = Question.from_json(question.to_json())
        assert asked is not None
        return self.planners[tx_id].number(asked)

    # --- what Spark does ---

    def step(self) -> bool:
        """Take a step; False when the query has ended in an error."""
        try:
            next(self._life)
        except KafkaTxError as error:
            self.error = error
        return self.error is None

    def _live(self) -> Iterator[None]:
        log, commits = self.checkpoint.offsets, self.checkpoint.commits
        newest = max(log, default=-1)
        if newest >= 0 and newest not in commits:
            yield from self._run(newest)
        is_first = True  # a source may wait once for what another one says
        while True:
            newest = max(log, default=-1)
            ends: Log = {}
            for name in self.sources:
                start = log[newest][name] if log else self.planners[name].initial()
                ends[name] = self.planners[name].latest(start, everything=False)
                yield
            if log and ends == log[newest]:
                self.is_idle, is_first = not is_first, False
                yield
                continue
            self.is_idle = is_first = False
            log[newest + 1] = ends
            yield
            yield from self._run(newest + 1)
            for name in self.sources if newest in log else []:
                self.planners[name].finished(log[newest][name])
                yield

    def _run(self, batch: int) -> Iterator[None]:
        log = self.checkpoint.offsets
        records = []
        for name in self.sources:
            planner, end = self.planners[name], log[batch][name]
            before = log.get(batch - 1, {}).get(name)
            if before != end:
                wanted = planner.ranges(before or planner.initial(), end)
                records += [n for one in wanted for n in self._world.read(one)]
        yield
        self._batch = batch
        if self._tries is None:
            driver: Any = self
            self._tries = foreach._Run(driver, self._world.numbers).tries
        attempt: TransactionAttempt = self._tries.attempt(batch)
        yield
        self._world.sink.write(attempt, records, self.checkpoint.name, {})
        yield
        self.checkpoint.commits.add(batch)
        yield


class View(Brokers):
    """The same topics as the source of one of them asks for them."""

    def __init__(self, brokers: Brokers, topic: str) -> None:
        self.__dict__.update(brokers.__dict__)
        self._topic = topic

    def topics(self, wanted: Any) -> dict[str, Any]:
        return {self._topic: super().topics(wanted)[self._topic]}


class World:
    """Two topics, each a source; ids in one store; a sink; checkpoints and runs."""

    def __init__(self, mode: Mode, *, is_plain: bool, numbers: str, first: str) -> None:
        self.mode: Mode = mode
        self.second = PLAIN if is_plain else "b"
        self.numbers = "a" if is_plain else numbers
        self.sources = ["a", self.second][:: 1 if first == "a" else -1]
        self.clock = ManualClock()
        self.brokers = Brokers()
        self.name = f"several{next(_names)}"
        self.sink = Sink(mode)
        self.checkpoint = Checkpoint(next(_names))
        self.former: list[Checkpoint] = []
        self.query: Query | None = None
        self.copied: Checkpoint | None = None
        self.crash_in = 0
        self.is_alone = False
        self.fails = "true"
        self.of_b: set[int] = set()
        """All records that its topic ever had."""
        self.seen: Counter[str] = Counter()

    def planner(self, name: str) -> MicroBatches:
        topic = name.rpartition(" ")[2]
        options = {
            "kafka.bootstrap.servers": "b:9092",
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "5",
            "tx.id": name,
            "tx.mode": self.mode,
            "failOnDataLoss": self.fails,
        }
        if name == PLAIN:
            options = {k: v for k, v in options.items() if not k.startswith("tx.")}
        config, view = parse_source(options, streaming=True), View(self.brokers, topic)
        if config.transactions is None:
            return MicroBatches(config, view, self.clock)
        return TransactionalMicroBatches(
            *(config, config.transactions, view, self.clock),
            self.ledger(name),
            ledger_of=self.ledger,
        )

    def ledger(self, tx_id: str) -> Ledger:
        return Ledger(MemoryStore(self.name, tx_id))

    def read(self, wanted: Any) -> list[int]:
        return self.brokers.log(wanted.topic_partition).read(wanted.start, wanted.end)

    def between(self) -> None:
        """The driver may die between two questions."""
        self.crash_in -= 1
        if self.crash_in == 0:
            self.seen["died between questions"] += 1
            raise DeadError("between two questions")

    # --- runs ---

    def step(self) -> None:
        if self.query is None:
            sources = ["a"] if self.is_alone else self.sources
            self.query = Query(self, self.checkpoint, sources)
        self.seen["steps"] += 1
        if not self.query.step():
            error, self.query = self.query.error, None
            assert error is not None
            self._recover(error)
        elif self.query.is_idle:
            self.fails = "true"
        self.check()

    def _recover(self, error: KafkaTxError) -> None:
        """Do what the text says."""
        self.seen[type(error).__name__] += 1
        match error:
            case CheckpointDisagreesError():
                self.seen[f"disagreed: {error.fields['case']}"] += 1
                if error.fields["case"] == "parted":
                    self._join(str(error))
                else:
                    assert "start with a new checkpointLocation" in str(error)
                    self.lose_checkpoint()  # it is another one than the newest
            case DeadError() | FencedError():
                pass
            case DataLossError():
                self.fails = "false"
            case ReplayImpossibleError():
                assert "It is committed" in str(error)
                assert "start with a new checkpointLocation" in str(error)
                self.lose_checkpoint()
            case OutOfOrderError():
                self.lose_checkpoint()  # it is a copy, older than its batches
            case _:
                raise error

    def _join(self, text: str) -> None:
        """Start it with what it had; where that is gone, look what the sink has."""
        assert "Start the query with the checkpointLocation and the sources" in text
        had = {"a"} if "a batch of its own" in text else set(self.sources)
        if self.former and set(self.former[-1].offsets[0]) == had:
            self.checkpoint = self.former.pop()
            self.is_alone = set(self.checkpoint.offsets[0]) == {"a"}
            self.seen["went back"] += 1
            return
        self.seen["set by hand"] += 1
        found = re.search(r"has txid (\d+) of", text)
        assert found is not None
        commands = re.findall(r"--id (\w+) .*?--offsets '(.*?)'", text)
        half, has_it = len(commands) // 2, self.sink.newest.txid >= int(found[1])
        for id_, given in commands[:half] if has_it else commands[half:]:
            set_offsets(MemoryStore(self.name, id_), given)
        self.new_checkpoint()
        self.former.clear()

    # --- what happens ---

    def kill(self) -> None:
        self.query = None

    def die_soon(self, questions: int) -> None:
        self.crash_in = questions

    def new_checkpoint(self) -> None:
        """The newest former one may still be there."""
        self.query = None
        if self.checkpoint.offsets:
            self.former = [self.checkpoint]
        self.checkpoint = Checkpoint(next(_names))

    def lose_checkpoint(self) -> None:
        ids = [name for name in self.sources if name != PLAIN]
        if len(ids) > 1 and all(self.ledger(name).load().unfinished for name in ids):
            self.seen[f"checkpoint lost in a batch of both, {self.mode}"] += 1
        self.new_checkpoint()
        self.former.clear()

    def copy_checkpoint(self) -> None:
        self.copied = copy.deepcopy(self.checkpoint)

    def restore_checkpoint(self) -> None:
        if self.copied is not None and self.copied.offsets:
            self.query = None
            self.checkpoint = copy.deepcopy(self.copied)
            self.is_alone = set(self.checkpoint.offsets[0]) == {"a"}
            self.former.clear()

    def change_sources(self) -> None:
        """Spark takes other sources with a new checkpoint only."""
        self.new_checkpoint()
        self.is_alone = not self.is_alone and self.numbers == "a"

    def lose_commit_entry(self) -> None:
        self.query = None
        if self.checkpoint.commits:
            self.checkpoint.commits.discard(max(self.checkpoint.commits))

    def produce(self, which: int, count: int) -> None:
        partition = self._partition(which)
        new = self.brokers.append(partition, count)
        if partition.topic == "b":
            self.of_b.update(new)

    def _partition(self, which: int) -> TopicPartition:
        known = self.brokers.partitions()
        return known[which % len(known)]

    def elect(self, which: int, lost: int, others: int) -> None:
        """An unclean election between batches; others may take the offsets."""
        if self.query is None or not self.query.is_idle:
            return
        ids = [name for name in self.sources if name != PLAIN]
        if any(self.ledger(name).load().unfinished for name in ids):
            return
        self.brokers.elect(self._partition(which), lost)
        self.produce(which, others)
        self.copied = None  # else two disasters at once
        self.former.clear()
        self.seen["ends lost"] += lost > 0
        self.seen["offsets taken"] += others >= lost > 0

    def commit_one(self, which: int) -> None:
        """The listener commits for one source, before the other, or instead."""
        done = self.checkpoint.commits
        name = self.sources[which % 2]
        if not done or name == PLAIN or name not in self.checkpoint.offsets[max(done)]:
            return
        log, newest = self.checkpoint.offsets, max(done)
        end, start = log[newest][name], log.get(newest - 1, {}).get(name)
        assert end.mark is not None
        ledger = self.ledger(name)
        state = ledger.load()
        question = Question(self.checkpoint.name, newest, start, end)
        stored = state.planned.get(end.mark.txid)
        if not moves(start, end):
            stored = state.batch_of(question.spark_batch)
        if stored is not None and stored.txid > state.txid:
            try:
                ledger.commit(end.mark.epoch, stored.txid, 0)
            except KafkaTxError as error:
                self.seen[f"listener: {type(error).__name__}"] += 1

    # --- the end ---

    def settle(self) -> None:
        self.crash_in, self.is_alone = 0, False
        if self.checkpoint.offsets and set(self.checkpoint.offsets[0]) == {"a"}:
            self.new_checkpoint()
        self.kill()
        for _ in range(SETTLED_AFTER):
            self.step()
            if self.query is not None and self.query.is_idle and not self.is_alone:
                break
            if self.query is not None and self.query.is_idle:
                self.change_sources()
                self.is_alone = False
        else:
            raise AssertionError(f"never settled: {self.seen}")
        left = set(self.brokers.produced) - self.brokers.gone
        missing = left - set(self.sink.records())
        assert not missing, f"lost {sorted(missing)}"

    def check(self) -> None:
        """No record twice, but those of a source without ``tx.id``."""
        counts = Counter(self.sink.records())
        doubled = [n for n, times in counts.items() if times > 1]
        if self.second == PLAIN:
            doubled = [n for n in doubled if n not in self.of_b]
        assert not doubled, f"doubled {doubled}"


class DeadError(KafkaTxError):
    """The driver died."""


def is_numbered(planner: MicroBatches) -> bool:
    return isinstance(planner, TransactionalMicroBatches)


ACTIONS: tuple[tuple[Callable[..., None], tuple[int, ...]], ...] = (
    *[(World.step, ())] * 13,
    *[(World.produce, (2, 7))] * 3,
    (World.kill, ()),
    (World.die_soon, (6,)),
    (World.new_checkpoint, ()),
    (World.lose_checkpoint, ()),
    (World.lose_commit_entry, ()),
    (World.commit_one, (2,)),
    (World.commit_one, (2,)),
    (World.change_sources, ()),
    (World.copy_checkpoint, ()),
    (World.restore_checkpoint, ()),
    (World.elect, (2, 6, 9)),
)


def run(world: World, data: bytes) -> None:
    """Each byte is an event or a step of the run."""
    numbers = iter(data)
    for number in numbers:
        if number >= 128:
            world.step()
            continue
        action, sizes = ACTIONS[number % len(ACTIONS)]
        action(world, *[next(numbers, 0) % size for size in sizes])
        world.check()
