"""Retries calls to a store that does not answer: bounded in time, and logged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from kafka_tx.errors import StateGivenUpError, StateUnavailableError
from kafka_tx.logs import event_log
from kafka_tx.model import CommittedOffset, TopicPartition
from kafka_tx.offsets.retry import BackOff
from kafka_tx.protocols import Clock, OffsetStore, Store
from kafka_tx.transactions.ownership.refusals import unpicklable
from kafka_tx.transactions.ownership.store_base import StoreAround

_T = TypeVar("_T")


class RetryingStore(StoreAround):
    """A Store over another one.

    A write whose answer was lost is repeated with the same expected values. It either
    writes the same content again, or conflicts because the first try had landed; then
    the ledger reads the store. An epoch that was raised unnoticed is raised again. If
    the store stays unavailable, calls raise StateGivenUpError, not retryable.
    """

    def __init__(self, store: Store, retry_policy: RetryPolicy) -> None:
        super().__init__(store)
        self._retry_policy = retry_policy

    def _call(self, call: Callable[[Store], _T]) -> _T:
        return self._retry_policy(lambda: call(self.inside))


class RetryingOffsetStore:
    """An OffsetStore over another one; retries as ``RetryingStore``."""

    def __init__(self, store: OffsetStore, retry_policy: RetryPolicy) -> None:
        self._store = store
        self._retry_policy = retry_policy
        self.url = store.url
        self.retry_ms = retry_policy.limit_ms

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"

    def __reduce__(self) -> NoReturn:
        unpicklable(self)

    def acquire(self, task: int = 0, tasks: int = 1) -> int:
        """As ``OffsetStore.acquire``."""
        return self._retry_policy(lambda: self._store.acquire(task, tasks))

    def renew_ms(self) -> int | None:
        """As ``OffsetStore.renew_ms``."""
        return self._store.renew_ms()

    def fitting(self, committed: CommittedOffset) -> int:
        """As ``OffsetStore.fitting``."""
        return self._store.fitting(committed)

    def topics(self) -> frozenset[str]:
        """As ``OffsetStore.topics``."""
        return self._retry_policy(self._store.topics)

    def load(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """As ``OffsetStore.load``."""
        wanted = list(partitions)
        return self._retry_policy(lambda: self._store.load(wanted))

    def store(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """As ``OffsetStore.store``."""
        self._retry_policy(lambda: self._store.store(offsets))

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""
        self._store.close()


logger = event_log(__name__)

DEFAULT_MS = 120_000
"""Long enough for a database that restarts or fails over."""

_PAUSES = BackOff(initial_delay_ms=100, multiplier=2, max_delay_ms=5_000)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Makes a call again while the store is unavailable, until the time is up.

    For ledgers, offsets, maps and tables. Only for calls that may be made twice: nobody
    knows whether a failed call has arrived. ``limit_ms`` is the time from the first
    failure to the last try; 0 tries once.
    """

    clock: Clock
    limit_ms: int = DEFAULT_MS
    set_by: str = "The store's URL may say retry_for_ms=…"

    def __call__(self, call: Callable[[], _T]) -> _T:
        """Return the result of ``call``.

        Raises:
            StateGivenUpError: The store stayed unavailable. Not retryable.
            Exception: Whatever else ``call`` raises, at once.
        """
        first_ms: int | None = None
        failures = 0
        while True:
            try:
                answer = call()
            except StateUnavailableError as error:
                failures += 1
                pause_ms = _PAUSES.delay_ms(failures)
                now_ms = self.clock.monotonic_ms()
                first_ms = now_ms if first_ms is None else first_ms
                waited_ms = now_ms - first_ms
                if not self.limit_ms:
                    raise
                if waited_ms + pause_ms > self.limit_ms:
                    raise self._given_up(error, failures, waited_ms) from error
                logger.warning(
                    "try %d failed, trying again for at most %.0f s: %s",
                    failures,
                    (self.limit_ms - waited_ms) / 1000,
                    error.message,
                )
            else:
                if failures:
                    logger.warning("the store answers again, at try %d", failures + 1)
                return answer
            self.clock.sleep_ms(pause_ms)

    def _given_up(
        self, error: StateUnavailableError, failures: int, waited_ms: int
    ) -> StateGivenUpError:
        return StateGivenUpError(
            f"gave up after {failures} tries in {waited_ms / 1000:.0f} s:"
            f" {error.message}. Nothing is lost: start it again when the store can be"
            f" used. {self.set_by} to wait longer or shorter than {self.limit_ms} ms",
            **error.fields,
        )
