"""Spark's side of a query: its checkpoint, its planner, and a sink that counts once."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_tx.config import Mode, SourceConfig
from kafka_tx.errors import ConfigError, KafkaTxError, OtherTopicError
from kafka_tx.model import OffsetRange, TopicPartition, TransactionAttempt
from kafka_tx.planned_topic import replaced
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.sinks.admission import is_written
from kafka_tx.source.microbatches import MicroBatches
from kafka_tx.source.questions import Answer, Question, moves
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.spark.connect.meeting import ServedStreamReader
from kafka_tx.spark.source.ranges import lost, must_fail
from kafka_tx.spark.versions.streams import ReadMaxRows, StartlessReader
from kafka_tx.transactions.ledger.ledger import Ledger
from tests.properties.simulated_log import Brokers

_late = itertools.count(1)
_runs = itertools.count(1)


class TaskFailedError(Exception):
    """A range cannot be read now."""


@dataclass
class Checkpoint:
    """Spark's offset log and commit log."""

    name: str
    offsets: dict[int, dict[str, Any]] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    late: dict[int, int] = field(default_factory=dict)
    """What a batch without new records brings, as a number below 0: late state, or a
    record of another source."""

    def copy(self) -> Checkpoint:
        return copy.deepcopy(self)

    def forget_late(self) -> None:
        """State of another time brings again what it brought."""
        self.late = {batch: -next(_late) for batch in self.late}


class Sink:
    """Counts a txid once; ``opaque``: takes the earlier attempt of it back."""

    def __init__(self, mode: Mode) -> None:
        self._is_opaque = mode == "opaque"
        self.newest = TransactionAttempt(0, 0)
        self.writer = ""
        """Whose the newest attempt is: the name of a checkpoint."""
        self.before: list[int] = []
        self.last: list[int] = []
        self.schemas: Mapping[str, str] = {}
        """With which the newest batch was decoded."""
        self.check: Callable[[TransactionAttempt], None] = lambda attempt: None

    def records(self) -> list[int]:
        return self.before + self.last

    def copy(self) -> Any:
        held = list(self.before), list(self.last)
        return self.newest, self.writer, *held, self.schemas

    def put_back(self, copy: Any) -> None:
        self.newest, self.writer, before, last, self.schemas = copy
        self.before, self.last = list(before), list(last)

    def write(
        self,
        attempt: TransactionAttempt,
        records: list[int],
        writer: str,
        schemas: Mapping[str, str],
    ) -> None:
        """Raises what maps and tables raise.

        A transactional replay has the columns that were written.
        """
        self.check(attempt)
        given, is_opaque = attempt, self._is_opaque
        if not is_written(given, self.newest, what="the sink", is_opaque=is_opaque):
            self.before, self.last = self.records(), records
            self.schemas = schemas
        elif self._is_opaque:
            self.last, self.schemas = records, schemas
        else:
            assert schemas == self.schemas
        self.newest, self.writer = attempt, writer


class Reader:
    """The planner by the names that Spark 4.2 calls."""

    def __init__(self, planner: MicroBatches) -> None:
        self._planner = planner

    def initialOffset(self) -> dict[str, Any]:
        return self._planner.initial().to_json()

    def getDefaultReadLimit(self) -> ReadMaxRows:
        return ReadMaxRows(1)

    def is_question(self, offset: dict[str, Any]) -> bool:
        return Question.from_json(offset) is not None

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        question = Question.from_json(start)
        if question is not None:
            return self._planner.number(question).to_json()
        before = SourceOffset.from_json(start)
        end = self._planner.latest(before, everything=False)
        return start if end is before else end.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        return self._planner.ranges(
            SourceOffset.from_json(start), SourceOffset.from_json(end)
        )

    def read(self, partition: Any) -> Any:
        raise NotImplementedError

    def commit(self, end: dict[str, Any]) -> None:
        self._planner.finished(SourceOffset.from_json(end))

    def stop(self) -> None:
        raise NotImplementedError


