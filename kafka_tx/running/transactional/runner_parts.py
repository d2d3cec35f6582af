"""What a topology's runner is made of, and what others see of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka_tx.model import TransactionAttempt
from kafka_tx.protocols import Clock, Store
from kafka_tx.running.lag_watch import SpoutLagWatch
from kafka_tx.running.transactional.batch_progress import Journal, Listener
from kafka_tx.running.waiters import Waiters
from kafka_tx.topology.declare.spouts import Json, Spout
from kafka_tx.topology.run.attempt_run import Processed
from kafka_tx.transactions.actions import Action
from kafka_tx.transactions.coordinator import TransactionCoordinator
from kafka_tx.transactions.flights import BatchPhase


class Mirror(Protocol):
    """Takes committed metadata elsewhere, without ever waiting or failing."""

    def __call__(self, metadata: Json, /) -> None:
        """Take the newest."""
        ...

    def close(self) -> None:
        """Take what waits, within a bounded time, and end."""
        ...


@dataclass(frozen=True)
class RunnerParts:
    """What a runner is made of.

    Attributes:
        spout: The user's.
        spout_name: Its component.
        store: Acquired.
        coordinator: Opened on what the store held.
        journal: Takes what happened.
        clock: The machine's.
        listeners: Told of committed batches.
        watch: Looks at the spout's logs.
        mirror: Sends committed metadata elsewhere, after the store has it.
    """

    spout: Spout
    spout_name: str
    store: Store
    coordinator: TransactionCoordinator[Json]
    journal: Journal
    clock: Clock
    listeners: Sequence[Listener]
    watch: SpoutLagWatch
    mirror: Mirror | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What the coordinator said after the last event, for other threads."""

    committed_txid: int | None
    phases: Mapping[TransactionAttempt, BatchPhase]


class IdleLooks:
    """Counts how often nothing was in flight and the spout had nothing new."""

    def __init__(self) -> None:
        self.waiters = Waiters()
        self._looks = 0

    def saw(self) -> None:
        """Once more."""
        with self.waiters.changing():
            self._looks += 1

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until all that is there now was seen; False when the time is up."""
        return self.waiters.wait(self._ask, timeout_s)

    def _ask(self) -> Callable[[], bool]:
        # The look under way may have begun before the caller's rows were there.
        wanted = self._looks + 2
        return lambda: self._looks >= wanted


logger = logging.getLogger(__name__)

Event = Callable[[], list[Action[Json]]]
"""Run by the runner's thread; what it gives is carried out there."""


class AttemptAnswers:
    """Makes an event of each answer; implements ``topologies.attempt.Answers``.

    Args:
        post: Takes an event, from any thread.
        machine: Is told; on the runner's thread only.
        observe: Called there before the machine hears that an attempt is processed.
        held: Called there when a commit phase is complete; gives the records about the
            batch that are stored with its commit.
        ended: Called there when the thread of an attempt has ended.
    """

    def __init__(
        self,
        post: Callable[[Event], None],
        machine: TransactionCoordinator[Json],
        observe: Callable[[Processed], None],
        held: Callable[[TransactionAttempt], Mapping[str, str]],
        ended: Callable[[TransactionAttempt], None],
    ) -> None:
        self._post = post
        self._machine = machine
        self._observe = observe
        self._held = held
        self._ended = ended

    def processed(self, processed: Processed) -> None:
        """See ``Answers``."""

        def event() -> list[Action[Json]]:
            self._observe(processed)
            return self._machine.processed(processed.attempt)

        self._post(event)

    def failed(self, attempt: TransactionAttempt, reason: str) -> None:
        """See ``Answers``."""
        self._post(lambda: self._machine.failed(attempt, reason))

    def committed(self, attempt: TransactionAttempt) -> None:
        """See ``Answers``."""
        self._post(lambda: self._machine.committed(attempt, self._held(attempt)))

    def commit_failed(self, attempt: TransactionAttempt, reason: str) -> None:
        """See ``Answers``."""
        self._post(lambda: self._machine.commit_failed(attempt, reason))

    def crashed(self, attempt: TransactionAttempt, error: BaseException) -> None:
        """See ``Answers``."""

        def event() -> list[Action[Json]]:
            if attempt not in self._machine.phases:
                logger.warning(
                    "attempt %s, given up before, failed: %s", attempt, error
                )
            return self._machine.crashed(attempt, error)

        self._post(event)

    def ended(self, attempt: TransactionAttempt) -> None:
        """See ``Answers``."""

        def event() -> list[Action[Json]]:
            self._ended(attempt)
            return []

        self._post(event)
