"""Brokers that keep a sink's transactions, and programs that write to it and die.

The programs run the real protocol (``PartTransaction``, ``PlanKeeper``, the stream
writer's ``commit``) in threads of which one at a time makes a step: whatever asks the
brokers. Between two steps a program can be killed, or frozen and woken later.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeVar
from unittest import mock

from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx import sink_assembly
from kafka_tx.config import SinkConfig
from kafka_tx.errors import BrokerUnavailableError, KafkaError, KafkaTxError
from kafka_tx.kafka import marker_log, part_transaction
from kafka_tx.kafka.marker_topic import COMMITTED, Kept
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.transaction import BatchRefusedError
from kafka_tx.model import LogBounds, TransactionAttempt
from kafka_tx.running import kafka_sink_bolt
from kafka_tx.sinks.sink_memory import Entry, Memory
from kafka_tx.sinks.sink_parts import Digest, Marker, SinkPlan, Wish
from kafka_tx.spark.sinks import writer
from kafka_tx.spark.sinks.writer import PartMessage

SINK, TOPIC, MARKERS = "sink", "out", "markers"
STRANGER = "stranger"
ROWS = 8
T = TypeVar("T")


class Killed(BaseException):
    """The program is gone."""


@dataclass
class Begun:
    """One transaction: what it wrote, and what became of it."""

    name: str
    state: str = "open"
    rows: list[bytes] = field(default_factory=list)
    offsets: dict[str, ClientPartition] = field(default_factory=dict)


class Brokers:
    """What is written and committed, and who may still write."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.log: dict[int, tuple[Begun, OutRecord]] = {}
        self.end = 0
        self.groups: dict[str, ClientPartition] = {}
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Begun] = {}
        self.refusals = 0
        """How many batches are still refused for their size."""

    @property
    def stable_end(self) -> int:
        """Up to here readers of committed markers see."""
        opened = (at for at, (begun, _) in self.log.items() if begun.state == "open")
        return min(opened, default=self.end)

    @property
    def holds_readers_up(self) -> bool:
        """Whether readers of the sink's topic wait for an open transaction."""
        return any(begun.rows for begun in self.open.values())

    def begin(self, name: str) -> Begun:
        """Begin a transaction; an open one of the same name is aborted."""
        self.finish(name, "aborted")
        begun = self.open[name] = Begun(name)
        return begun

    def write(self, begun: Begun, record: OutRecord) -> None:
        """Take a record of an open transaction."""
        if record.topic == MARKERS:
            self.log[self.end] = begun, record
            self.end += 1
        elif record.value:
            begun.rows.append(record.value)

    def finish(self, name: str, state: str) -> None:
        """Commit or abort what is open under a name."""
        begun = self.open.pop(name, None)
        if begun is None:
            return
        begun.state = state
        if state == "committed":
            self.rows += begun.rows
            self.groups.update(begun.offsets)

    def strange(self, key: bytes, value: bytes | None) -> None:
        """Anybody who may writes a record into the marker topic."""
        record = OutRecord(MARKERS, key, value, None, partition=0)
        self.log[self.end] = Begun(STRANGER, "committed"), record
        self.end += 1

    def marker_in_group(self, key: bytes) -> bytes:
        """The value that the group of a key has."""
        entry = Entry.of_key(key)
        assert entry is not None
        found = self.groups[entry.group]
        return entry.of_group(found.offset, found.metadata or "").value

    def own_markers(self) -> dict[bytes, bytes]:
        """The newest committed value under each key of the sink."""
        return {
            record.key: record.value
            for begun, record in self.log.values()
            if begun.state == "committed"
            and begun.name != STRANGER
            and record.key
            and record.value
            and (entry := Entry.of_key(record.key))
            and entry.sink == SINK
            and not entry.of_value(record.value).is_announcement
        }

    def is_pending(self, group: str) -> bool:
        """Whether an offset of a group is being committed."""
        return any(group in begun.offsets for begun in self.open.values())

    def compact(self) -> None:
        """Keep the newest committed marker of each key, of what is settled."""
        stable, newest = self.stable_end, dict[bytes | None, int]()
        for at, (begun, record) in self.log.items():
            if at < stable and begun.state == "committed":
                newest[record.key] = at
        self.log = {
            at: found
            for at, found in self.log.items()
            if at >= stable or newest.get(found[1].key) == at
        }