class BesideReader(ServedStreamReader):
    """The planner as Spark Connect's ``foreachBatch`` asks it, without the socket."""

    def __init__(self, planner: MicroBatches, config: SourceConfig):
        super().__init__({})
        self._batches = planner
        self.__dict__["_config"] = config

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        return [piece.wanted for piece in super().partitions(start, end)]

    def answer(self, batch: int) -> Answer:
        """Nobody listens before Spark has given the planner a batch."""
        if self._under_way is None:
            raise ConfigError(
                "nothing planned in this run; run it in a classic session"
            )
        return self._answer(batch)


class Query:
    """One run of a query: a life that may stop after any of its steps.

    ``startless``: under a Spark that does not say where a batch begins.
    ``connect``: as Spark Connect runs it.
    """

    def __init__(
        self,
        config: SourceConfig,
        brokers: Brokers,
        ledger: Ledger | None,
        checkpoint: Checkpoint,
        sink: Sink,
        clock: Any,
        *,
        startless: bool = False,
        connect: bool = False,
    ) -> None:
        self.config = config
        self.checkpoint = checkpoint
        self.error: KafkaTxError | TaskFailedError | None = None
        self.is_idle = False
        self.batch_under_way = False
        self.wants_empty_batch = False
        self._brokers = brokers
        self._sink = sink
        self._attempts = 0
        self.planner = _planner(config, brokers, clock, ledger)
        self._beside = BesideReader(self.planner, config) if connect else None
        self._reader = self._beside or Reader(self.planner)
        self._startless = StartlessReader(self._reader) if startless else None
        self._rests = itertools.cycle((True, False))
        self._life = self._live()

    def step(self) -> bool:
        """Take a step; False when the query has ended in an error."""
        if self.error is not None:
            return False
        try:
            next(self._life)
        except (KafkaTxError, TaskFailedError) as error:
            self.error = error
        return self.error is None

    def _live(self) -> Iterator[None]:
        """As Spark's MicroBatchExecution does it."""
        log, commits = self.checkpoint.offsets, self.checkpoint.commits
        newest = max(log, default=-1)
        if newest >= 0 and self._startless is not None:
            self._startless.partitions(log[newest], log[newest])
        if newest >= 0 and newest not in commits:
            yield from self._run(newest)
        while True:
            newest = max(log, default=-1)
            start = log.get(newest)
            self.batch_under_way = True
            logged = self._latest(start)
            if logged == start and next(self._rests):  # Spark asks again and again
                logged = self._latest(start)
            yield
            if logged == start and not self.wants_empty_batch:
                self.is_idle, self.batch_under_way = True, False
                yield
                continue
            self.is_idle = self.wants_empty_batch = False
            if not moves_in(start, logged):
                self.checkpoint.late[newest + 1] = -next(_late)
            log[newest + 1] = logged
            yield
            yield from self._run(newest + 1)
            if newest in log:
                self._reader.commit(log[newest])

    def _latest(self, start: dict[str, Any] | None) -> dict[str, Any]:
        before = self._ends()
        end = self._asked_for(start)
        is_plain = self.config.transactions is None
        if end == start and is_plain and before == self._ends():
            read = SourceOffset.from_json(end).positions
            unread = {p: at for p, (at, _) in before.items() if read.get(p) != at}
            assert not unread, f"nothing to do at {read}, and logs end at {unread}"
        return end

    def _ends(self) -> dict[TopicPartition, tuple[int, str]]:
        """Where the logs end that brokers can report, and their topics' ids."""
        brokers = self._brokers
        known = ((p, brokers.topics_[p.topic]) for p in brokers.partitions())
        return {
            p: (brokers.log(p).end, topic.topic_id)
            for p, topic in known
            if topic.has_leaders and not topic.is_hidden
        }

    def _asked_for(self, start: dict[str, Any] | None) -> dict[str, Any]:
        if self._startless is not None:
            return self._startless.latestOffset()
        limit = self._reader.getDefaultReadLimit()
        return self._reader.latestOffset(start or self._reader.initialOffset(), limit)

    def _answer(self, question: Question) -> Answer:
        if self.config.transactions is None:  # the sink goes by Spark's own number
            return Answer(question.batch_id + 1, next(_runs))
        if self._beside is not None:
            return self._beside.answer(question.batch_id)
        asked = question.to_json()
        if self._startless is not None:
            (answer,) = self._startless.partitions(asked, asked)
            return Answer.from_json(answer.value)
        limit = self._reader.getDefaultReadLimit()
        return Answer.from_json(self._reader.latestOffset(asked, limit))

    def _run(self, batch: int) -> Iterator[None]:
        self.batch_under_way = True
        logged = self.checkpoint.offsets
        before = logged.get(batch - 1)
        end = SourceOffset.from_json(logged[batch])
        start = SourceOffset.from_json(before) if before else None
        asked = Question(self.checkpoint.name, batch, start, end)
        reader = self._startless or self._reader
        is_run = logged[batch] != before  # else Spark passes its sources over
        ranges = (
            reader.partitions(before or reader.initialOffset(), logged[batch])
            if is_run
            else []
        )
        answer = self._answer(asked)
        self._brokers.be_read()
        records = [n for wanted in ranges for n in self._read(wanted)]
        if not moves_in(before, logged[batch]):
            records.append(self.checkpoint.late[batch])
        yield
        self._attempts += 1
        attempt = TransactionAttempt.of(
            answer.txid, epoch=answer.epoch, number=self._attempts
        )
        attempt = replace(
            attempt,
            plan=answer.plan,
            numbering=answer.numbering,
            mode=answer.mode,
        )
        schemas = self.planner.schemas if ranges else {}
        self._sink.write(attempt, records, self.checkpoint.name, schemas)
        self.batch_under_way = False
        yield
        self.checkpoint.commits.add(batch)
        yield

    def _read(self, wanted: OffsetRange) -> list[int]:
        topic = self._brokers.topics_[wanted.topic_partition.topic]
        if wanted.topic_id not in {None, topic.topic_id}:
            return self._read_of_another(wanted)
        is_there = wanted.topic_partition.partition < len(topic.logs)
        if topic.is_hidden or not topic.has_leaders or not is_there:
            raise TaskFailedError(wanted)
        log = self._brokers.log(wanted.topic_partition)
        if wanted.start < log.start or wanted.end > log.end:
            raise TaskFailedError(wanted)
        epoch = wanted.leader_epoch
        end = wanted.end if epoch is None else log.end_of(epoch)
        if end < wanted.end:
            if must_fail(self.config):
                raise lost(self.config, wanted, replaced(wanted, end))
            wanted = wanted.between(wanted.start, max(end, wanted.start))
            self._brokers.left_out += 1
        return log.read(wanted.start, wanted.end)

    def _read_of_another(self, wanted: OffsetRange) -> list[int]:
        """As ``ranges.read_range`` goes by the rule of losses."""
        error = OtherTopicError("made anew", topic="", log_start=None, log_end=None)
        if must_fail(self.config):
            raise lost(self.config, wanted, error)
        self._brokers.left_out += 1
        return []


def _planner(
    config: SourceConfig, brokers: Brokers, clock: Any, ledger: Ledger | None
) -> MicroBatches:
    if ledger is None or config.transactions is None:
        return MicroBatches(config, brokers, clock)
    return TransactionalMicroBatches(
        config, config.transactions, brokers, clock, ledger
    )


def moves_in(start: dict[str, Any] | None, end: dict[str, Any]) -> bool:
    """Whether the source moved in a batch that was logged so."""
    before = SourceOffset.from_json(start) if start else None
    return moves(before, SourceOffset.from_json(end))
