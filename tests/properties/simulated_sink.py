"""Brokers that keep a sink's transactions, and programs that write to it and die.

The programs run the real protocol (``PartTransaction``, ``PlanKeeper``, the stream
writer's ``commit``) in threads of which one at a time makes a step: whatever asks the
brokers. Between two steps a program can be killed, or frozen and woken later.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar
from unittest import mock

from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx import sink_assembly
from kafka_tx.config import SinkConfig
from kafka_tx.errors import KafkaError, KafkaTxError
from kafka_tx.kafka import marker_log, part_transaction, plan_keeper
from kafka_tx.kafka.producer import OutRecord
from kafka_tx.spark.sinks import stream_writer
from kafka_tx.spark.sinks.writer import PartMessage
from kafka_tx.transactions.sink_plan import SinkPlan, Wish

SINK, TOPIC, MARKERS = "sink", "out", "markers"
ROWS = 8


class Killed(BaseException):
    """The program is gone."""


class Brokers:
    """What is committed, and who may still write."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.markers: list[OutRecord] = []
        self.groups: dict[str, ClientPartition] = {}
        self.epochs: dict[str, int] = {}

    def commit(self, records: list[OutRecord], offsets: dict[str, Any]) -> None:
        self.rows += [r.value for r in records if r.topic == TOPIC and r.value]
        self.markers += [r for r in records if r.topic == MARKERS]
        self.groups.update(offsets)


class Program(threading.Thread):
    """Runs a function up to its next step, when it is told to."""

    current: ClassVar[Program | None] = None

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
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
            Program.current = self
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


def ask() -> None:
    program = Program.current
    if program is not None:
        program.pause()


class SimulatedTransaction:
    """Stands for ``kafka_tx.kafka.transaction.Transaction``."""

    brokers: ClassVar[Brokers]

    def __init__(
        self, _: object, name: str, what: str, reading: object, group: str
    ) -> None:
        self._name, self._group = name, group
        self._records: list[OutRecord] = []
        self._offsets: dict[str, ClientPartition] = {}

    def __enter__(self) -> SimulatedTransaction:
        ask()
        epochs = self.brokers.epochs
        self._epoch = epochs[self._name] = epochs.get(self._name, 0) + 1
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def writing(self) -> Iterator[None]:
        yield

    def send(self, records: Iterable[OutRecord]) -> None:
        self._records += list(records)
        ask()
        self._check()

    def add_offset(self, offset: ClientPartition) -> None:
        ask()
        self._check()
        self._offsets[self._group] = offset

    def commit(self) -> None:
        self._ask_to_commit("request")
        self._check()
        self.brokers.commit(self._records, self._offsets)
        self._ask_to_commit("answer")

    def _ask_to_commit(self, what: str) -> None:
        program = Program.current
        ask()
        if program is not None and program.loses == what:
            program.lost.append(what)
            raise KafkaError(f"the {what} was lost")

    def _check(self) -> None:
        if self.brokers.epochs[self._name] != self._epoch:
            raise KafkaError("fenced")


class SimulatedLog(marker_log.MarkerLog):
    """Reads what the simulated brokers committed."""

    brokers: ClassVar[Brokers]

    def __init__(self) -> None:
        super().__init__(MARKERS, {})

    def _bounds(self, unlock: object) -> Any:
        ask()
        return mock.Mock(log_start=0, end=1)

    def _read(self, *_: object) -> Iterator[tuple[bytes, bytes]]:
        for record in self.brokers.markers:
            yield record.key or b"", record.value or b""


def read_group(_: object, group: str, *__: object) -> list[ClientPartition]:
    ask()
    found = SimulatedTransaction.brokers.groups.get(group)
    return [] if found is None else [found]


@contextmanager
def simulated(brokers: Brokers) -> Iterator[None]:
    """Let the real protocol talk to these brokers."""

    def part(config: SinkConfig, index: int) -> part_transaction.PartTransaction:
        return part_transaction.PartTransaction(
            {}, sink_assembly.sink_part(config, index), TOPIC, SimulatedLog(), {}
        )

    SimulatedTransaction.brokers = SimulatedLog.brokers = brokers
    with (
        mock.patch.object(part_transaction, "Transaction", SimulatedTransaction),
        mock.patch.object(plan_keeper, "Transaction", SimulatedTransaction),
        mock.patch.object(part_transaction, "read_group", read_group),
        mock.patch.object(plan_keeper, "read_group", read_group),
        mock.patch.object(sink_assembly, "part_transaction", part),
        mock.patch.object(sink_assembly, "marker_log", return_value=SimulatedLog()),
    ):
        yield


# --- the three doors ---------------------------------------------------------------


def rows_of(txid: int) -> list[OutRecord]:
    return [OutRecord(TOPIC, b"%d" % n, b"%d-%d" % (txid, n)) for n in range(ROWS)]


def cut(txid: int, parts: int) -> list[list[OutRecord]]:
    records = rows_of(txid)
    return [records[index::parts] for index in range(parts)]


def config(txid: int, parts: int, run: int, **more: Any) -> SinkConfig:
    made = SinkConfig(
        kafka={}, topic=TOPIC, id=SINK, txid=txid, parts=parts, run=str(run)
    )
    return replace(made, **more)


class Writer:
    """One run of a query or topology, with an epoch of its own."""

    def __init__(
        self, door: str, epoch: int, parts: int, owner: str = "source"
    ) -> None:
        self.door, self.epoch, self.parts, self.owner = door, epoch, parts, owner
        self._plan: SinkPlan | None = None

    def write(self, txid: int) -> None:
        """Write a batch; returns when it counts as written."""
        {
            "transaction": self._transaction,
            "stream": self._stream,
            "bolt": self._bolt,
        }[self.door](txid)

    def _transaction(self, txid: int) -> None:
        wish = Wish(SINK, txid, self.parts, self.owner, self.epoch)
        if self._plan is None or not self._plan.follows(wish):
            keeper = plan_keeper.PlanKeeper({}, SimulatedLog(), {})
            self._plan = keeper.settle(wish, TOPIC)
        parts = self._plan.parts_of(txid)
        given = config(
            txid,
            parts,
            self.epoch,
            epoch=self.epoch,
            compares=parts > 1,
            owner=self.owner,
        )
        self._tasks(given, cut(txid, parts))

    def _bolt(self, txid: int) -> None:
        more = {"epoch": self.epoch, "looks": True, "owner": self.owner}
        given = config(txid, self.parts, self.epoch, **more)
        self._tasks(given, cut(txid, self.parts))

    def _stream(self, txid: int) -> None:
        given = config(txid, 0, self.epoch, looks=True, life="life")
        told = self._tasks(given, cut(txid, self.parts))
        if any(message.written.held is not None for message in told):
            stream_writer._write_the_rest(told)

    def _tasks(
        self, given: SinkConfig, parts: list[list[OutRecord]]
    ) -> list[PartMessage]:
        told = []
        order = list(range(len(parts)))
        random.Random(self.epoch).shuffle(order)
        for index in order:
            written = sink_assembly.part_transaction(given, index).write(parts[index])
            told.append(PartMessage(index, written, given))
        return told


def is_documented(error: Exception | None) -> bool:
    """Whether a program may end with it."""
    return error is None or isinstance(error, KafkaTxError)
