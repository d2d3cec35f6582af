"""A runner for tests of the transaction coordinator that does only what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_tx.config import Mode
from kafka_tx.model import SpoutBatch, TransactionAttempt
from kafka_tx.transactions.coordinator.actions import (
    Initialize,
    StartBatch,
    StartCommit,
    Write,
)
from kafka_tx.transactions.coordinator.coordinator import TransactionCoordinator
from kafka_tx.transactions.coordinator.in_flight_batches import BatchPhase
from kafka_tx.transactions.coordinator.pacing import Pacing
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.batch_records import batch_record
from kafka_tx.transactions.layout.txid_layout import Door
from kafka_tx.transactions.ledger.ledger_reading import LedgerReader, LedgerState

EPOCH = 3
TIMEOUT_MS = 30_000
BOTH = pytest.mark.parametrize("mode", ["transactional", "opaque"])


def meta(txid: int, metadata: Any) -> str:
    """The record of what a spout without ranges planned for a txid."""
    return batch_record(SpoutBatch(txid, (), json=metadata))


def currtx(txid: int) -> str:
    """The record of the lowest txid that is not committed."""
    return records.encode("currtx", txid)


def opened(
    values: Mapping[str, str], epoch: int = 1
) -> tuple[LedgerReader, LedgerState]:
    """A new owner's reader, and the state that it found."""
    reader = LedgerReader("memory:", "jobs", Door.TRANSACTIONAL)
    return reader, reader.read(dict(values), epoch)


class Drive:
    """A runner beside a store that is a dict; nothing is answered but by a test.

    Except, while ``is_owner``, the question who owns the store: it is.
    """

    is_owner = True

    def __init__(
        self,
        mode: Mode = "transactional",
        stored: dict[str, str] | None = None,
        epoch: int = EPOCH,
        **pacing: Any,
    ) -> None:
        self.store = dict(stored or {})
        found = opened(self.store, epoch)
        self.machine = TransactionCoordinator[Any](mode, Pacing(**pacing), *found)
        self.now_ms = 0
        self.asked: Any = None
        """The Initialize that was not answered yet."""
        self.due: list[Any] = []
        """What ``processed`` returned; the next ``tick`` carries it out, or nobody."""

    def tick(self, after_ms: int = 0, *, is_ready: bool = True) -> list[Any]:
        self.now_ms += after_ms
        actions: list[Any] = []
        due, self.due = self.due, []
        due += self.machine.tick(self.now_ms, is_ready=is_ready)
        while due:
            action = due.pop(0)
            if self.is_owner and isinstance(action, Write) and is_question(action):
                due[:0] = self.machine.stored(action.write_id)
                continue
            if isinstance(action, Initialize):
                self.asked = action
            actions.append(action)
        return actions

    def make(self, write: Any) -> list[Any]:
        self.store |= write.put
        for path in write.delete:
            self.store.pop(path, None)
        return list(self.machine.stored(write.write_id))

    def answer(self, metadata: Any, **more: Any) -> TransactionAttempt:
        """Give the metadata that was asked for, and store what has to be."""
        attempt, self.asked = self.asked.attempt, None
        for write in self.machine.initialized(attempt, metadata, **more):
            self.make(write)
        return attempt  # type: ignore[no-any-return]

    def start(self, *txids: int) -> list[TransactionAttempt]:
        """Plan and start these txids; the next one is asked for already."""
        attempts = []
        for txid in txids:
            if self.asked is None:
                self.tick()
            assert self.asked.attempt.txid == txid
            self.answer(f"batch {txid}")
            (batch,) = [a for a in self.tick() if isinstance(a, StartBatch)]
            attempts.append(batch.attempt)
        return attempts

    def process(self, *attempts: TransactionAttempt) -> None:
        for attempt in attempts:
            self.due += self.machine.processed(attempt)

    def recorded(self, attempt: TransactionAttempt) -> Any:
        """End its commit phase; return the write that records it."""
        (write,) = self.machine.committed(attempt)
        return write

    def commit(self, attempt: TransactionAttempt) -> list[Any]:
        """From PROCESSED to recorded."""
        assert StartCommit(attempt) in self.tick()
        return self.make(self.recorded(attempt))

    def phases(self) -> dict[int, BatchPhase]:
        return {a.txid: phase for a, phase in self.machine.phases.items()}


def is_question(action: Any) -> bool:
    """Whether it is the write that only says who owns the store."""
    return isinstance(action, Write) and not action.put and not action.delete


def started_again(drive: Drive) -> list[TransactionAttempt]:
    """Let every replay that is due begin."""
    actions = drive.tick()
    if drive.asked is not None:
        drive.answer("again")
        actions += drive.tick()
    return [a.attempt for a in actions if isinstance(a, StartBatch)]


def paced(**more: int) -> dict[str, Any]:
    return {"timeout_ms": TIMEOUT_MS, "idle_pause_ms": 100, "retry_ms": 50} | more
