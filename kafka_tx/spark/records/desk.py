"""One at-least-once Kafka spout on the driver: partitions, looks, chunks, commits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import CommittedOffset, LogBounds, TopicPartition, Unavailable
from kafka_tx.offsets.emitting import (
    Candidate,
    CommitTimer,
    Emission,
    RoundRobin,
    SettledBounds,
)
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.spark.records.offset_keeper import Offers
from kafka_tx.spark.records.parts import DeskParts
from kafka_tx.spark.topologies.serial_worker import SerialWorker

logger = logging.getLogger(__name__)

LOOK_MS = 100
"""Between two looks at the logs while there is nothing to read."""

BUSY_LOOK_MS = 1_000
"""The same while there is."""

REFRESH_MS = 1_000
"""Least time between two looks for partitions and leaders."""

HOLD_MS = 500
"""How long a partition rests whose fetch failed."""

_LEAST_MS = 10
"""Before the same is tried again."""

Post = Callable[[Callable[[], None]], None]
"""Has a call made on the topology's thread."""


class SpoutDesk:
    """Knows one spout's partitions and talks to brokers and store for it.

    All methods are called on the topology's thread; what takes long happens on threads
    of the desk, and comes back through ``post``.
    """

    def __init__(self, parts: DeskParts, post: Post) -> None:
        self.parts = parts
        self._post = post
        self._looker = SerialWorker(f"kafka-tx {parts.name} looks")
        self._refresher = SerialWorker(f"kafka-tx {parts.name} partitions")
        self._turns = RoundRobin()
        self._settled = SettledBounds()
        self._timer = CommitTimer(parts.commit_interval_ms, parts.clock.now_ms())
        self._bounds: dict[TopicPartition, LogBounds] = {}
        self._held_until: dict[TopicPartition, int] = {}
        self._crowded: set[PartitionManager] = set()
        self._looked_ms: int | None = None
        self._refreshed_ms: int | None = None
        self._is_looking = self._is_refreshing = False
        self._is_storing = False
        self._had_nothing = True
        self.looks = 0
        """Looks begun."""
        self.seen_looks = 0
        """The look whose answer is the newest."""

    # --- partitions ---

    @property
    def managers(self) -> list[PartitionManager]:
        """Of the partitions that are open, in assignment order."""
        coordinator = self.parts.coordinator
        found = map(coordinator.manager, coordinator.partitions)
        return [manager for manager in found if manager is not None]

    @property
    def bounds(self) -> Mapping[TopicPartition, LogBounds]:
        """What the logs hold, when last looked at."""
        return self._bounds

    def fetch_failed(self, partition: TopicPartition) -> None:
        """Its leader may have moved: look again, and let the partition rest."""
        now_ms = self.parts.clock.monotonic_ms()
        self._held_until[partition] = now_ms + HOLD_MS
        self._refresh()

    def refresh_if_due(self) -> None:
        """Look for partitions and leaders again, if it is time."""
        if self.parts.coordinator.is_due():
            self._refresh()

    def _refresh(self) -> None:
        """Look for partitions and leaders again, but not all the time."""
        now_ms = self.parts.clock.monotonic_ms()
        last_ms = self._refreshed_ms
        if self._is_refreshing or (
            last_ms is not None and now_ms - last_ms < REFRESH_MS
        ):
            return
        self._is_refreshing = True
        coordinator = self.parts.coordinator

        def look() -> None:
            answer: Callable[[], None] | BaseException
            try:
                answer = coordinator.look()
            except BaseException as error:  # noqa: BLE001 - raised on the loop's thread
                answer = error
            self._post(lambda: self._refreshed(answer))

        self._refresher.submit(look)

    def _refreshed(self, answer: Callable[[], None] | BaseException) -> None:
        self._is_refreshing = False
        self._refreshed_ms = self.parts.clock.monotonic_ms()
        if isinstance(answer, BaseException):
            raise answer
        answer()

    # --- looks ---

    def look_if_due(self) -> None:
        """Ask where the logs begin and end, if it is time and no answer is due."""
        now_ms = self.parts.clock.monotonic_ms()
        every_ms = LOOK_MS if self._had_nothing else BUSY_LOOK_MS
        last_ms = self._looked_ms
        if self._is_looking or (last_ms is not None and now_ms - last_ms < every_ms):
            return
        self._is_looking = True
        self._looked_ms = now_ms
        self.looks += 1
        number, cluster = self.looks, self.parts.cluster
        wanted = [manager.topic_partition for manager in self.managers]

        def look() -> None:
            bounds: Mapping[TopicPartition, LogBounds | Unavailable] = {}
            problem: KafkaTxError | None = None
            try:
                bounds = cluster.bounds(wanted) if wanted else {}
            except KafkaTxError as error:
                problem = error
            self._post(lambda: self._looked(number, bounds, problem))

        self._looker.submit(look)

    def _looked(
        self,
        number: int,
        bounds: Mapping[TopicPartition, LogBounds | Unavailable],
        problem: KafkaTxError | None,
    ) -> None:
        self._is_looking = False
        self._looked_ms = self.parts.clock.monotonic_ms()
        if problem is not None:
            if not problem.retryable:
                raise problem
            logger.warning("the logs cannot be looked at: %s", problem)
            self._refresh()
            return
        self.seen_looks = number
        self._bounds = {p: b for p, b in bounds.items() if isinstance(b, LogBounds)}
        self.parts.registry.record_log(self.parts.keeper.id, bounds)
        if len(self._bounds) < len(bounds):
            self._refresh()

    # --- chunks ---

    def chunk(self, room: int) -> list[Emission]:
        """Emit up to so many records; nothing when there is nothing to emit.

        Raises:
            OffsetOutOfRangeError: A log was cut and the policy is to fail.
        """
        now_ms = self.parts.clock.monotonic_ms()
        emissions = self._turns.chunk(
            self._candidates(now_ms), room=room, now_ms=now_ms
        )
        self._had_nothing = not emissions
        return emissions

    def _candidates(self, now_ms: int) -> list[Candidate]:
        found = []
        for manager in self.managers:
            partition = manager.topic_partition
            bounds = self._bounds.get(partition)
            if bounds is None or self._held_until.get(partition, 0) > now_ms:
                continue
            believed = self._settled.check(manager, bounds, now_ms)
            if believed is not None:
                is_fresh = manager not in self._crowded
                found.append(Candidate(manager, believed, is_fresh))
        return found

    # --- commits ---

    def commit_if_due(self, *, at_once: bool = False) -> None:
        """Store what is completed, if it is time."""
        clock, keeper = self.parts.clock, self.parts.keeper
        if self._is_storing or not (at_once or self._timer.is_due(clock.now_ms())):
            return
        self._timer.committed(clock.now_ms())
        offers = self._offers()
        is_renewal = keeper.must_renew
        if is_renewal:
            known = {m: m.stored for m in self.managers if m not in offers}
            offers |= {m: offset for m, offset in known.items() if offset is not None}
        if not offers:
            return
        self._is_storing = True
        began_ms = clock.monotonic_ms()

        def answer(error: BaseException | None) -> None:
            if error is None and is_renewal:
                keeper.renewed(began_ms)
            self._post(lambda: self._stored(offers, began_ms, error))

        keeper.store(offers, answer)

    def _offers(self) -> dict[PartitionManager, CommittedOffset]:
        offers = {}
        crowded = set()
        for manager in self.managers:
            offset = manager.next_to_commit()
            if offset is not None:
                offers[manager] = offset
                is_crowded = not self.parts.keeper.fits(offset)
            else:
                is_crowded = manager in self._crowded  # it is stored: nothing changed
            if is_crowded:
                crowded.add(manager)
        self._crowded = crowded
        return offers

    def _stored(
        self, offers: Offers, began_ms: int, error: BaseException | None
    ) -> None:
        self._is_storing = False
        if error is None:
            self.parts.keeper.stored(offers, self._bounds, began_ms)
        elif isinstance(error, KafkaTxError) and error.retryable:
            logger.warning("offsets were not stored, and will be again: %s", error)
        else:
            raise error

    # --- what is left to do ---

    @property
    def is_idle(self) -> bool:
        """Everything seen is completed, and the store has it."""
        managers = self.managers
        if self._is_storing or len(managers) < len(self.parts.coordinator.partitions):
            return False
        return all(
            manager.pending == 0
            and manager.topic_partition in self._bounds
            and manager.emitted_to >= self._bounds[manager.topic_partition].end
            and manager.next_to_commit() is None
            for manager in managers
        )

    @property
    def is_completed(self) -> bool:
        """Nothing is pending, but the store may not know."""
        return all(manager.pending == 0 for manager in self.managers)

    def wakes_at_ms(self) -> int:
        """When something is to be done next, as far as the desk knows (monotonic)."""
        clock = self.parts.clock
        now_ms = clock.monotonic_ms()
        times = [now_ms + self._timer.wait_ms(clock.now_ms())]
        if not self._is_looking:
            every_ms = LOOK_MS if self._had_nothing else BUSY_LOOK_MS
            times.append((self._looked_ms or 0) + every_ms)
        times += [t for m in self.managers if (t := m.next_due_ms) is not None]
        times += [t for t in self._held_until.values() if t > now_ms]
        return max(now_ms + _LEAST_MS, min(times))

    # --- the end ---

    def close(self, timeout_s: float) -> bool:
        """Commit what is completed and release everything; False if that hangs."""
        workers = (self._looker, self._refresher)
        are_free = [worker.close(timeout_s) for worker in workers]
        return self.parts.release(timeout_s) and all(are_free)