class Program(threading.Thread):
    """Runs a function up to its next step, when it is told to."""

    def __init__(self, work: Callable[[], None], *, is_task: bool = False) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.is_task = is_task
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._is_killed = False
        self.loses = ""
        self.error: Exception | None = None
        self.is_done = False
        self.lost: list[str] = []

    def run(self) -> None:
        self._go.acquire()
        try:
            if not self._is_killed:
                self._work()
        except Killed:
            pass
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error
        self.is_done = True
        self._paused.release()

    def step(self, *, loses: str = "") -> None:
        """Let it ask the brokers once more; ``request`` or ``answer`` may be lost.

        Of a commit: neither can be told from the other.
        """
        if not self.is_done:
            self.loses = loses
            if not self.is_alive():
                self.start()
            self._go.release()
            self._paused.acquire()

    def kill(self) -> None:
        self._is_killed = True
        self.step()

    def pause(self) -> None:
        self._paused.release()
        self._go.acquire()
        if self._is_killed:
            raise Killed


def side_by_side(tasks: Sequence[Callable[[], T]], chance: random.Random) -> list[T]:
    """Run tasks of a program beside each other: a step of it is one of any of them.

    The first error ends all others where they are, and is that of the program.
    """
    program, results = running(), dict[int, T]()
    assert program is not None

    def run(number: int) -> None:
        results[number] = tasks[number]()

    numbers = range(len(tasks))
    started = [Program(partial(run, number), is_task=True) for number in numbers]
    try:
        while unfinished := [task for task in started if not task.is_done]:
            ask()
            task = chance.choice(unfinished)
            task.step(loses=program.loses)
            program.lost += task.lost
            task.lost.clear()
            if task.error is not None:
                raise task.error
    finally:
        for task in started:
            task.kill()
    return [results[number] for number in numbers]


def running() -> Program | None:
    """The program whose thread this is; None: a test that has none."""
    thread = threading.current_thread()
    return thread if isinstance(thread, Program) else None


def ask() -> None:
    program = running()
    if program is not None:
        program.pause()


class SimulatedTransaction:
    """Stands for ``kafka_tx.kafka.transaction.Transaction``."""

    brokers: ClassVar[Brokers]

    def __init__(
        self,
        _: object,
        name: str,
        what: str,
        reading: object,
        group: str,
        topics: object = None,
    ) -> None:
        self._name, self._group = name, group
        self._begun = Begun(name)

    def __enter__(self) -> SimulatedTransaction:
        ask()
        self.brokers.finish(self._name, "aborted")
        epochs = self.brokers.epochs
        self._epoch = epochs[self._name] = epochs.get(self._name, 0) + 1
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._check()
        self._begun = self.brokers.begin(self._name)
        try:
            yield
        except Exception:
            if self.brokers.open.get(self._name) is self._begun:
                self.brokers.finish(self._name, "aborted")
            raise

    def send(self, records: Iterable[OutRecord], *, is_small: bool = False) -> None:
        for record in records:
            if record.topic == MARKERS:
                ask()
            self._check()
            self.brokers.write(self._begun, record)
        ask()
        self._check()
        if self.brokers.refusals and not is_small:
            self.brokers.refusals -= 1
            raise BatchRefusedError("larger than the topic takes", code="")

    def add_offset(self, offset: ClientPartition) -> None:
        ask()
        self._check()
        self._begun.offsets[self._group] = offset
        ask()

    def commit(self) -> None:
        self._ask_to_commit("request")
        self._check()
        self.brokers.finish(self._name, "committed")
        self._ask_to_commit("answer")

    def _ask_to_commit(self, what: str) -> None:
        program = running()
        ask()
        if program is not None and program.loses == what:
            program.lost.append(what)
            raise KafkaError(f"the {what} was lost")

    def _check(self) -> None:
        if self.brokers.epochs[self._name] != self._epoch:
            raise KafkaError("fenced")


class SimulatedTopic:
    """Stands for ``kafka_tx.kafka.marker_topic.MarkerTopic``."""

    brokers: ClassVar[Brokers]
    addresses = "simulated:9092"

    def __init__(self, *_: object) -> None:
        pass

    def bounds(self) -> tuple[LogBounds, int]:
        ask()
        end = self.brokers.end
        return LogBounds(min(self.brokers.log, default=end), end), self.stable_end()

    def stable_end(self) -> int:
        ask()
        return self.brokers.stable_end

    def check_policy(self) -> None:
        ask()

    def read(
        self, bounds: LogBounds, level: str, starts: tuple[bytes, ...] = (b"",)
    ) -> Iterator[Kept]:
        if bounds.end > bounds.log_start:
            ask()
        for at, (begun, record) in sorted(self.brokers.log.items()):
            is_asked = bounds.log_start <= at < bounds.end
            is_shown = level != COMMITTED or begun.state == "committed"
            if is_asked and is_shown and (record.key or b"").startswith(starts):
                yield Kept(at, record.key or b"", record.value)

    def silent(self, reason: str) -> BrokerUnavailableError:
        return BrokerUnavailableError(reason, addresses=self.addresses)


