"""A query of one or two sources as Spark runs it: each source has a planner of its own.

What ``simulated_query`` is for one source in every version of Spark, this is for the
queries of people: with and without ``tx.id``, alone and in pairs, on checkpoints that
are copied, put back and left.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_tx.config import SourceConfig
from kafka_tx.errors import KafkaTxError
from kafka_tx.model import OffsetRange, QueryShape, TransactionAttempt
from kafka_tx.options.source import parse_source
from kafka_tx.planning.offset_json import SourceOffset, TransactionMark
from kafka_tx.protocols import Clock
from kafka_tx.source.microbatches import MicroBatches
from kafka_tx.source.questions import Answer, Question
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.spark.queries import foreach
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ownership.memory import MemoryStore
from tests.properties.simulated_log import Brokers
from tests.properties.simulated_query import TaskFailedError

Offsets = list[Any]


@dataclass
class Checkpoint:
    """Spark's offset log and commit log: an entry has an offset for each source."""

    name: str
    offsets: dict[int, Offsets] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    def copied(self) -> Checkpoint:
        return copy.deepcopy(self)

    def numbering(self) -> str:
        """In which the first source counts at its end; empty: in none."""
        mark = self._mark()
        return mark.numbering if mark else ""

    def txid(self) -> int:
        """Where the first source is at its end."""
        mark = self._mark()
        return mark.txid if mark else 0

    def _mark(self) -> TransactionMark | None:
        ends = self.offsets.get(max(self.offsets, default=-1), [None])
        return SourceOffset.from_json(ends[0]).mark if ends[0] else None


@dataclass(frozen=True)
class Stream:
    """A source as its options name it; ``tx_id`` empty: without transactions."""

    topics: tuple[str, ...]
    tx_id: str = ""
    mode: str = "transactional"
    once: Mapping[str, str] = field(default_factory=dict)

    def config(self) -> SourceConfig:
        options = {
            "kafka.bootstrap.servers": "b:9092",
            "subscribe": ",".join(self.topics),
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "5",
        }
        ours = {"tx.id": self.tx_id, "tx.mode": self.mode} if self.tx_id else {}
        return parse_source(options | ours | dict(self.once), streaming=True)


class Planners:
    """The planners of one run, and what a driver asks them."""

    def __init__(
        self,
        streams: tuple[Stream, ...],
        brokers: Brokers,
        clock: Clock,
        store: Callable[[str], MemoryStore],
    ) -> None:
        self.all = [self._planner(s, brokers, clock, store) for s in streams]

    def _planner(
        self,
        stream: Stream,
        brokers: Brokers,
        clock: Clock,
        store: Callable[[str], MemoryStore],
    ) -> MicroBatches:
        config = stream.config()
        if config.transactions is None:
            return MicroBatches(config, brokers, clock)
        word = config.transactions.sink_batch_ids
        ledger = Ledger(store(stream.tx_id), sink_batch_ids=word)
        return TransactionalMicroBatches(
            *(config, config.transactions, brokers, clock, ledger),
            ledger_of=lambda id_: Ledger(store(id_)),
        )

    def latest(self, index: int, start: dict[str, Any] | None) -> dict[str, Any]:
        planner = self.all[index]
        given = start or planner.initial().to_json()
        before = SourceOffset.from_json(given)
        end = planner.latest(before, everything=False)
        return given if end is before else end.to_json()

    def ranges(
        self, index: int, start: dict[str, Any] | None, end: dict[str, Any]
    ) -> list[OffsetRange]:
        planner = self.all[index]
        before = SourceOffset.from_json(start) if start else planner.initial()
        return planner.ranges(before, SourceOffset.from_json(end))

    def finished(self, offsets: Offsets) -> None:
        for planner, end in zip(self.all, offsets, strict=True):
            if end is not None:
                planner.finished(SourceOffset.from_json(end))


