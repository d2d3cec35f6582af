"""How long a store that does not answer is tried again: bounded, and logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kafka_tx.errors import StateGivenUpError, StateUnavailableError
from kafka_tx.protocols import Clock

logger = logging.getLogger(__name__)

DEFAULT_MS = 120_000
"""Long enough for a database that restarts or fails over."""

_FIRST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 5_000

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Patience:
    """Makes a call again while the store is unavailable, until the time is up.

    The one place that decides it: for the ledger of a query and of a topology, for
    offsets, and for maps and tables. Only for calls that may be made twice: whether one
    that failed had arrived is unknown.

    Attributes:
        clock: The machine's.
        limit_ms: For how long from the first failure; 0 tries once.
    """

    clock: Clock
    limit_ms: int = DEFAULT_MS

    def __call__(self, call: Callable[[], _T]) -> _T:
        """Give what ``call`` gives.

        Raises:
            StateGivenUpError: It was unavailable all the time. Not retryable.
            Exception: Whatever else ``call`` raises, at once.
        """
        first_ms: int | None = None
        pause_ms = _FIRST_PAUSE_MS
        failures = 0
        while True:
            try:
                answer = call()
            except StateUnavailableError as error:
                failures += 1
                now_ms = self.clock.monotonic_ms()
                first_ms = now_ms if first_ms is None else first_ms
                waited_ms = now_ms - first_ms
                if not self.limit_ms:
                    raise
                if waited_ms + pause_ms > self.limit_ms:
                    raise self._given_up(error, failures, waited_ms) from error
                _say(error, failures, self.limit_ms - waited_ms)
            else:
                if failures:
                    logger.warning("the store answers again, at try %d", failures + 1)
                return answer
            self.clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS)

    def _given_up(
        self, error: StateUnavailableError, failures: int, waited_ms: int
    ) -> StateGivenUpError:
        return StateGivenUpError(
            f"gave up after {failures} tries in {waited_ms / 1000:.0f} s:"
            f" {error.message}. Nothing is lost: start it again when the store can be"
            " used. The store's URL may say retry_for_ms=… to wait longer or shorter"
            f" than {self.limit_ms} ms",
            **error.fields,
        )


def _say(error: StateUnavailableError, failures: int, left_ms: int) -> None:
    logger.warning(
        "try %d failed, trying again for at most %.0f s: %s",
        failures,
        left_ms / 1000,
        error.message,
    )