class FewPauses:
    """Stands for a deadline: over after some steps of the program.

    A task waits longer: those beside it end meanwhile.
    """

    def __init__(self, _: int) -> None:
        program = running()
        self._left = 40 if program is not None and program.is_task else 3

    def pause(self, _: int) -> bool:
        ask()
        self._left -= 1
        return self._left > 0


def read_group(_: object, group: str, *__: object) -> list[ClientPartition]:
    brokers = SimulatedTransaction.brokers
    ask()
    if brokers.is_pending(group):
        message = "an offset of the group is being committed"
        raise BrokerUnavailableError(message, addresses=SimulatedTopic.addresses)
    found = brokers.groups.get(group)
    return [] if found is None else [found]


def log() -> marker_log.MarkerLog:
    """The real log, on these brokers."""
    return marker_log.MarkerLog(MARKERS, TOPIC, {}, {})


@contextmanager
def simulated(brokers: Brokers) -> Iterator[None]:
    """Let the real protocol talk to these brokers."""

    def part(config: SinkConfig, index: int) -> part_transaction.PartTransaction:
        since = Memory.of_text(config.memory) if config.memory else None
        return part_transaction.PartTransaction(
            {}, sink_assembly.sink_part(config, index), log(), {}, since
        )

    def held_up(_: SinkConfig) -> bool:
        return brokers.holds_readers_up

    SimulatedTransaction.brokers = SimulatedTopic.brokers = brokers
    with (
        mock.patch.object(part_transaction, "Transaction", SimulatedTransaction),
        mock.patch.object(marker_log, "Transaction", SimulatedTransaction),
        mock.patch.object(marker_log, "MarkerTopic", SimulatedTopic),
        mock.patch.object(marker_log, "Deadline", FewPauses),
        mock.patch.object(marker_log, "read_group", read_group),
        mock.patch.object(sink_assembly, "part_transaction", part),
        mock.patch.object(sink_assembly, "holds_readers_up", held_up),
        mock.patch.object(sink_assembly, "marker_log", side_effect=lambda _: log()),
    ):
        yield


# --- the three doors ---------------------------------------------------------------


def rows_of(txid: int, more: bytes = b"") -> list[OutRecord]:
    values = (b"%d-%d%b" % (txid, n, more) for n in range(ROWS))
    return [OutRecord(TOPIC, b"%d" % n, value) for n, value in enumerate(values)]


def cut(txid: int, parts: int, more: bytes = b"") -> list[list[OutRecord]]:
    return split(rows_of(txid, more), parts)


def split(rows: list[OutRecord], parts: int) -> list[list[OutRecord]]:
    return [rows[index::parts] for index in range(parts)]


def config(
    attempt: TransactionAttempt, parts: int, run: int, **more: Any
) -> SinkConfig:
    made = SinkConfig(
        kafka={}, topic=TOPIC, id=SINK, attempt=attempt, parts=parts, run=str(run)
    )
    return replace(made, **more)


