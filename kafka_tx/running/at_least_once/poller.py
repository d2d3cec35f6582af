"""One at-least-once Kafka spout on the driver: its requests to brokers and store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafka_tx.errors import DamagedRecordsError, KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    CommittedOffset,
    LogBounds,
    LogPosition,
    OffsetRange,
    TopicPartition,
)
from kafka_tx.offsets.coordinators import RefreshingCoordinator
from kafka_tx.offsets.damaged_reads import OF_PARTITIONS, DamagedReads
from kafka_tx.offsets.emitting import Candidate, CommitTimer, Emission, RoundRobin
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.position_checks import Finding, Settling, check_position
from kafka_tx.planned_topic import damaged_records
from kafka_tx.planning.log_bounds import Bounds, LogPoller, PollTimes
from kafka_tx.planning.retention import RetentionEdges
from kafka_tx.protocols import Clock, ClusterView, RangeReader
from kafka_tx.running.at_least_once.counts import SpoutMetrics
from kafka_tx.running.at_least_once.dead_letters import DeadLetters
from kafka_tx.running.at_least_once.offset_keeper import Offers, OffsetKeeper
from kafka_tx.running.serial_worker import Asker, Post
from kafka_tx.topology.rows.schemes import Scheme

logger = event_log(__name__)


@dataclass(frozen=True)
class PollerParts:
    """The parts of a poller.

    Attributes:
        name: The spout's component name.
        cluster: Used on the polling thread only.
        reader: Pickled into jobs.
        dead_letters: Writes given-up records; None: they are skipped.
        commit_interval_ms: ``state_update_interval_ms``.
        closing: Releases other resources of the spout.
        skip: The command that skips records, to be followed by them; empty: the store
            has none.
    """

    name: str
    coordinator: RefreshingCoordinator
    cluster: ClusterView
    keeper: OffsetKeeper
    reader: RangeReader
    scheme: Scheme
    dead_letters: DeadLetters | None
    commit_interval_ms: int
    registry: MetricsRegistry
    clock: Clock
    closing: tuple[Callable[[], None], ...] = ()
    skip: str = ""

    def release(self, rest_s: Callable[[], float]) -> bool:
        """Commit completed records and release everything; False if that hangs.

        ``rest_s`` returns the seconds that are left for all of this.
        """
        self.keeper.ends_within(rest_s)
        try:
            self.coordinator.close()
        except KafkaTxError as error:
            logger.warning("the last commit of %s failed: %s", self.name, error)
        return self._close(rest_s)

    def discard(self) -> None:
        """Release everything, within some seconds; commit nothing."""
        self._close(lambda: 1.0)

    def _close(self, rest_s: Callable[[], float]) -> bool:
        for close in (self.cluster.close, *self.closing):
            close()
        closed = [self.keeper.close(rest_s())]
        if self.dead_letters is not None:
            closed.append(self.dead_letters.close(rest_s()))
        return all(closed)


_STORE_POLL_MS = 5_000
"""Time without a write after which the store is polled for changes by others."""

REFRESH_MS = 1_000
"""Least time between two polls for partitions and leaders."""

HOLD_MS = 500
"""How long a partition pauses after a failed fetch."""

_LEAST_MS = 10
"""Least pause before a call is tried again."""


class Polls(NamedTuple):
    """The numbers of polls of log bounds, and of polls for partitions."""

    logs: int
    partitions: int

    def include(self, other: Polls) -> bool:
        """Whether these polls are at least as new as the others."""
        return self.logs >= other.logs and self.partitions >= other.partitions


class OpenPartitions:
    """Managers of open partitions, and log bounds; the topology's thread only.

    A partition sleeps when all records of its log are completed and stored, and wakes
    when a poll finds that its log has changed. A sleeping partition is skipped.

    Attributes:
        managers: In assignment order.
        bounds: The log bounds of the last poll.
    """

    def __init__(self) -> None:
        self.managers: Sequence[PartitionManager] = ()
        self.bounds: dict[TopicPartition, LogBounds] = {}
        self._by_partition: dict[TopicPartition, PartitionManager] = {}
        self._awake: dict[PartitionManager, None] = {}
        self._touched: set[PartitionManager] = set()

    @property
    def names(self) -> Collection[TopicPartition]:
        """All open partitions."""
        return self._by_partition.keys()

    def has(self, manager: PartitionManager) -> bool:
        """Whether the manager's partition is open."""
        return self._by_partition.get(manager.topic_partition) is manager

    @property
    def awake(self) -> Collection[PartitionManager]:
        """The managers that may have work."""
        return self._awake.keys()

    def take_touched(self) -> Collection[PartitionManager]:
        """Those that were awake since the last call."""
        touched, self._touched = self._touched, set(self._awake)
        return touched

    def touch(self, manager: PartitionManager) -> None:
        """The manager's counts may change, also while its partition sleeps."""
        self._touched.add(manager)

    def replace(self, managers: Sequence[PartitionManager]) -> bool:
        """Take new managers; returns whether a partition woke or is new.

        Partitions may have come, gone or been re-created.
        """
        former = set(self.managers)
        self.managers = managers
        self._by_partition = {m.topic_partition: m for m in managers}
        asleep = former - self._awake.keys()
        stay = {m: None for m in managers if m in self._awake}
        may_wake = (m for m in managers if m not in asleep or not self.is_done(m))
        wake = {m: None for m in may_wake if m not in stay}
        self._awake = stay | wake
        self._touched |= self._awake.keys()
        return bool(wake)

    def seen(self, bounds: Bounds) -> bool:
        """Take the bounds of a poll, which wake the partitions whose log changed.

        Returns whether a log changed.
        """
        former = self.bounds
        self.bounds = {p: b for p, b in bounds.items() if isinstance(b, LogBounds)}
        news = [p for p, b in self.bounds.items() if former.get(p) != b]
        woken = [m for p in news if (m := self._by_partition.get(p)) is not None]
        self._awake |= dict.fromkeys(woken)
        self._touched.update(woken)
        return bool(news)

    def asleep(self) -> Mapping[TopicPartition, LogBounds]:
        """The log bounds of sleeping partitions."""
        awake = {manager.topic_partition for manager in self._awake}
        return {p: b for p, b in self.bounds.items() if p not in awake}

    def put_to_sleep(self) -> None:
        """Let partitions sleep that have no work left."""
        self._awake = {m: None for m in self._awake if not self.is_done(m)}

    def is_done(self, manager: PartitionManager) -> bool:
        """Whether all known records of its log are completed and stored."""
        bounds = self.bounds.get(manager.topic_partition)
        return (
            bounds is not None
            and not manager.is_recreated
            and manager.pending == 0
            and manager.position.is_end_of(bounds)
            and manager.next_to_commit() is None
        )


