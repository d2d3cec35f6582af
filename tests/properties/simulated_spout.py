"""A spout in a world that fails: tasks, jobs, answers and commits under way.

Everything takes one small step at a time, and the driver may die between any two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kafka_tx.errors import BrokerUnavailableError, KafkaTxError, StateUnavailableError
from kafka_tx.model import (
    Broker,
    CommittedOffset,
    Latest,
    OffsetRange,
    Position,
    TopicPartition,
    Topics,
)
from kafka_tx.offsets.coordinators import RefreshingCoordinator
from kafka_tx.offsets.discovery import Discovery
from kafka_tx.offsets.loss import LossReason
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.start import StartDecision, StartRules, choose_start
from kafka_tx.offsets.unfinished import PartitionRules
from tests.properties.simulated_cluster import World

POISON = 13


@dataclass
class Job:
    """A range on its way to an executor."""

    manager: PartitionManager
    wanted: OffsetRange


@dataclass
class Answer:
    """An answer on its way back to the driver; may come late, twice, or never."""

    manager: PartitionManager
    kind: str  # ack, fail, release, passed, bury
    records: OffsetRange
    present: tuple[tuple[int, int], ...] = ()


@dataclass
class Offer:
    """A commit between being offered, written, and known to be written."""

    manager: PartitionManager
    offset: CommittedOffset
    is_written: bool = False


class Spout:
    """A driver with its tasks, and the executors that outlive it."""

    def __init__(self, rules: PartitionRules, position: Position, tasks: int) -> None:
        self.world = World()
        self.rules = rules
        self.position = position
        self.starts: dict[PartitionManager, StartDecision] = {}
        self.jobs: list[Job] = []
        self.answers: list[Answer] = []
        self.offers: list[Offer] = []
        self.is_healed = False
        self.start_tasks(tasks)

    # --- the executors --------------------------------------------------------------

    def run_job(self, job: Job, outcome: int) -> None:
        """Read a range and process what it holds; answers get on their way."""
        wanted, partition = job.wanted, job.wanted.topic_partition
        try:
            self.world.bounds(partition)
            records = [record.offset for record in self.world.log.records(wanted)]
        except KafkaTxError:
            self.world.seen["failed reads"] += 1
            self.answers.append(Answer(job.manager, "release", wanted))
            return
        position = wanted.end
        if outcome % 7 == 6 and not self.is_healed:  # the reader gives up half way
            position = wanted.start + len(wanted) // 2
            rest = replace(wanted, start=position)
            self.answers.append(Answer(job.manager, "release", rest))
        present = tuple((o, o + 1) for o in records if o < position)
        passed = replace(wanted, end=position)
        self.answers.append(Answer(job.manager, "passed", passed, present))
        for offset, _ in present:
            self.process(job.manager, partition, offset, outcome)

    def time_out(self, job: Job, outcome: int) -> None:
        """A task's time is over: some records are done, the rest no bolt was given."""
        half = job.wanted.start + outcome % (len(job.wanted) + 1)
        done = replace(job.wanted, end=half)
        if len(done):
            self.run_job(Job(job.manager, done), outcome)
        rest = replace(job.wanted, start=half)
        if len(rest):
            self.world.seen["never given"] += 1
            self.answers.append(Answer(job.manager, "release", rest))

    def cut(self, manager: PartitionManager, offsets: int) -> None:
        """The log loses its end, and the topology notices before anything is written.

        What is on its way is of an older generation: nobody hears of it.
        """
        partition, world = manager.topic_partition, self.world
        try:
            world.bounds(partition)
        except BrokerUnavailableError:
            return
        if world.true_bounds(partition).end > manager.emitted_to:
            return  # it has not seen the end that is lost
        if not world.cut(partition, offsets):
            return
        self.jobs = [j for j in self.jobs if j.manager.topic_partition != partition]
        self.answers = [
            a for a in self.answers if a.records.topic_partition != partition
        ]
        self.offers = [o for o in self.offers if o.manager.topic_partition != partition]
        former = manager.generation
        self.emit(manager, 1)
        assert manager.generation == former + (
            manager.counts.skipped[LossReason.CUT] > 0
        )
        world.store_fails = ""
        offset = manager.next_to_commit(max_runs=3)
        if offset is not None:
            world.write(partition, offset)
            manager.committed(offset)

    def process(
        self,
        manager: PartitionManager,
        partition: TopicPartition,
        offset: int,
        outcome: int,
    ) -> None:
        record = OffsetRange(partition, offset, offset + 1)
        is_poison = offset % POISON == 0 and self.rules.back_off.limit is not None
        is_unlucky = (offset * 7 + outcome) % 5 == 4 and not self.is_healed
        if is_poison or is_unlucky:
            self.answers.append(Answer(manager, "fail", record))
            return
        self.world.unfinished[partition].discard(offset)
        last = self.answers[-1]
        if last.kind == "ack" and last.records.end == offset and offset % 4:
            last.records = replace(last.records, end=offset + 1)
        else:
            self.answers.append(Answer(manager, "ack", record))

    # --- the driver -----------------------------------------------------------------

    def start_tasks(self, total: int) -> None:
        self.tasks = [Task(self, index, total) for index in range(total)]

    def crash(self, total: int) -> None:
        """The driver dies; executors do not know, and their answers come to nobody."""
        self.world.seen["crashes"] += 1
        self.offers.clear()
        self.start_tasks(total)

    def stop_and_start(self, total: int) -> None:
        """An orderly end: everything is closed (= committed), whatever is in flight."""
        self.offers.clear()
        for task in self.tasks:
            task.coordinator.close()
        self.start_tasks(total)

    def refresh(self) -> None:
        """All tasks of a driver look at one answer."""
        for task in self.tasks:
            try:
                task.coordinator.refresh()
            except BrokerUnavailableError:  # the very first look
                self.world.seen["failed first looks"] += 1

    def managers(self) -> Iterator[PartitionManager]:
        for task in self.tasks:
            for partition in self.world.partitions:
                manager = task.coordinator.manager(partition)
                if manager is not None:
                    yield manager

    def owner(self, partition: TopicPartition) -> PartitionManager | None:
        found = (m for m in self.managers() if m.topic_partition == partition)
        return next(found, None)

    def emit(self, manager: PartitionManager, max_offsets: int) -> None:
        now_ms = self.world.clock.monotonic_ms()
        try:
            bounds = self.world.bounds(manager.topic_partition)
        except BrokerUnavailableError:
            return
        plan = manager.plan(bounds, max_offsets=max_offsets, now_ms=now_ms)
        assert sum(map(len, plan.ranges)) <= max_offsets
        for wanted in plan.ranges:
            manager.emitted(wanted, now_ms)
            self.jobs.append(Job(manager, wanted))
        self.world.seen["retries"] += len(plan.retries)

    def deliver(self, answer: Answer) -> None:
        """Tell the manager; the owner of today when the one that asked is gone."""
        manager = answer.manager
        if manager not in self.managers():
            self.world.seen["late answers"] += 1
            today = self.owner(answer.records.topic_partition)
            if today is None:
                return
            manager = today
        match answer.kind:
            case "ack":
                manager.ack(answer.records)
            case "passed":
                manager.passed(answer.records, answer.present)
            case "release":
                manager.release(answer.records, self.world.clock.monotonic_ms())
            case "bury":
                partition = answer.records.topic_partition
                for offset in range(answer.records.start, answer.records.end):
                    self.world.unfinished[partition].discard(offset)
                manager.ack(answer.records)
            case _:
                self.fail(manager, answer.records)

    def fail_offset(self, manager: PartitionManager, offset: int) -> None:
        if offset >= 0:
            record = OffsetRange(manager.topic_partition, offset, offset + 1)
            self.fail(manager, record)

    def fail(self, manager: PartitionManager, records: OffsetRange) -> None:
        if self.rules.max_offset_behind is not None:
            failed = range(records.start, records.end)
            self.world.may_lose[records.topic_partition].update(failed)
        for gone in manager.fail(records, self.world.clock.monotonic_ms()):
            self.world.seen["given up"] += 1
            self.answers.append(Answer(manager, "bury", gone.records))

    def offer(self, manager: PartitionManager) -> None:
        offset = manager.next_to_commit(max_runs=3)
        is_offered = any(offer.manager is manager for offer in self.offers)
        if offset is not None and not is_offered:
            self.offers.append(Offer(manager, offset))

    def go_on_with(self, offer: Offer) -> None:
        """Write an offer, or tell its manager that it was written."""
        if offer.is_written:
            self.offers.remove(offer)
            offer.manager.committed(offer.offset)
            return
        try:
            self.world.write(offer.manager.topic_partition, offer.offset)
        except StateUnavailableError:
            self.world.seen["failed commits"] += 1
            self.offers.remove(offer)
            return
        offer.is_written = True


