"""The steps of a simulated spout, what must hold after each, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from kafka_tx.model import TopicPartition
from kafka_tx.offsets.loss import LossReason
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.start import vanished
from kafka_tx.testing import MEMORY_BROKER
from tests.properties.simulated_cluster import OTHER_BROKER
from tests.properties.simulated_spout import Answer, Spout

Thing = TypeVar("Thing")
ROUNDS_TO_SETTLE = 300


def pick(things: Sequence[Thing], which: int) -> Thing:
    return things[which % len(things)]


def partition(spout: Spout, which: int) -> TopicPartition:
    return pick(spout.world.partitions, which)


# --- the world ----------------------------------------------------------------------


def append(spout: Spout, which: int) -> None:
    spout.world.append(partition(spout, which), records=which % 11, holes=which % 3)


def append_to_all(spout: Spout, which: int) -> None:
    for number in range(len(spout.world.partitions)):
        append(spout, which + number)


def compact(spout: Spout, which: int) -> None:
    spout.world.compact(partition(spout, which), which)


def trim(spout: Spout, which: int) -> None:
    spout.world.trim(partition(spout, which), which % 9)


def move_a_leader(spout: Spout, which: int) -> None:
    leader = pick([MEMORY_BROKER, OTHER_BROKER, None, MEMORY_BROKER], which)
    spout.world.log.set_leader(partition(spout, which // 4), leader)


def change_the_answer(spout: Spout, which: int) -> None:
    kinds = ["fresh", "fresh", "empty", "older", "partial", "none"]
    spout.world.answer_with(pick(kinds, which))


def grow(spout: Spout, which: int) -> None:
    spout.world.grow(1 + which % 4)


def fail_the_store(spout: Spout, which: int) -> None:
    spout.world.store_fails = pick(["refused", "landed"], which)


def time_passes(spout: Spout, which: int) -> None:
    spout.world.clock.advance(which)


# --- the driver ---------------------------------------------------------------------


def refresh(spout: Spout, which: int) -> None:
    spout.refresh()


def emit(spout: Spout, which: int) -> None:
    managers = list(spout.managers())
    if managers:
        spout.emit(pick(managers, which), 1 + which % 16)


def offer(spout: Spout, which: int) -> None:
    managers = list(spout.managers())
    if managers:
        spout.offer(pick(managers, which))


def go_on_with_a_commit(spout: Spout, which: int) -> None:
    if spout.offers:
        spout.go_on_with(pick(spout.offers, which))


def crash(spout: Spout, which: int) -> None:
    spout.crash(1 + which % 3)


def stop_and_start(spout: Spout, which: int) -> None:
    spout.stop_and_start(1 + which % 3)


# --- executors and answers ----------------------------------------------------------


def run_a_job(spout: Spout, which: int) -> None:
    if spout.jobs:
        spout.run_job(spout.jobs.pop(which % len(spout.jobs)), which)


def lose_a_job(spout: Spout, which: int) -> None:
    """An executor dies: its records time out, or its job is known to be broken."""
    if spout.jobs:
        job = spout.jobs.pop(which % len(spout.jobs))
        kind = pick(["fail", "release"], which)
        spout.answers.append(Answer(job.manager, kind, job.wanted))


def time_out_a_job(spout: Spout, which: int) -> None:
    if spout.jobs:
        spout.time_out(spout.jobs.pop(which % len(spout.jobs)), which)


def cut_a_log(spout: Spout, which: int) -> None:
    managers = list(spout.managers())
    if managers:
        spout.cut(pick(managers, which), 1 + which % 5)


def let_offsets_expire(spout: Spout, which: int) -> None:
    """They are written again while the topology runs, before it can end.

    Offsets that were written just now do not expire, so their managers know of them.
    """
    for offer in [offer for offer in spout.offers if offer.is_written]:
        spout.go_on_with(offer)
    gone = spout.world.forget(which)
    spout.world.seen["expired"] += len(gone)
    for manager in spout.managers():
        if manager.topic_partition in gone and manager.stored is not None:
            spout.world.store_fails = ""
            spout.world.write(manager.topic_partition, manager.stored)


def start_after_offsets_expired(spout: Spout, which: int) -> None:
    """A start finds out; somebody decides for what is stored, as they were told."""
    former = dict(spout.world.store)
    gone = spout.world.forget(which)
    found = vanished(spout.world.partitions, spout.world.store)
    highest = {kept.topic: kept.partition for kept in spout.world.store}
    wanted = {p for p in gone if p.partition < highest.get(p.topic, 0)}
    assert wanted <= set(found) <= set(spout.world.partitions) - set(spout.world.store)
    spout.world.store.update(former)
    spout.crash(1 + which % 3)


def deliver(spout: Spout, which: int) -> None:
    if spout.answers:
        spout.deliver(spout.answers.pop(which % len(spout.answers)))


def deliver_many(spout: Spout, which: int) -> None:
    for _ in range(min(len(spout.answers), which)):
        deliver(spout, which)


def deliver_twice(spout: Spout, which: int) -> None:
    if spout.answers:
        spout.deliver(pick(spout.answers, which))


def lose_an_answer(spout: Spout, which: int) -> None:
    """It never comes: the records time out."""
    if spout.answers:
        answer = spout.answers.pop(which % len(spout.answers))
        spout.answers.append(replace(answer, kind="fail"))


def fail_something(spout: Spout, which: int) -> None:
    """A failure of records that may be done, waiting, or never emitted."""
    managers = list(spout.managers())
    if managers:
        manager = pick(managers, which)
        spout.fail_offset(manager, manager.last_completed_offset + which % 20 - 3)


STEPS: dict[str, tuple[int, Callable[[Spout, int], None]]] = {
    "append": (8, append),
    "append to all": (3, append_to_all),
    "compact": (2, compact),
    "trim": (2, trim),
    "move a leader": (4, move_a_leader),
    "change the answer": (4, change_the_answer),
    "grow": (1, grow),
    "fail the store": (3, fail_the_store),
    "time passes": (6, time_passes),
    "refresh": (8, refresh),
    "emit": (20, emit),
    "offer": (10, offer),
    "go on with a commit": (16, go_on_with_a_commit),
    "crash": (1, crash),
    "stop and start": (1, stop_and_start),
    "run a job": (18, run_a_job),
    "lose a job": (2, lose_a_job),
    "time out a job": (3, time_out_a_job),
    "cut a log": (1, cut_a_log),
    "let offsets expire": (1, let_offsets_expire),
    "start after offsets expired": (1, start_after_offsets_expired),
    "deliver": (10, deliver),
    "deliver many": (6, deliver_many),
    "deliver twice": (3, deliver_twice),
    "lose an answer": (2, lose_an_answer),
    "fail something": (2, fail_something),
}


def step(spout: Spout, what: str, which: int) -> None:
    STEPS[what][1](spout, which)


# --- what must hold -----------------------------------------------------------------


def check(spout: Spout) -> None:
    owned = [manager.topic_partition for manager in spout.managers()]
    assert len(owned) == len(set(owned)), f"owned twice: {owned}"
    for manager in spout.managers():
        check_manager(spout, manager)


def check_manager(spout: Spout, manager: PartitionManager) -> None:
    """Every emitted offset is accounted for exactly once."""
    start, counts = spout.starts[manager], manager.counts
    if manager.generation > 1:
        return  # what was emitted of the end that was lost is counted no more
    assert start.committed.offset <= manager.last_completed_offset
    assert manager.last_completed_offset <= manager.emitted_to
    assert manager.waiting <= manager.pending <= manager.uncommitted
    limit = spout.rules.max_uncommitted_offsets
    assert limit is None or manager.pending <= limit
    lost = sum(counts.lost.values())
    taken_over = sum(
        max(0, min(end, manager.emitted_to) - begin)
        for begin, end in start.committed.completed
    )
    abandoned = sum(map(len, manager._unfinished._abandoned.values()))
    known = counts.completed + counts.holes + manager.pending + abandoned
    assert manager.emitted_to - start.committed.offset == known + lost + taken_over


def settle(spout: Spout) -> None:
    """Nothing fails any more: everything ends, and nothing readable is lost."""
    heal(spout)
    for number in range(ROUNDS_TO_SETTLE):
        # what was refused must be offered again, also when nothing else happens
        spout.world.store_fails = ["refused", "landed", ""][min(number, 2)]
        settle_once(spout)
        if is_settled(spout) and not spout.world.store_fails:
            break
    world = spout.world
    for manager in spout.managers():
        at_start = spout.starts[manager].lost
        world.seen["lost"] += sum([*manager.counts.lost.values(), *at_start.values()])
        world.seen["too far behind"] += manager.counts.lost[LossReason.BEHIND]
    for each in world.partitions:
        left = {o for o in world.unfinished[each] if o >= world.excused.get(each, 0)}
        left -= world.may_lose[each]
        assert not left, f"{each}: never processed {sorted(left)}"
        assert world.store[each].offset == world.true_bounds(each).end, each
    assert all(manager.pending == 0 for manager in spout.managers())


def heal(spout: Spout) -> None:
    spout.is_healed = True
    for each in spout.world.partitions:
        spout.world.log.set_leader(each, MEMORY_BROKER)
    spout.world.answer_with("fresh")


def settle_once(spout: Spout) -> None:
    spout.world.clock.advance(1_000)
    spout.refresh()
    for manager in spout.managers():
        spout.emit(manager, 1_000)
    while spout.jobs:
        spout.run_job(spout.jobs.pop(), 0)
    while spout.answers:
        spout.deliver(spout.answers.pop(0))
    for manager in spout.managers():
        spout.offer(manager)
    while spout.offers:
        spout.go_on_with(spout.offers[0])


def is_settled(spout: Spout) -> bool:
    world = spout.world
    return all(
        each in world.store and world.store[each].offset == world.true_bounds(each).end
        for each in world.partitions
    )
