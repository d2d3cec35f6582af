"""One at-least-once Kafka spout on the driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import LogBounds, TopicPartition
from kafka_tx.offsets.emitting import Candidate, Emission, RoundRobin
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.planning import quiet
from kafka_tx.planning.quiet import Bounds
from kafka_tx.planning.standing import Finding, Settling, stand
from kafka_tx.running.at_least_once.asker import Asker, Post
from kafka_tx.running.at_least_once.look_times import LookTimes
from kafka_tx.running.at_least_once.offset_commits import OffsetCommits
from kafka_tx.running.at_least_once.open_partitions import OpenPartitions
from kafka_tx.running.at_least_once.poller_parts import PollerParts

logger = logging.getLogger(__name__)

REFRESH_MS = 1_000
"""Least time between two looks for partitions and leaders."""

HOLD_MS = 500
"""How long a partition rests whose fetch failed."""

_LEAST_MS = 10
"""Before the same is tried again."""


class Looks(NamedTuple):
    """Numbers of looks at logs, and of those for partitions."""

    logs: int
    partitions: int

    def include(self, other: Looks) -> bool:
        """Whether these are as new."""
        return self.logs >= other.logs and self.partitions >= other.partitions


class SpoutPoller:
    """Knows one spout's partitions and talks to brokers and store for it.

    All methods are called on the topology's thread; what takes long happens on threads
    of the poller, and comes back through ``post``.
    """

    def __init__(self, parts: PollerParts, post: Post) -> None:
        self.parts = parts
        self._post = post
        self._looks = Asker(
            f"kafka-tx {parts.name} looks", self._look, self._looked, post
        )
        self._refreshes = Asker(
            f"kafka-tx {parts.name} partitions",
            lambda: parts.coordinator.look(),
            self._refreshed,
            post,
        )
        self._turns = RoundRobin()
        self._settling = Settling()
        self._partitions = OpenPartitions()
        self._commits = OffsetCommits(
            self._partitions,
            parts.keeper,
            parts.commit_interval_ms,
            parts.clock,
            post,
        )
        self._held_until: dict[TopicPartition, int] = {}
        self._times = LookTimes()
        self._refreshed_ms: int | None = None
        self._is_refresh_wanted = self._has_seen_all = False
        self._seen = Looks(0, 0)
        """The newest that were answered."""
        self._take_managers()

    # --- partitions ---

    @property
    def managers(self) -> Sequence[PartitionManager]:
        """Of the partitions that are open, in assignment order."""
        return self._partitions.managers

    @property
    def bounds(self) -> Mapping[TopicPartition, LogBounds]:
        """What the logs hold, when last looked at."""
        return self._partitions.bounds

    @property
    def awake(self) -> Collection[PartitionManager]:
        """Those that may have something to do; nothing is asked of the others."""
        return self._partitions.awake

    def take_touched(self) -> Collection[PartitionManager]:
        """Those that were awake since the last call."""
        return self._partitions.take_touched()

    def _take_managers(self) -> None:
        coordinator = self.parts.coordinator
        found = map(coordinator.manager, coordinator.partitions)
        managers = [manager for manager in found if manager is not None]
        is_anew = any(manager.is_recreated for manager in managers)
        is_awoken = self._partitions.replace(managers)
        self._times.is_wanted |= is_awoken or is_anew

    def fetch_failed(self, partition: TopicPartition) -> None:
        """Its leader may have moved: look again, and let the partition rest."""
        now_ms = self.parts.clock.monotonic_ms()
        self._held_until[partition] = now_ms + HOLD_MS
        self._refresh()

    def want_looks(self) -> None:
        """Look for partitions, and at logs, as soon as no such look is under way."""
        self._is_refresh_wanted = self._times.is_wanted = True

    def refresh_if_due(self) -> None:
        """Look for partitions and leaders again, if it is time."""
        if self._is_refresh_wanted and not self._refreshes.is_busy:
            self._is_refresh_wanted = False
            self._refreshes.ask()
        elif self.parts.coordinator.is_due():
            self._refresh()

    def _refresh(self) -> None:
        """Look for partitions and leaders again, but not all the time."""
        now_ms = self.parts.clock.monotonic_ms()
        last_ms = self._refreshed_ms
        if self._refreshes.is_busy or (
            last_ms is not None and now_ms - last_ms < REFRESH_MS
        ):
            return
        self._refreshes.ask()

    def _refreshed(
        self, number: int, answer: Callable[[], None] | BaseException
    ) -> None:
        self._refreshed_ms = self.parts.clock.monotonic_ms()
        self._seen = self._seen._replace(partitions=number)
        if isinstance(answer, BaseException):
            raise answer
        answer()
        self._take_managers()

    # --- looks ---

    def look_if_due(self) -> None:
        """Ask where the logs begin and end, if it is time and no answer is due."""
        now_ms = self.parts.clock.monotonic_ms()
        if self._looks.is_busy or now_ms < self._times.due_ms(len(self.managers)):
            return
        self._times.began(now_ms)
        self._wanted = list(self._partitions.names)
        self._asleep = self._partitions.asleep()
        self._looks.ask()

    def _look(self) -> Bounds:
        """On a thread of its own."""
        cluster, wanted = self.parts.cluster, self._wanted
        return quiet.look(cluster, wanted, self._asleep) if wanted else {}

    def _looked(self, number: int, bounds: Bounds | BaseException) -> None:
        clock = self.parts.clock
        if isinstance(bounds, BaseException):
            self._times.failed(clock.monotonic_ms())
            if not (isinstance(bounds, KafkaTxError) and bounds.retryable):
                raise bounds
            logger.warning("the logs cannot be looked at: %s", bounds)
            self._refresh()
            return
        self._seen = self._seen._replace(logs=number)
        is_news = self._partitions.seen(bounds)
        awake = {m.topic_partition for m in self.awake}
        told = {p: b for p, b in bounds.items() if p in awake}
        self.parts.registry.record_log(self.parts.keeper.id, told)
        self._times.ended(clock.monotonic_ms(), is_news=is_news)
        self._has_seen_all = len(self.bounds) == len(bounds)
        if not self._has_seen_all:
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
        self._times.had_nothing = not emissions
        return emissions

    def _candidates(self, now_ms: int) -> list[Candidate]:
        found = []
        for manager in self.awake:
            partition = manager.topic_partition
            bounds = self.bounds.get(partition)
            if bounds is None or self._held_until.get(partition, 0) > now_ms:
                continue
            standing = stand(manager.position, bounds)
            if standing.finding is Finding.UNANSWERED:
                continue
            is_told = standing.finding is Finding.ANEW and manager.is_recreated
            if self._settling.believes(partition, standing, now_ms) or is_told:
                self._settling.forget(partition)
                is_fresh = manager not in self._commits.crowded
                found.append(Candidate(manager, bounds, is_fresh))
            else:
                self._refresh()  # it may be another topic of the same name
        return found

    # --- commits ---

    def commit_if_due(self, *, at_once: bool = False) -> None:
        """Store what is completed, if it is time."""
        self._commits.commit_if_due(at_once=at_once)

    # --- what is left to do ---

    @property
    def is_idle(self) -> bool:
        """Everything seen is completed, the store has it, and nothing is out of sight.

        Neither a partition that cannot be opened, nor one that does not answer.
        """
        is_all_known = self._has_seen_all and self.parts.coordinator.is_complete
        if self._commits.is_storing or not is_all_known:
            return False
        return all(map(self._partitions.is_done, self.awake))

    def next_looks(self) -> Looks:
        """The first ones that begin after this call (any thread)."""
        return Looks(self._looks.asked + 1, self._refreshes.asked + 1)

    def ended_looks(self) -> Looks:
        """The newest that were answered."""
        return self._seen

    @property
    def is_completed(self) -> bool:
        """Nothing is pending, but the store may not know."""
        return all(manager.pending == 0 for manager in self.awake)

    def wakes_at_ms(self) -> int:
        """When something is to be done next, as far as the poller knows (monotonic)."""
        now_ms = self.parts.clock.monotonic_ms()
        times = [now_ms + self._commits.wait_ms()]
        if not self._looks.is_busy:
            times.append(self._times.due_ms(len(self.managers)))
        times += [t for m in self.awake if (t := m.next_due_ms) is not None]
        times += [t for t in self._held_until.values() if t > now_ms]
        return max(now_ms + _LEAST_MS, min(times))

    # --- the end ---

    def close(self, rest_s: Callable[[], float]) -> bool:
        """Commit what is completed and release everything; False if that hangs.

        ``rest_s`` tells how long it may still take, all in all.
        """
        workers = (self._looks, self._refreshes)
        are_free = [worker.close(rest_s()) for worker in workers]
        return self.parts.release(rest_s) and all(are_free)
