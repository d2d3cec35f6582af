"""A topology of numbered batches as its runner drives it, one action after the other.

The coordinator, the Kafka spouts and the emitter are the real ones; between any two
actions the driver may be gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import cast

import pyarrow as pa

from kafka_tx.errors import (
    FailedException,
    KafkaTxError,
    OffsetOutOfRangeError,
    OtherTopicError,
)
from kafka_tx.model import BatchMetadata, OffsetRange, Topics, TransactionAttempt
from kafka_tx.offsets.loss import OutOfRange
from kafka_tx.protocols import Clock
from kafka_tx.topology.declare.spouts import Json
from kafka_tx.topology.kafka.spout import KafkaBatchSpout
from kafka_tx.transactions.coordinator.actions import (
    Action,
    Cancel,
    Initialize,
    StartBatch,
    StartCommit,
    Stopped,
    TransactionCommitted,
    Write,
)
from kafka_tx.transactions.coordinator.coordinator import TransactionCoordinator
from kafka_tx.transactions.coordinator.pacing import Pacing
from kafka_tx.transactions.layout.txid_layout import Door, numbered
from kafka_tx.transactions.ledger.ledger_reading import LedgerReader
from kafka_tx.transactions.ownership import guarded_writes
from kafka_tx.transactions.ownership.guarded_writes import take_over
from kafka_tx.transactions.ownership.memory import MemoryStore
from tests.kafka_spouts import OpaqueKafkaBatchSpout, reads
from tests.properties.simulated_log import Brokers

_SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64())]
)


class Reading:
    """Reads a range of the simulated brokers: a record is its number."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        partition = wanted.topic_partition
        topic = self._brokers.topics_[partition.topic]
        if topic.is_hidden or not topic.has_leaders:
            raise FailedException(f"{partition} has no leader")
        if wanted.topic_id not in (None, topic.topic_id):
            raise OtherTopicError(f"{wanted} was planned of another topic")
        is_there = partition.partition < len(topic.logs)
        log = self._brokers.log(partition) if is_there else None
        epoch = wanted.leader_epoch
        end = 0 if log is None else log.end if epoch is None else log.end_of(epoch)
        if log is None or wanted.start < log.start or wanted.end > end:
            at = {"log_start": log.start, "log_end": end} if log else {}
            raise OffsetOutOfRangeError(f"{wanted} is not in the log", **at)
        records = log.read(wanted.start, wanted.end)
        values = [str(number).encode() for number in records]
        offsets = range(wanted.start, wanted.end)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([None] * len(values), pa.binary()),
                pa.array(values, pa.binary()),
                pa.array(offsets, pa.int64()),
            ],
            schema=_SCHEMA,
        )