class SpoutPoller:
    """Owns one spout's partitions, and calls brokers and the store for the spout.

    The topology's thread calls all methods. Slow calls run on the poller's own threads,
    and their results come back through ``post``.
    """

    def __init__(self, parts: PollerParts, post: Post) -> None:
        self.parts = parts
        self.metrics = SpoutMetrics(parts.keeper.id, parts.registry)
        self._post = post
        name = f"kafka-tx {parts.name}"
        self._log_polls = Asker(f"{name} logs", self._poll, self._polled, post)
        self._refreshes = Asker(
            f"{name} partitions",
            lambda: parts.coordinator.poll(),
            self._refreshed,
            post,
        )
        self._turns = RoundRobin()
        self._settling = Settling()
        self._logs = LogPoller(parts.cluster, parts.clock)
        self._edges = RetentionEdges(parts.cluster, parts.clock)
        self.partitions = OpenPartitions()
        """The spout's partitions, and their log bounds."""
        clock = parts.clock
        self._commits = CommitTimer(parts.commit_interval_ms, clock.now_ms())
        self._store_polled_ms = clock.monotonic_ms()
        self._crowded: Collection[PartitionManager] = ()
        """Managers without room in the store for more runs; they emit nothing new."""
        self._is_storing = False
        self._paused_until_ms: dict[TopicPartition, int] = {}
        self._damaged = DamagedReads[tuple[TopicPartition, int]](OF_PARTITIONS)
        self._times = PollTimes()
        self._refreshed_ms: int | None = None
        self._is_refresh_wanted = self._has_seen_all = False
        self._seen = Polls(0, 0)
        """The newest polls that were answered."""
        self._polled_ms = clock.monotonic_ms()
        """When the last log bounds came."""
        self._take_managers()

    # --- partitions ---

    def _take_managers(self) -> None:
        coordinator = self.parts.coordinator
        found = map(coordinator.manager, coordinator.partitions)
        managers = [manager for manager in found if manager is not None]
        is_anew = any(manager.is_recreated for manager in managers)
        is_awoken = self.partitions.replace(managers)
        self._times.is_wanted |= is_awoken or is_anew

    def fetch_failed(
        self, partition: TopicPartition, damage: DamagedRecordsError | None = None
    ) -> int:
        """The leader or the log may have moved: poll again; the partition pauses.

        Returns when it may be read again (monotonic ms).

        Raises:
            DamagedRecordsError: The same records were damaged at each of some tries.
        """
        now_ms = self.parts.clock.monotonic_ms()
        until_ms = now_ms + HOLD_MS
        if damage is not None:
            at = partition, damage.position
            may_retry = self._damaged.failed(at, now_ms)
            damage = self._with_command(damage)
            if not may_retry:
                raise damage
            until_ms = self._damaged.opens_at_ms(at)
            again = "%s is read again in %d s, the others go on: %s"
            logger.warning(again, partition, (until_ms - now_ms) // 1_000, damage)
        self._paused_until_ms[partition] = until_ms
        self._times.is_wanted = True
        self._refresh()
        return until_ms

    def was_read(self, records: OffsetRange) -> None:
        """These records are not damaged, or not any more."""
        self._damaged.landed_where(
            lambda at: (
                at[0] == records.topic_partition
                and records.start <= at[1] < records.end
            )
        )

    def _with_command(self, damage: DamagedRecordsError) -> DamagedRecordsError:
        records = damaged_records(damage)
        if not self.parts.skip or records is None:
            return damage
        way = f"stop the topology, run `{self.parts.skip} {records.option}`, start it"
        text = f"{damage.message} Without a change of the program: {way}."
        return DamagedRecordsError(text, **damage.fields)

    def unburied(self, emission: Emission, given_up: OffsetRange) -> list[OffsetRange]:
        """The given-up records that still need a dead letter, and could not be read.

        Raises: as ``PartitionManager.unburied``.
        """
        manager, partition = emission.manager, given_up.topic_partition
        if not self.partitions.has(manager):
            return []  # its topic was deleted
        bounds = self.partitions.bounds.get(partition)
        self.partitions.touch(manager)
        return manager.unburied(given_up, emission.generation, bounds)

    def want_polls(self) -> None:
        """Poll for partitions and log bounds, as soon as no such poll runs."""
        self._is_refresh_wanted = self._times.is_wanted = True

    def refresh_if_due(self) -> None:
        """Poll for partitions and leaders again, if the next poll is due."""
        if self._is_refresh_wanted and not self._refreshes.is_busy:
            self._is_refresh_wanted = False
            self._refreshes.ask()
        elif self.parts.coordinator.is_due():
            self._refresh()

    def _refresh(self) -> None:
        """Poll for partitions and leaders again, but not too often."""
        now_ms, last_ms = self.parts.clock.monotonic_ms(), self._refreshed_ms
        is_soon = last_ms is not None and now_ms - last_ms < REFRESH_MS
        if not self._refreshes.is_busy and not is_soon:
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

    # --- polls ---

    def poll_if_due(self) -> None:
        """Poll the log bounds, if the next poll is due and no poll runs."""
        now_ms = self.parts.clock.monotonic_ms()
        due_ms = self._times.due_ms(len(self.partitions.managers))
        if self._log_polls.is_busy or now_ms < due_ms:
            return
        self._times.began(now_ms)
        self._wanted = list(self.partitions.names)
        self._asleep = {} if self._logs.is_whole_due else self.partitions.asleep()
        self._positions = {m.topic_partition: m.position for m in self.partitions.awake}
        self._log_polls.ask()

    def _poll(self) -> Bounds:
        """Poll the log bounds, on a thread of its own."""
        if not self._wanted:
            return {}
        bounds = self._logs.poll(self._wanted, self._asleep)
        woken = {
            p: LogPosition(former.end, former.topic_id, former.leader_epoch)
            for p, former in self._asleep.items()
            if bounds.get(p) != former
        }
        found = self._logs.completed(bounds, self._positions | woken)
        registry, id_ = self.parts.registry, self.parts.keeper.id
        return self._edges.completed(found, lambda: registry.positions_of(id_))

    def _polled(self, number: int, bounds: Bounds | BaseException) -> None:
        clock = self.parts.clock
        if isinstance(bounds, BaseException):
            self._times.failed(clock.monotonic_ms())
            if not (isinstance(bounds, KafkaTxError) and bounds.retryable):
                raise bounds
            logger.warning("the bounds of the logs cannot be fetched: %s", bounds)
            self.parts.registry.record_silence(self.parts.keeper.id)
            self._refresh()
            return
        self._seen = self._seen._replace(logs=number)
        self._polled_ms = clock.monotonic_ms()
        is_news = self.partitions.seen(bounds)
        awake = {m.topic_partition for m in self.partitions.awake}
        changing = {
            p: b for p, b in bounds.items() if p in awake or p not in self._asleep
        }
        self.parts.registry.record_log(self.parts.keeper.id, changing)
        self._times.ended(clock.monotonic_ms(), is_news=is_news)
        self._has_seen_all = len(self.partitions.bounds) == len(bounds)
        if not self._has_seen_all:
            self._refresh()

    # --- chunks ---

    def chunk(self, room: int) -> list[Emission]:
        """Emit at most ``room`` records; empty if there is no record to emit.

        Raises:
            DataLossError: A log was cut and the policy is to fail.
        """
        now_ms = self.parts.clock.monotonic_ms()
        candidates = self._candidates(now_ms)
        emissions = self._turns.chunk(candidates, room=room, now_ms=now_ms)
        self._times.had_nothing = not emissions
        return emissions

    def _candidates(self, now_ms: int) -> list[Candidate]:
        found = []
        for manager in self.partitions.awake:
            partition = manager.topic_partition
            bounds = self.partitions.bounds.get(partition)
            if bounds is None or self._paused_until_ms.get(partition, 0) > now_ms:
                continue
            check = check_position(manager.reached, bounds)
            if check.log is None:
                continue
            is_known = check.finding is Finding.ANEW and manager.is_recreated
            # from answer to answer: an old one that nobody confirms proves nothing
            if self._settling.believes(partition, check, self._polled_ms) or is_known:
                self._settling.forget(partition)
                is_fresh = manager not in self._crowded
                found.append(Candidate(manager, check.log, is_fresh))
            else:
                self._refresh()  # it may be another topic of the same name
        return found

    # --- commits ---

    def commit_if_due(self, *, at_once: bool = False) -> None:
        """Store completed offsets if that is due; sometimes also unchanged ones."""
        clock, keeper = self.parts.clock, self.parts.keeper
        if self._is_storing or not (at_once or self._commits.is_due(clock.now_ms())):
            return
        self._commits.committed(clock.now_ms())
        offers = self._offers()
        self.partitions.put_to_sleep()
        is_renewal = keeper.must_renew
        if is_renewal:
            known = {m: m.stored for m in self.partitions.managers if m not in offers}
            offers |= {m: offset for m, offset in known.items() if offset is not None}
        began_ms = clock.monotonic_ms()
        if not offers and began_ms - self._store_polled_ms < _STORE_POLL_MS:
            return
        self._is_storing, self._store_polled_ms = True, began_ms

        def answer(error: BaseException | None) -> None:
            if error is None and is_renewal:
                keeper.renewed(began_ms)
            self._post(lambda: self._stored(offers, began_ms, error))

        keeper.store(offers, answer)

    def _offers(self) -> dict[PartitionManager, CommittedOffset]:
        offers = {}
        crowded = set()
        now_ms = self.parts.clock.now_ms()
        for manager in self.partitions.awake:
            offset = manager.next_to_commit()
            is_crowded = manager in self._crowded  # since the last write, if unchanged
            if offset is not None:
                offset = replace(offset, committed_ms=now_ms)
                offers[manager] = offset
                is_crowded = not self.parts.keeper.fits(offset)
            if is_crowded:
                crowded.add(manager)
        self._crowded = crowded
        return offers

    def _stored(
        self, offers: Offers, began_ms: int, error: BaseException | None
    ) -> None:
        self._is_storing = False
        if error is None and offers:
            stored = {manager.topic_partition for manager in offers}
            logs = self.partitions.bounds
            bounds = {p: b for p, b in logs.items() if p in stored}
            self.parts.keeper.stored(offers, bounds, began_ms)
        elif isinstance(error, KafkaTxError) and error.retryable:
            logger.warning("offsets were not stored, and will be again: %s", error)
        elif error is not None:
            raise error

    # --- what is left to do ---

    @property
    def is_idle(self) -> bool:
        """Whether all known records are completed and stored, in all partitions.

        False if a partition cannot be opened or does not answer.
        """
        is_all_known = self._has_seen_all and self.parts.coordinator.is_complete
        if self._is_storing or not is_all_known:
            return False
        return all(map(self.partitions.is_done, self.partitions.awake))

    def next_polls(self) -> Polls:
        """The first polls that begin after this call (any thread)."""
        return Polls(self._log_polls.asked + 1, self._refreshes.asked + 1)

    def ended_polls(self) -> Polls:
        """The newest polls that were answered."""
        return self._seen

    @property
    def is_completed(self) -> bool:
        """Whether no record is pending; offsets may not be stored yet."""
        return all(manager.pending == 0 for manager in self.partitions.awake)

    def wakes_at_ms(self) -> int:
        """When the next work of the poller is due (monotonic)."""
        now_ms = self.parts.clock.monotonic_ms()
        times = [now_ms + self._commits.wait_ms(self.parts.clock.now_ms())]
        if not self._log_polls.is_busy:
            times.append(self._times.due_ms(len(self.partitions.managers)))
        paused = self._paused_until_ms
        times += [
            max(due_ms, paused.get(manager.topic_partition, 0))
            for manager in self.partitions.awake
            if (due_ms := manager.next_due_ms) is not None
        ]
        times += [t for t in self._paused_until_ms.values() if t > now_ms]
        return max(now_ms + _LEAST_MS, min(times))

    # --- the end ---

    def end_letters(self, timeout_s: float, finish: bool) -> bool:
        """Write the requested dead letters; False if that takes longer.

        Their answers come back through ``post``: take them before ``close``, which
        stores the offsets of these records. Without ``finish``, letters that were not
        begun are left to the next start.
        """
        letters = self.parts.dead_letters
        return letters is None or letters.close(timeout_s, finish=finish)

    def close(self, rest_s: Callable[[], float]) -> bool:
        """As ``PollerParts.release``, and ends the threads."""
        workers = (self._log_polls, self._refreshes)
        are_free = [worker.close(rest_s()) for worker in workers]
        return self.parts.release(rest_s) and all(are_free)