class Task:
    """One task of the spout: its coordinator, and how its managers begin and end."""

    def __init__(self, spout: Spout, index: int, total: int) -> None:
        self.spout = spout
        self.coordinator = RefreshingCoordinator(
            Discovery(spout.world.describe, Topics(())),
            index,
            total,
            refresh_interval_ms=1_000,
            clock=spout.world.clock,
            deleted=spout.world.denied,
            managers=self,
        )

    def prepare(
        self, partitions: Iterable[TopicPartition], share: Iterable[TopicPartition] = ()
    ) -> None:
        """Nothing is asked beforehand: each question may fail on its own."""

    def open(
        self,
        partition: TopicPartition,
        leader: Broker | None,
        *,
        is_new: bool,
        is_awaited: bool,
    ) -> PartitionManager:
        world = self.spout.world
        stored, bounds = world.load(partition), world.bounds(partition)
        rules = StartRules() if is_new else StartRules(position=self.spout.position)
        is_latest = isinstance(rules.position, Latest)
        start = choose_start(
            partition,
            rules,
            stored=stored,
            resolved=bounds.end if is_latest else bounds.log_start,
            bounds=bounds,
        )
        if stored is None:
            world.excused[partition] = start.committed.offset
        manager = PartitionManager(
            partition,
            self.spout.rules,
            start.committed,
            stored=stored,
            leader=leader,
        )
        self.spout.starts[manager] = start
        return manager

    def close(self, managers: Sequence[PartitionManager]) -> None:
        for manager in managers:
            self.close_one(manager)

    def close_one(self, manager: PartitionManager) -> None:
        offset = manager.next_to_commit(max_runs=3)
        spout = self.spout
        spout.offers = [offer for offer in spout.offers if offer.manager is not manager]
        if offset is not None:
            spout.world.write(manager.topic_partition, offset)
