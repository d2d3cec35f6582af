"""Loads and stores the offsets of an at-least-once spout, under its owner's epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from kafka_tx.errors import StateUnavailableError
from kafka_tx.metrics.events import OffsetsCommitted, OffsetsStored
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import CommittedOffset, LogBounds, Subscription, TopicPartition
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.planning.other_topics import check_topics
from kafka_tx.protocols import Clock, OffsetStore
from kafka_tx.running.serial_worker import SerialWorker

R = TypeVar("R")

_WITHIN_S = 60.0
"""Seconds that a store may take to answer, besides the time of its own retries."""

Offers = Mapping[PartitionManager, CommittedOffset]


class OffsetKeeper:
    """The offset store of one spout (driver). The topology's thread calls all methods.

    ``id`` names the consumer in metrics. One thread only uses the store.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the word users know
        store: OffsetStore,
        registry: MetricsRegistry,
        clock: Clock,
    ) -> None:
        self.id = id
        self._store = store
        self._registry = registry
        self._clock = clock
        self._worker = SerialWorker(f"kafka-tx {id} offsets")
        self._rest_s: Callable[[], float] = lambda: math.inf
        self._renew_ms: int | None = None
        self._renewed_ms = clock.monotonic_ms()

    def check_topics(self, wanted: Subscription) -> None:
        """Refuse a topology that reads no topic of which the id has offsets.

        Raises:
            OtherTopicsError: The id belongs to another job, or gets other topics.
            StateError: as ``OffsetStore.topics``.
        """
        known = self._wait(self._store.topics)
        check_topics(self.id, self._store.url, wanted, known)

    def acquire(self, task: int, tasks: int) -> int:
        """Fence former owners of this task; see ``OffsetStore.acquire``.

        Raises:
            StateError: as ``OffsetStore.acquire``.
        """
        epoch = self._wait(lambda: self._store.acquire(task, tasks))
        self._renew_ms = self._wait(self._store.renew_ms)
        return epoch

    @property
    def forgets(self) -> bool:
        """Whether the store drops offsets that are not written again in time."""
        return self._renew_ms is not None

    @property
    def must_renew(self) -> bool:
        """Whether all offsets are due to be written again, also unchanged ones."""
        if self._renew_ms is None:
            return False
        return self._clock.monotonic_ms() - self._renewed_ms >= self._renew_ms

    def now_ms(self) -> int:
        """The clock's monotonic time."""
        return self._clock.monotonic_ms()

    def renewed(self, began_ms: int) -> None:
        """All offsets were written again; ``began_ms`` is the monotonic start."""
        self._renewed_ms = began_ms

    def load(
        self,
        partitions: Iterable[TopicPartition],
        beside: Collection[TopicPartition] = (),
    ) -> dict[TopicPartition, CommittedOffset]:
        """The stored offsets; they are shown until newer ones are stored.

        Those of ``beside`` are not shown: they may be another task's.

        Raises:
            StateError: as ``OffsetStore.load``.
        """
        wanted = sorted(partitions)
        asked = sorted({*wanted, *beside})
        found = self._wait(lambda: self._store.load(asked))
        self._registry.record_stored(
            OffsetsStored(
                id=self.id,
                committed={p: found[p].position for p in wanted if p in found},
                committed_at_ms=_newest_ms(found[p] for p in wanted if p in found),
            )
        )
        return found

    def store_now(self, offers: Offers) -> None:
        """Store the offsets, and wait until they are stored.

        Raises:
            StateError: as ``OffsetStore.store``.
        """
        began_ms, now_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        offers = {m: replace(o, committed_ms=now_ms) for m, o in offers.items()}
        self._wait(lambda: self._store.store(_by_partition(offers)))
        self.stored(offers, {}, began_ms)

    def store(
        self, offers: Offers, answer: Callable[[BaseException | None], None]
    ) -> None:
        """Store the offsets; the store's thread calls ``answer`` with error or None."""
        by_partition = _by_partition(offers)

        def make() -> None:
            try:
                self._store.store(by_partition)
            except BaseException as error:  # noqa: BLE001 - for the caller
                answer(error)
            else:
                answer(None)

        self._worker.submit(make)

    def stored(
        self,
        offers: Offers,
        bounds: Mapping[TopicPartition, LogBounds],
        began_ms: int,
    ) -> None:
        """Report to managers and metrics that these offsets are stored."""
        for manager, offset in offers.items():
            manager.committed(offset)
        self._registry.record_offsets(
            OffsetsCommitted(
                id=self.id,
                committed={m.topic_partition: o.position for m, o in offers.items()},
                committed_at_ms=_newest_ms(offers.values()) or self._clock.now_ms(),
                commit_ms=self._clock.monotonic_ms() - began_ms,
                bounds=bounds,
            )
        )

    def fits(self, offset: CommittedOffset) -> bool:
        """Whether the store has room for all runs beyond the offset."""
        return self._store.fitting(offset) >= len(offset.completed)

    def close(self, timeout_s: float) -> bool:
        """End after all requested writes; False if that takes longer."""
        self._worker.submit(self._store.close)
        return self._worker.close(timeout_s)

    def ends_within(self, rest_s: Callable[[], float]) -> None:
        """From now on, wait for the store at most ``rest_s()`` seconds."""
        self._rest_s = rest_s

    @property
    def longest_s(self) -> float:
        """Most seconds to wait for a call: longer than the store's own retries."""
        return _WITHIN_S + self._store.retry_ms / 1000

    def _wait(self, call: Callable[[], R]) -> R:
        within_s = min(self.longest_s, self._rest_s())
        try:
            return self._worker.submit(call).result(within_s)
        except TimeoutError:
            raise StateUnavailableError(
                f"the offset store of '{self.id}' did not answer within {within_s} s"
            ) from None


def _newest_ms(offsets: Iterable[CommittedOffset]) -> int | None:
    """The latest known commit time of these offsets; None: unknown."""
    known = (at.committed_ms for at in offsets if at.committed_ms is not None)
    return max(known, default=None)


def _by_partition(offers: Offers) -> dict[TopicPartition, CommittedOffset]:
    return {manager.topic_partition: offset for manager, offset in offers.items()}
