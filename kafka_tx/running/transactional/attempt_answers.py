"""From the threads of attempts to the thread that owns the coordinator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.declare.spouts import Json
from kafka_tx.topology.run.attempt_run import Processed
from kafka_tx.transactions.actions import Action
from kafka_tx.transactions.coordinator import TransactionCoordinator

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