class Writer:
    """One run of a query or topology, with an epoch of its own."""

    def __init__(
        self,
        door: str,
        epoch: int,
        parts: int,
        numbering: str = "one",
        *,
        are_beside: bool = False,
        more: bytes = b"",
    ) -> None:
        """``more`` ends each value: a program whose rows are not those of others."""
        self.door, self.epoch, self.parts = door, epoch, parts
        self.numbering = numbering
        self._are_beside = are_beside
        self._more = more
        self._plan: SinkPlan | None = None
        self.memory: str | None = None
        self.before_part: Callable[[int], None] = lambda number: None
        """Called with how many parts were written before."""

    def write(self, txid: int) -> None:
        """Write a batch; returns when it counts as written."""
        {
            "transaction": self._transaction,
            "stream": self._stream,
            "bolt": self._bolt,
        }[self.door](txid)

    def _attempt(self, txid: int) -> TransactionAttempt:
        attempt = TransactionAttempt.of(txid, epoch=self.epoch, number=1)
        return replace(attempt, numbering=self.numbering)

    def _cut(self, txid: int, parts: int) -> list[list[OutRecord]]:
        return cut(txid, parts, self._more)

    def _transaction(self, txid: int) -> None:
        self.put(self._attempt(txid), self._cut(txid, self.parts))

    def put(self, attempt: TransactionAttempt, parts: list[list[OutRecord]]) -> None:
        """Write an attempt as ``write_transaction`` does, in parts that come again."""
        self._put(
            attempt, lambda n: parts if n == len(parts) else self._cut(attempt.txid, n)
        )

    def put_rows(self, attempt: TransactionAttempt, rows: list[OutRecord]) -> None:
        """Write rows of a batch by the door's protocol, in its parts or those begun."""
        if self.door == "transaction":
            self._put(attempt, lambda n: split(rows, n))
            return
        given = config(attempt, self.parts, self.epoch, reads_all_markers=True)
        if self.memory is None:
            self.memory = sink_assembly.remembered(given)
        self._bolt_tasks(replace(given, memory=self.memory), split(rows, self.parts))

    def _put(
        self,
        attempt: TransactionAttempt,
        parts_of: Callable[[int], list[list[OutRecord]]],
    ) -> None:
        wish, self.memory = Wish(SINK, attempt, self.parts), ""
        if self._plan is None or not self._plan.follows(wish):
            keeper = part_transaction.PlanKeeper({}, log(), {})
            self._plan, known = keeper.settle(wish)
            self.memory = sink_assembly.handed(known)
        usable = self._plan.parts_of(attempt.txid)
        given = config(
            attempt,
            usable,
            self.epoch,
            compares=usable > 1,
            memory=self.memory,
        )
        self._tasks(given, parts_of(usable))

    def _bolt(self, txid: int) -> None:
        given = config(
            self._attempt(txid), self.parts, self.epoch, reads_all_markers=True
        )
        if self.memory is None:
            self.memory = sink_assembly.remembered(given)
        self._bolt_tasks(
            replace(given, memory=self.memory), self._cut(txid, self.parts)
        )

    def _stream(self, txid: int) -> None:
        given = config(
            TransactionAttempt(txid, 0),
            0,
            self.epoch,
            reads_all_markers=True,
            life="life",
        )
        if self.memory is None:
            self.memory = sink_assembly.remembered(given)
        given = replace(given, memory=self.memory)
        parts = self._tasks(given, self._cut(txid, self.parts))
        if any(message.written.unwritten is not None for message in parts):
            writer._write_the_rest(parts)
        if any(message.written.has_read_all for message in parts):
            tasks = {message.index for message in parts}
            sink_assembly.end_open_parts(parts[0].config, tasks)

    def _tasks(
        self, given: SinkConfig, parts: list[list[OutRecord]]
    ) -> list[PartMessage]:
        def write(index: int) -> PartMessage:
            written = sink_assembly.part_transaction(given, index).write(parts[index])
            without = replace(given, memory="")  # as ``write_part`` reports it
            return PartMessage(index, written, without)

        return self._run(write, len(parts))

    def _bolt_tasks(self, given: SinkConfig, parts: list[list[OutRecord]]) -> None:
        def write(index: int) -> None:
            kafka_sink_bolt.write_part(given, index, parts[index])

        self._run(write, len(parts))

    def _run(self, task: Callable[[int], T], parts: int) -> list[T]:
        """Run a batch's tasks, in any order or side by side."""
        order, chance = list(range(parts)), random.Random(self.epoch)
        chance.shuffle(order)
        if self._are_beside:
            return side_by_side([partial(task, index) for index in order], chance)
        results = []
        for number, index in enumerate(order):
            self.before_part(number)
            results.append(task(index))
        return results


def is_documented(error: Exception | None) -> bool:
    """Whether a program may end with it."""
    return error is None or isinstance(error, KafkaTxError)


def forged(key: bytes, value: bytes) -> bytes | None:
    """A marker of a batch far ahead in place of this one; None: it is no marker."""
    entry = Entry.of_key(key)
    assert entry is not None
    kept = entry.of_value(value).kept
    if not isinstance(kept, Marker):
        return None
    attempt = replace(kept.attempt, txid=kept.txid + 1_000)
    return Entry(SINK, replace(kept, attempt=attempt)).value


def begin_of_another_sink(brokers: Brokers, number: int) -> str:
    """Let another sink's writer write its marker, and stand still; returns its name."""
    entry = Entry("theirs", Marker(number, TransactionAttempt(1, 0), 1, Digest(), "1"))
    brokers.write(brokers.begin(entry.name), log().record(entry))
    return entry.name