class TopologyRun:
    """One driver of a transactional or opaque topology.

    Args:
        topics: What its spout reads.
        mode: Of the spout.
        brokers: Where it reads.
        store: Of its id.
        clock: Shared with the world.
        write: Its committer: an attempt, and the records of the batch.
        fails: Whether it stops where records are gone that nobody read.
        pending: Batches in flight.
    """

    def __init__(
        self,
        topics: tuple[str, ...],
        mode: str,
        brokers: Brokers,
        store: MemoryStore,
        clock: Clock,
        write: Callable[[TransactionAttempt, list[int]], None],
        *,
        fails: bool = True,
        pending: int = 2,
    ) -> None:
        self.error: BaseException | None = None
        self.is_idle = False
        self._clock = clock
        self._store = store
        self._write = write
        self._asked: deque[Action[Json]] = deque()
        self._records: dict[TransactionAttempt, list[int]] = {}
        kind = OpaqueKafkaBatchSpout if mode == "opaque" else KafkaBatchSpout
        self._spout = kind(
            *(reads(Topics(topics), max_records=5), brokers, Reading(brokers), clock),
            out_of_range=OutOfRange.of(fails),
            poll_ms=1,
            refresh_ms=1,
        )
        self._pending = pending
        self._machine: TransactionCoordinator[Json] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a task may be reading."""
        return bool(self._asked)

    def step(self) -> bool:
        """Carry out one action, or look around; False once it has ended."""
        if self.error is None:
            try:
                self._step(self._machine or self._opened())
            except KafkaTxError as error:
                self.error = error
        return self.error is None

    def _opened(self) -> TransactionCoordinator[Json]:
        store = self._store
        epoch = take_over(store)
        reader = LedgerReader(store.url, store.id, Door.TRANSACTIONAL)
        state = reader.read(numbered(store, epoch), epoch)
        pacing = Pacing(max_pending=self._pending, idle_pause_ms=10, retry_ms=10)
        self._machine = TransactionCoordinator(self._spout.mode, pacing, reader, state)
        return self._machine

    def _step(self, machine: TransactionCoordinator[Json]) -> None:
        if self._asked:
            self._asked += self._carry_out(machine, self._asked.popleft())
            return
        now_ms = self._clock.monotonic_ms()
        is_ready = machine.asks_ready(now_ms) and self._is_ready()
        self._asked += machine.tick(now_ms, is_ready=is_ready)
        self.is_idle = not self._asked and not machine.phases and self._is_drained()
        if not self._asked:
            self._clock.sleep_ms(1_000)

    def _is_ready(self) -> bool:
        try:
            return self._spout.is_ready()
        except KafkaTxError as error:
            if not error.retryable:
                raise
            return False

    def _is_drained(self) -> bool:
        try:
            return self._spout.is_drained()
        except KafkaTxError as error:
            if not error.retryable:
                raise
            return False

    def _carry_out(
        self, machine: TransactionCoordinator[Json], action: Action[Json]
    ) -> list[Action[Json]]:
        match action:
            case Initialize(attempt=attempt, previous=previous):
                return self._plan(machine, attempt, previous)
            case Write():
                return self._store_it(machine, action)
            case StartBatch(attempt=attempt, metadata=metadata):
                return self._process(machine, attempt, metadata)
            case StartCommit(attempt=attempt):
                return self._commit(machine, attempt)
            case _:
                self._note(action)
        return []

    def _note(self, action: Action[Json]) -> None:
        """What needs no answer."""
        match action:
            case TransactionCommitted(attempt=attempt, metadata=metadata):
                self._spout.committed(attempt.txid, metadata)
            case Stopped(error=error):
                self.error = error
            case Cancel(attempts=attempts):
                for attempt in attempts:
                    self._records.pop(attempt, None)
            case _:
                raise AssertionError(action)

    def _plan(
        self,
        machine: TransactionCoordinator[Json],
        attempt: TransactionAttempt,
        previous: Json,
    ) -> list[Action[Json]]:
        try:
            metadata = self._spout.initialize_transaction(attempt.txid, previous)
        except KafkaTxError as error:
            if not error.retryable:
                return machine.crashed(attempt, error)
            return machine.initialize_failed(attempt)
        is_empty = self._spout.is_empty(metadata)
        return machine.initialized(attempt, metadata, is_empty=is_empty)

    def _store_it(
        self, machine: TransactionCoordinator[Json], write: Write
    ) -> list[Action[Json]]:
        try:
            guarded_writes.write(
                self._store, write.epoch, write.put, write.delete, write.expect
            )
        except KafkaTxError as error:
            return machine.store_failed(write.write_id, error)
        return machine.stored(write.write_id)

    def _process(
        self,
        machine: TransactionCoordinator[Json],
        attempt: TransactionAttempt,
        metadata: BatchMetadata,
    ) -> list[Action[Json]]:
        facts: dict[str, Json] = {}
        try:
            source = self._spout.batch(attempt, metadata)
            blocks = source.read(0, 1, facts)
            records = [
                int(text)
                for block in blocks
                for text in cast(pa.RecordBatch, block).column(0).to_pylist()
            ]
        except KafkaTxError as error:
            if error.retryable or isinstance(error, FailedException):
                return machine.failed(attempt, str(error))
            return machine.crashed(attempt, error)
        self._records[attempt] = records
        self._spout.observed(attempt, metadata, facts)
        return machine.processed(attempt)

    def _commit(
        self, machine: TransactionCoordinator[Json], attempt: TransactionAttempt
    ) -> list[Action[Json]]:
        try:
            self._write(attempt, self._records[attempt])
        except KafkaTxError as error:
            return machine.crashed(attempt, error)
        return machine.committed(attempt)
