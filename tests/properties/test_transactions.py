"""Coordinator, spout and store, in whatever order the world allows."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from integration.sizes import size
from kafka_tx.config import Mode
from kafka_tx.errors import KafkaTxError, ReplayDiffersError
from kafka_tx.model import TransactionAttempt
from kafka_tx.running.transactional.spout_thread import SpoutThread
from kafka_tx.sinks import store_beside
from kafka_tx.transactions.coordinator.actions import Write
from kafka_tx.transactions.coordinator.coordinator import TransactionCoordinator
from kafka_tx.transactions.coordinator.idleness import Idleness
from kafka_tx.transactions.coordinator.in_flight_batches import BatchPhase
from tests.properties.rounds import SIMULATED_STEPS, is_enough, play_round
from tests.properties.simulated_owner import TRIES, Mood, OpaqueSpout, Outcome, Owner
from tests.properties.simulated_topology import TIMEOUT_MS, World, run

SECONDS_AT_MOST = 300 + SIMULATED_STEPS // 1_000

seen: Counter[str] = Counter()

whichs = st.integers(0, 7)


class SimulatedTopology(RuleBasedStateMachine):
    """Every rule is a step or a run of steps; the world asserts after each of them."""

    world: World

    @initialize(
        mode=st.sampled_from(["transactional", "opaque"]), max_pending=st.integers(1, 4)
    )
    def start(self, mode, max_pending):
        self.world = World(mode, max_pending)

    def owner(self, which: int) -> Owner:
        return self.world.owners[which % len(self.world.owners)]

    @rule(data=st.binary(min_size=20, max_size=200))
    def run_a_while(self, data):
        run(self.world, data)

    @rule(data=st.binary(min_size=20, max_size=200), is_quiet=st.booleans())
    def run_on(self, data, is_quiet):
        run(self.world, data, is_quiet=is_quiet)

    @rule(which=whichs, mood=st.builds(Mood, *[st.booleans()] * len(Mood._fields)))
    def look(self, which, mood):
        self.owner(which).look(mood)

    @rule(which=whichs, work=whichs, outcome=st.sampled_from(Outcome))
    def go_on_with_one_work(self, which, work, outcome):
        self.owner(which).go_on(work, outcome)

    @rule(partition=whichs, records=st.integers(1, 20))
    def produce(self, partition, records):
        self.world.produce(partition, records)

    @rule()
    def add_a_partition(self):
        self.world.grow()

    @rule(partition=whichs)
    def lose_or_find_a_partition(self, partition):
        self.world.toggle(partition)

    @rule(partition=whichs)
    def damage_or_mend_a_partition(self, partition):
        self.world.damage(partition)

    @rule(partition=whichs)
    def read_damage_to_the_end(self, partition):
        self.world.damage(partition)
        self.world.produce(partition, 1)
        owner = self.world.owners[-1]
        for _ in range(100):
            owner.advance()

    @rule(which=whichs, batch=whichs)
    def lose_an_executor(self, which, batch):
        self.owner(which).lose(batch)

    @rule(which=whichs, batch=whichs)
    def hang(self, which, batch):
        self.owner(which).hang(batch)

    @rule(which=whichs)
    def outlast_the_timeout(self, which):
        outlast_the_timeout(self.world, self.owner(which))

    @rule(which=whichs, answer=whichs)
    def repeat_an_answer(self, which, answer):
        self.owner(which).repeat(answer)

    @rule(ms=st.integers(1, 3_000))
    def time_passes(self, ms):
        self.world.now_ms += ms

    @rule(data=st.binary(min_size=100, max_size=300))
    def take_over_and_run_on(self, data):
        self.world.take_over()
        run(self.world, data)

    @rule(
        data=st.binary(min_size=20, max_size=100),
        steps=st.integers(1, 11),
        is_beside=st.booleans(),
        is_frozen=st.booleans(),
    )
    def run_on_and_go_back(self, data, steps, is_beside, is_frozen):
        run(self.world, data)
        self.world.go_back(steps, is_beside=is_beside, is_frozen=is_frozen)

    @rule(data=st.binary(min_size=100, max_size=200))
    def freeze_in_a_commit_phase(self, data):
        run(self.world, data)
        self.world.overtake_in_commit()

    @rule(what=st.sampled_from(["crash", "pause", "activate", "finish", "stop"]))
    def operate(self, what):
        owner = self.world.owners[-1]
        match what:
            case "crash":
                self.world.crash()
            case "pause":
                owner.coordinator.pause()
            case "activate":
                owner.coordinator.activate()
            case _:
                owner.stop(finish=what == "finish")

    def teardown(self):
        if hasattr(self, "world"):
            self.world.settle()
            seen.update(self.world.seen)


@pytest.mark.timeout(SECONDS_AT_MOST + 600)
def test_every_record_counts_once_whatever_fails():
    """A failure prints the steps and a blob that replays them (reproduce_failure)."""
    began, rounds = time.monotonic(), itertools.count()
    seen.clear()

    while not is_enough(seen, SIMULATED_STEPS, WHAT_MUST_HAPPEN, blind_after=100):
        play_round(next(rounds), SimulatedTopology, steps=60, examples=size(5, 40))
        if time.monotonic() - began > SECONDS_AT_MOST:
            break

    print(f"\n{time.monotonic() - began:.0f} s", dict(seen.most_common()))
    assert seen["steps"] >= SIMULATED_STEPS
    never = {what for what in WHAT_MUST_HAPPEN if not seen[what]}
    assert not never, f"the simulation is blind: {never} in {seen}"


WHAT_MUST_HAPPEN = (
    "commits",
    "identical replays",
    "offers missed",
    "damaged reads",
    "replays after a pause",
    "topologies that stopped at damage",
    "cancelled attempts",
    "void plans",
    "crashes between commit and record",
    "writes that met StateUnavailableError",
    "writes that met FencedError",
    "commits refused to an old owner",
    "former owners told before a commit phase",
    "crashes of given-up commit phases",
    "commit phases that outlive their job",
    "tasks refused after a cancel",
    "repeated answers",
    "hanging jobs",
    "spouts that did not know",
    "late answers of a spout",
    "waits that ended",
    "lost executors",
    "takeovers",
    "stores that went back, sink in it",
    "stores that went back, sink elsewhere",
    "commits refused as the store beside went back",
    "stops",
)


# --- a simulation that finds nothing proves nothing ---


class LeavesLaterBatches(TransactionCoordinator[Any]):
    def _fail_from(self, txid, *how):
        later = {t: f for t, f in self._in_flight._in_flight.items() if t > txid}
        actions = super()._fail_from(txid, *how)
        self._in_flight._in_flight |= later
        return actions


class RemovesBeforeItCompares(TransactionCoordinator[Any]):
    def failed(self, attempt, reason, stops=None):
        self._in_flight._in_flight.pop(attempt.txid, None)
        return super().failed(attempt, reason, stops)


class ReadsDamageForEver(TransactionCoordinator[Any]):
    """As it was: without a pause and without an end."""

    def failed(self, attempt, reason, stops=None):
        return super().failed(attempt, reason)


class ReplaysAtOnce(TransactionCoordinator[Any]):
    """As it was: however often a batch has failed."""

    def commit_failed(self, attempt, reason):
        actions = super().commit_failed(attempt, reason)
        self._pauses.landed(attempt.txid)
        return actions


class CountsFromTheLastTick(TransactionCoordinator[Any]):
    """As it was: a pause was over before it had begun."""

    ticked_ms = 0

    def tick(self, now_ms, *, is_ready):
        self.ticked_ms = now_ms
        return super().tick(now_ms, is_ready=is_ready)

    def failed(self, attempt, reason, stops=None):
        self.now_ms = self.ticked_ms
        return super().failed(attempt, reason, stops)


class CommitsOutOfOrder(TransactionCoordinator[Any]):
    _ready = None

    @property
    def _current(self):
        return self._ready or super()._current

    def _commit_lowest(self):
        phases = self.phases
        ready = [a.txid for a, p in phases.items() if p is BatchPhase.PROCESSED]
        self._ready = min(ready, default=None)
        actions = super()._commit_lowest()
        self._ready = None
        return actions


class CountsAttemptsAnew(TransactionCoordinator[Any]):
    def _new_attempt(self, txid):
        return TransactionAttempt(txid, super()._new_attempt(txid).attempt_id % 10**12)


class BelievesALateCommit(TransactionCoordinator[Any]):
    def _time_out(self):
        actions = super()._time_out()
        self._in_flight._ending.clear()
        return actions


class GivesUpAfterAFailedWrite(TransactionCoordinator[Any]):
    def store_failed(self, write_id, error):
        actions = super().store_failed(write_id, error)
        self._writes.again_at_ms = None
        return actions


class ForgetsThatACrashEndsACommit(TransactionCoordinator[Any]):
    def crashed(self, attempt, error):
        is_ending = attempt in self._in_flight._ending
        actions = super().crashed(attempt, error)
        if is_ending:
            self._in_flight._ending[attempt] = 10**12
        return actions


class CommitsUnasked(TransactionCoordinator[Any]):
    def _ask_who_owns(self):
        return self._commit_lowest()


class ExpectsOnlyTheEpoch(TransactionCoordinator[Any]):
    """As it was: whatever the store holds is written over."""

    def tick(self, now_ms, *, is_ready):
        return list(map(unexpecting, super().tick(now_ms, is_ready=is_ready)))

    def committed(self, attempt, held=None):
        return list(map(unexpecting, super().committed(attempt, held)))

    def initialized(self, *args, **more):
        return list(map(unexpecting, super().initialized(*args, **more)))

    def stored(self, write_id):
        return list(map(unexpecting, super().stored(write_id)))


def unexpecting(action):
    return replace(action, expect={}) if isinstance(action, Write) else action


class BelievesTheEndOfAJob(Owner):
    def job_ended(self, attempt):
        if self.commits:
            self._answer(lambda: self.coordinator.commit_failed(attempt, "cancelled"))


class TakesUnknownForNoAnswer(SpoutThread):
    """As it was: who once does not know is never asked again."""

    is_stuck = False

    def _poll(self, question):
        is_asked = question > 0 and not self._spout.is_ready()
        self.is_stuck |= is_asked and self._spout.is_drained() is None
        return super()._poll(0 if self.is_stuck else question)


class CountsTwoAnswers(Idleness):
    """As it was: the second one that comes counts, whenever it was asked for."""

    answers = 0

    def begin(self):
        wanted = self.answers + 2
        return lambda: self.answers >= wanted

    def found(self, question):
        self.answers += 1


class CountsAnyAnswer(Idleness):
    def begin(self):
        proof = self._proof
        return lambda: self._proof > proof


class KeepsVoidPlans(OpaqueSpout):
    """As one over rows in memory did, whose partition was lost in between."""

    def initialize_transaction(self, txid, previous):
        former = self._planned_to
        metadata = super().initialize_transaction(txid, previous)
        for partition, end in former.items():
            self._planned_to[partition] = max(end, self._planned_to.get(partition, 0))
        return metadata


@pytest.mark.parametrize(
    ("part", "broken", "how"),
    [
        ("thread", TakesUnknownForNoAnswer, "waits for ever"),
        ("idle", CountsTwoAnswers, "ended too early"),
        ("idle", CountsAnyAnswer, "ended too early"),
        ("opaque", KeepsVoidPlans, "left over|ended too early"),
    ],
)
def test_the_simulation_notices_waits_that_end_late_or_early(part, broken, how):
    owner = type("Broken", (Owner,), {part: broken})
    with pytest.raises(AssertionError, match=how):
        walk_quietly_until_found(owner)


@pytest.mark.parametrize(
    "broken",
    [
        ForgetsThatACrashEndsACommit,
        LeavesLaterBatches,
        RemovesBeforeItCompares,
        ReplaysAtOnce,
        CountsFromTheLastTick,
        CommitsOutOfOrder,
        CountsAttemptsAnew,
        BelievesALateCommit,
        GivesUpAfterAFailedWrite,
        CommitsUnasked,
    ],
)
def test_the_simulation_notices_a_coordinator_that(broken):
    with pytest.raises((AssertionError, KafkaTxError)):
        walk_until_found(broken)


def test_the_simulation_notices_a_coordinator_that_reads_damage_for_ever():
    world = World("transactional", 2, ReadsDamageForEver)
    world.produce(0, 3)
    world.damage(0)
    for _ in range(300):
        world.owners[-1].advance()

    assert world.seen["damaged reads"] > TRIES
    assert not world.owners[-1].coordinator.is_stopped


def test_the_simulation_notices_a_coordinator_that_expects_only_the_epoch():
    with pytest.raises((AssertionError, KafkaTxError, KeyError)):
        walk_until_found(ExpectsOnlyTheEpoch, goes_back=True)


def phases_of(owner: Owner) -> list[BatchPhase]:
    return [*owner.coordinator.phases.values()]


def go_back_in_a_commit_phase() -> World:
    """A frozen owner then commits what the next one has planned otherwise."""
    world = World("transactional", 1)
    while not world.owners[-1].commits:
        world.owners[-1].advance()
    world.go_back(3, is_beside=True, is_frozen=True)
    world.settle()
    return world


def test_a_plan_that_went_back_is_not_written_under_its_txid():
    seen = go_back_in_a_commit_phase().seen
    assert seen["commits refused as the store beside went back"] == 1


def test_what_is_written_beside_an_emptied_store_is_in_no_numbering_that_follows():
    world = World("transactional", 1)
    world.produce(0, 3)
    (owner,) = world.owners
    while world.store.currtx() == 1 or BatchPhase.PROCESSED not in phases_of(owner):
        owner.advance()
    owner.advance()  # the store has taken the question who owns it
    world.go_back(11, is_beside=True)
    world.settle()
    assert world.seen["commits beside an empty store"] == 1


@pytest.mark.parametrize(
    "knows", [lambda *_: True, lambda text, *_: text is not None], ids=["any", "one"]
)
def test_the_simulation_notices_a_map_that_takes_a_batch_with_plan(monkeypatch, knows):
    monkeypatch.setattr(store_beside, "_is_plan", knows)
    with pytest.raises(ReplayDiffersError):
        go_back_in_a_commit_phase()


def test_the_simulation_notices_a_runner_that_believes_the_end_of_a_job():
    with pytest.raises(AssertionError):
        walk_until_found(TransactionCoordinator, BelievesTheEndOfAJob)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_walks_find_nothing_wrong_with_ours(seed):
    assert walk(seed, TransactionCoordinator, goes_back=seed % 2 > 0).seen["commits"]


@pytest.mark.parametrize("seed", range(12))
def test_the_same_quiet_walks_find_nothing_wrong_with_ours(seed):
    assert walk_quietly(seed, Owner).seen["waits that ended"]


def walk_quietly_until_found(owner: type[Owner]) -> None:
    """First those walks that noticed something when they were last all walked."""
    for seed in (1, 5, 10, *range(300)):
        walk_quietly(seed, owner)


def walk_until_found(
    coordinator: type[TransactionCoordinator[Any]],
    owner: type[Owner] = Owner,
    *,
    goes_back: bool = False,
) -> None:
    """First those walks that noticed something when they were last all walked."""
    for seed in (0, 4, 6, 31, *range(300)):
        walk(seed, coordinator, owner, goes_back=goes_back)


def outlast_the_timeout(world: World, owner: Owner) -> None:
    """All that is under way takes too long, and then ends in an error."""
    if owner.commits:
        owner.go_on_with_a_commit(Outcome.UNKNOWN)
    world.now_ms += TIMEOUT_MS + 1
    owner.tick(is_ready=True)
    for work in range(len(owner.work)):
        owner.go_on(work, Outcome.UNKNOWN)


def walk_quietly(seed: int, owner: type[Owner]) -> World:
    """The life of a world with few records, for which somebody waits."""
    chance = random.Random(seed)
    mode: Mode = chance.choice(["transactional", "opaque"])
    world = World(mode, chance.randrange(1, 5), owner=owner)
    for _ in range(150):
        run(world, chance.randbytes(24), is_quiet=True)
        which = chance.randrange(16)
        if which < 6:
            world.toggle(which)
        elif which < 8:
            world.produce(which, 1)
            world.owners[-1].wait()
    world.settle()
    return world


def walk(
    seed: int,
    coordinator: type[TransactionCoordinator[Any]],
    owner: type[Owner] = Owner,
    *,
    goes_back: bool = False,
) -> World:
    """The life of one world, decided by the seed.

    Args:
        seed: Of all that happens.
        coordinator: Ours, or a broken one.
        owner: Likewise.
        goes_back: Whether the database goes back now and then.
    """
    chance = random.Random(seed)
    mode: Mode = chance.choice(["transactional", "opaque"])
    world = World(mode, chance.randrange(1, 5), coordinator, owner)
    for _ in range(60):
        run(world, chance.randbytes(40))
        live, which = chance.choice(world.owners), chance.randrange(8)
        sometimes = (
            world.crash,
            world.take_over,
            partial(live.lose, which),
            partial(live.repeat, which),
            partial(world.toggle, which),
        )
        chance.choice(sometimes)()
        if goes_back and chance.random() < 0.2:
            is_beside = chance.random() < 0.5
            world.go_back(1 + which, is_beside=is_beside, is_frozen=which % 2 > 0)
        world.now_ms += chance.choice([0, 0, 0, 1_500])
    outlast_the_timeout(world, world.owners[-1])
    world.settle()
    return world