class Driver:
    """What ``for_each_transaction`` asks of a running query: each source's planner."""

    is_running = True

    def __init__(
        self,
        streams: tuple[Stream, ...],
        planners: Planners,
        checkpoint: Checkpoint,
        *,
        asks: bool,
    ) -> None:
        self._asks = asks
        self._names = [s.tx_id or f"plain{n}" for n, s in enumerate(streams)]
        self._numbered = sorted(s.tx_id for s in streams if s.tx_id)
        self._planners = dict(zip(self._names, planners.all, strict=True))
        self._checkpoint = checkpoint
        self._batch = -1
        self._tries: Any = None

    def attempt(self, batch: int) -> TransactionAttempt:
        """Of the batch that Spark has logged; by its number where nothing counts."""
        if not self._numbered or not self._asks:
            return TransactionAttempt(batch + 1, 0, source=self._checkpoint.name)
        self._batch = batch
        if self._tries is None:
            query: Any = self
            self._tries = foreach._Run(query, self._numbered[0]).tries
        found: TransactionAttempt = self._tries.attempt(batch)
        return found

    @property
    def tx_ids(self) -> list[str]:
        return self._numbered

    def shape(self) -> QueryShape:
        others = set(self._names) - set(self._numbered)
        return QueryShape(tuple(self._numbered), tuple(others))

    def question(self, tx_id: str, batch_id: int) -> Question:
        log, at = self._checkpoint.offsets, self._names.index(tx_id)
        before = log[batch_id - 1][at] if batch_id - 1 in log else None
        start = SourceOffset.from_json(before) if before else None
        end = SourceOffset.from_json(log[batch_id][at])
        return Question(self._checkpoint.name, batch_id, start, end)

    def other_ends(self) -> dict[str, str]:
        ends = dict(
            zip(self._names, self._checkpoint.offsets[self._batch], strict=True)
        )
        others = set(self._names) - set(self._numbered)
        return {n: SourceOffset.from_json(ends[n]).digest() for n in others}

    def ask(self, tx_id: str, question: Question) -> Answer:
        asked = Question.from_json(question.to_json())
        assert asked is not None
        return self._planners[tx_id].number(asked)


class Run:
    """One run of a query: a life that may stop after any of its steps.

    Args:
        streams: Its sources.
        planners: Of this run.
        brokers: Where tasks read.
        checkpoint: What it goes on from.
        write: The user's function: an attempt, and the records of the batch.
        asks: Whether the sink goes by txids, not by Spark's batch ids.
    """

    def __init__(
        self,
        streams: tuple[Stream, ...],
        planners: Planners,
        brokers: Brokers,
        checkpoint: Checkpoint,
        write: Callable[[TransactionAttempt, list[int]], None],
        *,
        asks: bool = True,
    ) -> None:
        self.checkpoint = checkpoint
        self.error: KafkaTxError | TaskFailedError | None = None
        self.is_idle = False
        self.is_under_way = False
        self._streams = streams
        self._planners = planners
        self._brokers = brokers
        self._write = write
        self._driver = Driver(streams, planners, checkpoint, asks=asks)
        self._life = self._live()

    def step(self) -> bool:
        """Take a step; False when the query has ended in an error."""
        if self.error is None:
            try:
                next(self._life)
            except (KafkaTxError, TaskFailedError) as error:
                self.error = error
        return self.error is None

    def owns(self, epoch: int) -> bool:
        """Whether the one planner is the owner of this epoch."""
        kept = [p._batches for p in self._planners.all if hasattr(p, "_batches")]
        return any(k.is_owner and k.epoch == epoch for k in kept)

    def answer(self) -> None:
        """Its planners answer whoever asks whether they live."""
        for planner in self._planners.all:
            if isinstance(planner, TransactionalMicroBatches):
                planner.answer()

    def _live(self) -> Iterator[None]:
        log, commits = self.checkpoint.offsets, self.checkpoint.commits
        newest = max(log, default=-1)
        if newest >= 0 and newest not in commits:
            yield from self._run(newest)
        polled = False
        while True:
            newest = max(log, default=-1)
            before = log.get(newest) or [None] * len(self._streams)
            self.is_under_way = True
            ends = [self._planners.latest(n, at) for n, at in enumerate(before)]
            yield
            if ends == before:  # a look may move one source, and the next another
                self.is_idle, polled = polled, True
                self.is_under_way = False
                yield
                continue
            self.is_idle = polled = False
            log[newest + 1] = [*ends]
            yield
            yield from self._run(newest + 1)
            if newest in log:
                self._planners.finished(log[newest])

    def _run(self, batch: int) -> Iterator[None]:
        self.is_under_way = True
        ends = self.checkpoint.offsets[batch]
        before = self.checkpoint.offsets.get(batch - 1) or [None] * len(ends)
        ranges = [
            wanted
            for index, (start, end) in enumerate(zip(before, ends, strict=True))
            if end is not None and end != start
            for wanted in self._planners.ranges(index, start, end)
        ]
        attempt = self._driver.attempt(batch)
        records = [n for wanted in ranges for n in self._read(wanted)]
        yield
        self._write(attempt, records)
        self.is_under_way = False
        yield
        self.checkpoint.commits.add(batch)
        yield

    def _read(self, wanted: OffsetRange) -> list[int]:
        topic = self._brokers.topics_[wanted.topic_partition.topic]
        is_there = wanted.topic_partition.partition < len(topic.logs)
        if topic.is_hidden or not topic.has_leaders or not is_there:
            raise TaskFailedError(wanted)
        log = self._brokers.log(wanted.topic_partition)
        is_another = wanted.topic_id not in (None, topic.topic_id)
        if is_another or wanted.start < log.start or wanted.end > log.end:
            raise TaskFailedError(wanted)
        return log.read(wanted.start, wanted.end)
