"""All attempts of a topology that have a thread."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future

from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.topologies.attempt import AttemptRunner, RunningAttempt
from kafka_tx.topology.declare.spouts import BatchSource, Json


class Attempts:
    """Those that count, and those that were given up and have not ended yet.

    Used by the runner's thread.

    Args:
        shared: What all of them share.
    """

    def __init__(self, shared: AttemptRunner) -> None:
        self._shared = shared
        self._running: dict[TransactionAttempt, RunningAttempt] = {}
        self._ending: dict[TransactionAttempt, RunningAttempt] = {}

    def start(
        self, attempt: TransactionAttempt, metadata: Json, source: Future[BatchSource]
    ) -> None:
        """Begin a processing phase."""
        running = RunningAttempt(self._shared, attempt, metadata, source)
        self._running[attempt] = running
        running.start()

    def commit(self, attempt: TransactionAttempt) -> None:
        """Begin its commit phase."""
        self._running[attempt].commit()

    def find(self, attempt: TransactionAttempt) -> RunningAttempt | None:
        """The attempt, if it counts."""
        return self._running.get(attempt)

    def done(self, attempt: TransactionAttempt) -> None:
        """It is committed and recorded."""
        self._running.pop(attempt, None)

    def give_up(self, attempts: Iterable[TransactionAttempt]) -> None:
        """Cancel attempts; they count no more."""
        for attempt in attempts:
            running = self._running.pop(attempt, None)
            if running is not None:
                self._ending[attempt] = running
                running.cancel()

    @property
    def ending(self) -> int:
        """How many were given up and have not ended."""
        return len(self._ending)

    def cancel_again(self) -> None:
        """Cancel once more what was given up."""
        for running in self._ending.values():
            running.cancel()

    def ended(self, attempt: TransactionAttempt) -> None:
        """Its thread does nothing more."""
        self._ending.pop(attempt, None)

    def end_all(self, timeout_s: float) -> list[str]:
        """Cancel all of them and wait for their ends; names those that hang."""
        left = [*self._running.values(), *self._ending.values()]
        for running in left:
            running.cancel()
        deadline = time.monotonic() + timeout_s
        hanging = [r for r in left if not r.end(deadline - time.monotonic())]
        self._shared.engine.close()
        return [str(running.attempt) for running in hanging]
