"""When an at-least-once spout stores what is completed."""

from __future__ import annotations

import logging
from collections.abc import Collection

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import CommittedOffset
from kafka_tx.offsets.emitting import CommitTimer
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.protocols import Clock
from kafka_tx.running.at_least_once.asker import Post
from kafka_tx.running.at_least_once.offset_keeper import Offers, OffsetKeeper
from kafka_tx.running.at_least_once.open_partitions import OpenPartitions

logger = logging.getLogger(__name__)

_LOOK_MS = 5_000
"""How long nothing is stored before the store is asked whether it is as it was left."""


class OffsetCommits:
    """One write at a time, of all partitions that have news; the topology's thread.

    Args:
        partitions: Those that are open.
        keeper: Of their offsets.
        interval_ms: Between two writes.
        clock: The machine's.
        post: Brings the store's answer back.
    """

    def __init__(
        self,
        partitions: OpenPartitions,
        keeper: OffsetKeeper,
        interval_ms: int,
        clock: Clock,
        post: Post,
    ) -> None:
        self._partitions = partitions
        self._keeper = keeper
        self._clock = clock
        self._post = post
        self._timer = CommitTimer(interval_ms, clock.now_ms())
        self._looked_ms = clock.monotonic_ms()
        self.crowded: Collection[PartitionManager] = ()
        """Those for which the store has no more room; they emit nothing new."""
        self.is_storing = False
        """Whether the store's answer is awaited."""

    def wait_ms(self) -> int:
        """Until the next write is due."""
        return self._timer.wait_ms(self._clock.now_ms())

    def commit_if_due(self, *, at_once: bool = False) -> None:
        """Store what is completed, if it is time; now and then also if nothing is."""
        clock, keeper = self._clock, self._keeper
        if self.is_storing or not (at_once or self._timer.is_due(clock.now_ms())):
            return
        self._timer.committed(clock.now_ms())
        offers = self._offers()
        self._partitions.put_to_sleep()
        is_renewal = keeper.must_renew
        if is_renewal:
            known = {m: m.stored for m in self._partitions.managers if m not in offers}
            offers |= {m: offset for m, offset in known.items() if offset is not None}
        began_ms = clock.monotonic_ms()
        if not offers and began_ms - self._looked_ms < _LOOK_MS:
            return
        self.is_storing, self._looked_ms = True, began_ms

        def answer(error: BaseException | None) -> None:
            if error is None and is_renewal:
                keeper.renewed(began_ms)
            self._post(lambda: self._stored(offers, began_ms, error))

        keeper.store(offers, answer)

    def _offers(self) -> dict[PartitionManager, CommittedOffset]:
        offers = {}
        crowded = set()
        for manager in self._partitions.awake:
            offset = manager.next_to_commit()
            if offset is not None:
                offers[manager] = offset
                is_crowded = not self._keeper.fits(offset)
            else:
                is_crowded = manager in self.crowded  # it is stored: nothing changed
            if is_crowded:
                crowded.add(manager)
        self.crowded = crowded
        return offers

    def _stored(
        self, offers: Offers, began_ms: int, error: BaseException | None
    ) -> None:
        self.is_storing = False
        if error is None and offers:
            stored = {manager.topic_partition for manager in offers}
            logs = self._partitions.bounds
            bounds = {p: b for p, b in logs.items() if p in stored}
            self._keeper.stored(offers, bounds, began_ms)
        elif isinstance(error, KafkaTxError) and error.retryable:
            logger.warning("offsets were not stored, and will be again: %s", error)
        elif error is not None:
            raise error
