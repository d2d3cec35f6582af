"""An at-least-once spout's poller whose threads answer when the simulation says so."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kafka_tx.errors import BrokerUnavailableError, DamagedRecordsError, DeliveryError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import (
    LogBounds,
    OffsetRange,
    TopicPartition,
    Topics,
    TransactionAttempt,
    Unavailable,
)
from kafka_tx.offsets.coordinators import RefreshingCoordinator
from kafka_tx.offsets.discovery import Discovery
from kafka_tx.offsets.emitting import Emission
from kafka_tx.offsets.loss import LossReason
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.retry import BackOff
from kafka_tx.offsets.start import StartRules
from kafka_tx.offsets.unfinished import PartitionRules
from kafka_tx.planned_topic import damaged
from kafka_tx.planning.deleted_topics import DeletedTopics
from kafka_tx.running.at_least_once.dead_letters import (
    Answer,
    Buried,
    DeadLetter,
    LetterUnreadError,
)
from kafka_tx.running.at_least_once.in_flight_chunk import InFlightChunk
from kafka_tx.running.at_least_once.offset_keeper import OffsetKeeper
from kafka_tx.running.at_least_once.poller import PollerParts, Polls, SpoutPoller
from kafka_tx.running.at_least_once.record_outcomes import RecordOutcomes
from kafka_tx.running.at_least_once.spout import SpoutManagers
from kafka_tx.testing import ManualClock
from kafka_tx.topology.rows.schemes import RawScheme
from kafka_tx.transactions.ownership.memory import MemoryOffsetStore
from tests.properties.simulated_log import Brokers

ID = "spout"


class Inline:
    """A worker that has done its work when it was asked; the answer may come late."""

    def __init__(self, name: str) -> None:
        pass

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function())
        except Exception as error:  # noqa: BLE001 - told to who asked
            future.set_exception(error)
        return future

    def close(self, timeout_s: float) -> bool:
        return True


class Letters:
    """Takes dead letters, and waits until the simulation writes them."""

    def __init__(self, letters: deque[tuple[DeadLetter, Answer]]) -> None:
        self._letters = letters

    def write(self, dead_letter: DeadLetter, answer: Answer) -> None:
        self._letters.append((dead_letter, answer))


class World(Brokers):
    """Brokers that may all be away."""

    is_down = False

    def topics(self, wanted):
        self._must_be_up()
        return super().topics(wanted)

    def bounds(self, partitions):
        self._must_be_up()
        return super().bounds(partitions)

    def topic_ids(self, names):
        self._must_be_up()
        return super().topic_ids(names)

    def offsets(self, wanted):
        self._must_be_up()
        return super().offsets(wanted)

    def ends(self, partitions):
        self._must_be_up()
        return super().ends(partitions)

    def epoch_ends(self, wanted):
        self._must_be_up()
        return super().epoch_ends(wanted)

    def _must_be_up(self):
        if self.is_down:
            raise BrokerUnavailableError("away")


class PollerWorld:
    """One spout of two topics, its brokers and its store; answers wait in a queue."""

    def __init__(self) -> None:
        self.brokers = World()
        self.clock = ManualClock()
        self.store = MemoryOffsetStore()
        self.answers: deque[Callable[[], None]] = deque()
        self.in_flight: deque[tuple[Emission, list[int] | None]] = deque()
        self.letters: deque[tuple[DeadLetter, Answer]] = deque()
        self.managers: set[PartitionManager] = set()
        self.delivered: set[int] = set()
        self.damaged: set[TopicPartition] = set()
        self.seen: Counter[str] = Counter()
        self.start()

    def start(self) -> None:
        """A new driver; what the former one was told is lost."""
        self.answers = deque()
        self.in_flight.clear()
        self.letters.clear()
        self.managers.clear()
        registry = MetricsRegistry()
        keeper = OffsetKeeper(ID, self.store, registry, self.clock)
        keeper.acquire(0, 1)
        brokers: Any = self.brokers
        managers = SpoutManagers(
            PartitionRules(back_off=BackOff(limit=0)),
            StartRules(),
            brokers,
            keeper,
            registry,
        )
        coordinator = RefreshingCoordinator(
            Discovery(brokers.topics, Topics(("a", "b"))),
            0,
            1,
            refresh_interval_ms=30_000,
            clock=self.clock,
            deleted=DeletedTopics(brokers, self.clock).now,
            managers=managers,
        )
        reader: Any = None
        letters: Any = Letters(self.letters)
        parts = PollerParts(
            name=ID,
            coordinator=coordinator,
            cluster=brokers,
            keeper=keeper,
            reader=reader,
            scheme=RawScheme(),
            dead_letters=letters,
            commit_interval_ms=2_000,
            registry=registry,
            clock=self.clock,
        )
        self.poller = SpoutPoller(parts, self.answers.append)
        pollers = {ID: self.poller}
        self.chunks = RecordOutcomes(pollers, self.answers.append, self.clock)

    @property
    def has_begun(self) -> bool:
        """Whether it knows partitions; before that it does without no broker."""
        return bool(self.poller.partitions.managers)

    @property
    def has_stored_runs(self) -> bool:
        """Whether the store knows completed records beyond unfinished ones."""
        stored = self.store.load(self.brokers.partitions())
        return any(offset.completed for offset in stored.values())

    # --- what a topology does with it ---

    def ask(self) -> None:
        self.poller.refresh_if_due()
        self.poller.poll_if_due()
        self.poller.commit_if_due()
        self.chunks.write_again()

    def take(self) -> None:
        """The oldest answer arrives; its question may be much older."""
        if self.answers:
            self._take(self.answers.popleft())

    def _take(self, answer: Callable[[], None]) -> None:
        try:
            answer()
        except DamagedRecordsError:
            self._end_by_damage()

    def _end_by_damage(self) -> None:
        """The topology stops with this error; somebody starts it again."""
        # perhaps the last refusal was under way while all was mended
        assert self.seen["damaged reads"], "nothing was damaged"
        self.seen["ends by damage"] += 1
        self.brokers.is_down = False
        self.start()

    def take_newest(self) -> None:
        """The newest does: the others come from threads that are slower."""
        if self.answers:
            self._take(self.answers.pop())

    def chunk(self) -> None:
        """A job reads what is emitted, at once: what the logs hold now."""
        for emission in self.poller.chunk(7):
            self.managers.add(emission.manager)
            self.in_flight.append((emission, self._read(emission.range)))

    def end(self) -> None:
        """The oldest job ends."""
        if self.in_flight:
            self._ended(*self.in_flight.popleft())

    def end_newest(self) -> None:
        """The newest job does: its records are completed beyond unfinished ones."""
        if self.in_flight:
            self._ended(*self.in_flight.pop())

    def fail(self) -> None:
        """The oldest job ends, and all of its records have failed for good."""
        if not self.in_flight:
            return
        emission, records = self.in_flight.popleft()
        if records is None:
            self._ended(emission, records)
            return
        now_ms = self.clock.monotonic_ms()
        chunk = InFlightChunk(TransactionAttempt(1, 1), ID, 0, [emission], now_ms)
        self.chunks.fail(chunk, chunk.roots, "bad luck")

    def bury(self) -> None:
        """The oldest dead letter is written, or its records cannot be read now."""
        if not self.letters:
            return
        letter, answer = self.letters.popleft()
        wanted = letter.records
        records = self._read(wanted)
        if records is None:
            self.seen["letters without records"] += 1
            damage = self._damage_of(wanted)
            self.seen["damaged letters"] += damage is not None
            answer(wanted, LetterUnreadError("not now", damage=damage))
            return
        self.seen["letters"] += 1
        self.delivered.update(records)
        answer(wanted, Buried(((wanted.start, wanted.end),)))

    def refuse_letter(self) -> None:
        """The topic of the oldest dead letter takes none now: replicas are away."""
        if self.letters:
            self.seen["refused letters"] += 1
            letter, answer = self.letters.popleft()
            code = "NOT_ENOUGH_REPLICAS"
            answer(letter.records, DeliveryError(code, code=code, retryable=True))

    def _ended(self, emission: Emission, records: list[int] | None) -> None:
        manager, wanted = emission.manager, emission.range
        if records is None:
            self.seen["failed reads"] += 1
            now_ms = self.clock.monotonic_ms()
            manager.release(wanted, now_ms, emission.generation)
            try:
                damage = self._damage_of(wanted)
                self.poller.fetch_failed(wanted.topic_partition, damage)
            except DamagedRecordsError:
                self._end_by_damage()
            return
        self.delivered.update(records)
        if emission.generation != manager.generation:
            self.seen["late answers"] += 1
        manager.ack(wanted, emission.generation)

    def _damage_of(self, wanted: OffsetRange) -> DamagedRecordsError | None:
        if wanted.topic_partition not in self.damaged:
            return None
        self.seen["damaged reads"] += 1
        return damaged(wanted, "damaged", wanted.start, "simulated:9092", "")

    def _read(self, wanted: OffsetRange) -> list[int] | None:
        if wanted.topic_partition in self.damaged:
            return None
        topic = self.brokers.topics_[wanted.topic_partition.topic]
        if not topic.logs:
            return None
        log = self.brokers.log(wanted.topic_partition)
        is_up = topic.has_leaders and not topic.is_hidden and not self.brokers.is_down
        if wanted.topic_id not in {None, topic.topic_id}:
            self.seen["reads of another topic"] += 1
            return None
        if not is_up or not log.start <= wanted.start <= wanted.end <= log.end:
            return None
        epoch = wanted.leader_epoch
        if epoch is not None and log.end_of(epoch) < wanted.end:
            self.seen["reads of other records"] += 1
            return None
        return log.read(wanted.start, wanted.end)

    # --- what must come of it ---

    def heal(self) -> None:
        self.brokers.is_down = False
        self.damaged.clear()
        for topic in self.brokers.topics_.values():
            topic.is_hidden, topic.has_leaders = False, True

    def process_all_available(self) -> None:
        """Go on until two looks, of logs and for partitions, leave nothing to do.

        As ``process_all_available`` of a handle does.
        """
        poller, wanted = self.poller, self.want_polls()
        for _ in range(400):
            if self.poller is not poller:  # the topology was started again
                poller, wanted = self.poller, self.want_polls()
            self.ask()
            while self.answers:
                self.take()
            self.chunk()
            while self.in_flight:
                self.end()
            while self.letters:
                self.bury()
            self.poller.commit_if_due(at_once=True)
            while self.answers:
                self.take()
            is_idle = self.poller.is_idle and not self.chunks.writes(ID)
            if self.poller.ended_polls().include(wanted) and is_idle:
                return
            self.clock.advance(500)
        raise AssertionError("it does not come to an end")

    def want_polls(self) -> Polls:
        self.poller.want_polls()
        return self.poller.next_polls()

    def check(self) -> None:
        """All that can be read was delivered, the rest counted; the store knows."""
        for manager in self.managers:
            n = manager.counts
            begun = n.emitted + n.skipped[LossReason.TRIMMED]
            ended = n.completed + n.holes + sum(n.lost.values())
            assert begun == ended, f"not counted: {manager} {n}"
        readable = set(self.brokers.produced) - self.brokers.gone
        left = readable - self.delivered
        assert not left, f"left over: {sorted(left)}"
        partitions = self.brokers.partitions()
        stored = self.store.load(partitions)
        for partition in partitions:
            bounds = self.brokers.bounds([partition])[partition]
            assert not isinstance(bounds, Unavailable)
            assert isinstance(bounds, LogBounds)
            offset = stored[partition].offset if partition in stored else 0
            assert offset == bounds.end, (partition, bounds, stored.get(partition))
