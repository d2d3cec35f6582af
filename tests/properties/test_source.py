"""The source's planner under everything that topics, checkpoints and stores can do."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kafka_tx.config import Mode
from kafka_tx.errors import KafkaTxError, ReplayDiffersError
from kafka_tx.model import TopicPartition
from kafka_tx.offsets.position_checks import Finding, PositionCheck
from kafka_tx.planning.deleted_topics import DeletedTopics
from kafka_tx.source import agreement
from kafka_tx.source import questions as asking
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.transactions.layout.batch_records import read_batch
from kafka_tx.transactions.ledger import ledger_reading
from tests.properties.rounds import SIMULATED_STEPS, is_enough, play_round
from tests.properties.simulated_source import World, empty_batch, run

MODES: tuple[Mode, ...] = ("transactional", "opaque")

PLAYED = 0.05
"""How many of them Hypothesis decides: it looks for odd ones, and shortens what fails.

A plain random walk is fifteen times as fast.
"""

seen: Counter[str] = Counter()


def note(world: World) -> None:
    """Count what happened, also by the mode of the world."""
    seen.update(world.seen)
    seen.update({f"{what} {world.mode}": n for what, n in world.seen.items()})


class SimulatedSource(RuleBasedStateMachine):
    """Each rule is a stretch of events and steps; the world asserts after each."""

    world: World

    @initialize(
        mode=st.sampled_from(MODES),
        fails=st.booleans(),
        startless=st.booleans(),
        connect=st.booleans(),
    )
    def start(self, mode, fails, startless, connect):
        self.world = World(mode, fails=fails, startless=startless, connect=connect)

    @rule(data=st.binary(min_size=10, max_size=60))
    def run_a_while(self, data):
        run(self.world, data)

    @rule(data=st.binary(min_size=10, max_size=60))
    def freeze_and_run_on(self, data):
        self.world.freeze()
        run(self.world, data)

    def teardown(self):
        if hasattr(self, "world"):
            self.world.settle()
            note(self.world)


@pytest.mark.timeout(max(900, SIMULATED_STEPS // 200))
def test_every_record_counts_once_or_a_documented_error_says_what_to_do():
    """A failure names the walk, or prints steps that replay it (reproduce_failure)."""
    began, numbers = time.monotonic(), itertools.count()
    seen.clear()

    while seen["steps"] < SIMULATED_STEPS * PLAYED:
        play_round(next(numbers), SimulatedSource, steps=8)
    played = seen["steps"]
    while not is_enough(seen, SIMULATED_STEPS, WHAT_MUST_HAPPEN):
        walk(next(numbers))

    took_s = time.monotonic() - began
    print(f"\n{took_s:.0f} s, {played} by Hypothesis", dict(seen.most_common()))


IN_EACH_MODE = (
    "checkpoints put back",
    "disagreed: ahead",
    "disagreed: behind",
    "ends lost",
    "frozen: FencedError",
    "offsets taken",
    "skips of retention counted",
    "stores put back",
    "topics deleted",
    "topics hidden",
    "topics made anew",
)
"""What the guarantees promise something about, for both modes."""

WHAT_MUST_HAPPEN = (
    *(f"{what} {mode}" for what in IN_EACH_MODE for mode in MODES),
    "CheckpointDisagreesError",
    "DataLossError",
    "ReplayImpossibleError",
    "leaders moved",
    "another topic was read",
    "finished in a classic session",
    "listener: FencedError",
    "told",
    "ranges of other topics left out",
    "skips counted",
    "steps of the frozen",
    "tries counted",
)


@pytest.mark.timeout(max(900, SIMULATED_STEPS // 1_000))
def test_a_query_whose_database_went_back_loses_nothing():
    """Sinks in the store's database, and in another one that was put back with it."""
    seen.clear()

    for seed in range(max(13, SIMULATED_STEPS // 1_500)):
        walk(seed, goes_back=True)

    print(f"\n{dict(seen.most_common())}")
    for what in (
        "databases that went back",
        "StateLostError",
        "disagreed: together",
        "stores that their sinks went back with",
    ):
        assert seen[what], f"the simulation is blind: {what}"


@pytest.mark.timeout(max(900, SIMULATED_STEPS // 500))
def test_topics_come_and_go():
    """Their positions are dropped from store and checkpoint, and nothing is lost."""
    seen.clear()

    for seed in range(SIMULATED_STEPS // 200):
        come_and_go(seed)

    print(f"\n{dict(seen.most_common())}")
    for what in ("topics deleted", "positions dropped", "DataLossError"):
        assert seen[what], f"the simulation is blind: {what}"


def test_the_simulation_notices_a_source_that_takes_hidden_topics_for_deleted(
    monkeypatch,
):
    monkeypatch.setattr(
        DeletedTopics, "for_good", lambda self, missing, found: set(missing)
    )

    def play() -> None:
        for seed in range(1_000):
            come_and_go(seed)

    with pytest.raises(AssertionError, match="doubled"):
        play()


COMING_AND_GOING: tuple[tuple[Callable[..., None], int], ...] = (
    *[(World.step, 0)] * 10,
    *[(World.delete, 8)] * 2,
    *[(World.hide, 2)] * 2,
    (World.kill, 0),
    (World.freeze, 0),
    (World.wake, 4),
    (World.lose_commit_entry, 0),
    (World.leave_checkpoint, 0),
    (World.commit_from_the_listener, 0),
)


def come_and_go(seed: int) -> None:
    """Topics are deleted, made anew and hidden, and drivers come and go."""
    chance = random.Random(seed)
    mode: Mode = chance.choice(MODES)
    world = World(mode, fails=chance.random() < 0.5)
    try:
        for _ in range(60):
            if chance.random() < 0.2:
                world.produce(chance.randrange(8), chance.randrange(9))
            happens, size = chance.choice(COMING_AND_GOING)
            happens(world, *([chance.randrange(size)] if size else []))
            world.check()
        world.settle()
    except BaseException as error:
        error.add_note(f"come_and_go({seed})")
        raise
    note(world)


def walk(seed: int, *, goes_back: bool = False) -> None:
    """The life of one world, decided by the seed; its database may go back."""
    chance = random.Random(seed)
    mode: Mode = chance.choice(MODES)
    fails, startless, connect = (chance.random() < 0.5 for _ in range(3))
    world = World(mode, fails=fails, startless=startless, connect=connect)
    try:
        run(world, chance.randbytes(chance.randint(50, 400)))
        for _ in range(3 if goes_back else 0):
            world.copy_store()
            run(world, chance.randbytes(40))
            world.restore_database(chance.randrange(3))
            run(world, chance.randbytes(40))
        world.settle()
    except ReplayDiffersError:
        assert goes_back  # no copies are left of which its text speaks
        world.check()
    except BaseException as error:
        error.add_note(f"walk({seed})")
        raise
    note(world)


# --- known ones ---

A = TopicPartition("a", 0)


def until(world: World, has_happened: Callable[[], object]) -> None:
    """Let the run go on, and follow what it advises."""
    for _ in range(100):
        if has_happened():
            return
        world.step()
    raise AssertionError(f"never happened: {world.seen}")


def plan_next(world: World) -> None:
    """Until Spark's log has one batch more."""
    logged, had = world.checkpoint.offsets, len(world.checkpoint.offsets)
    until(world, lambda: len(logged) > had)


def test_a_batch_that_is_out_of_sight_keeps_where_it_began():
    """After a lost end, and while another checkpoint had planned it anew."""
    world = World("opaque", fails=False)
    world.brokers.append(A, 4)
    until(world, world._is_idle)
    world.brokers.elect(A, cut=4)
    world.brokers.append(A, 6)
    plan_next(world)
    world.leave_checkpoint()
    plan_next(world)

    world.use_another_checkpoint(0)
    world.hide(0)
    until(world, world._is_idle)
    world.settle()

    assert world.seen["skips counted"] == 1


def test_the_txid_of_a_batch_that_a_checkpoint_decides_is_given_up():
    """The store was put back, and the checkpoint's last batch is out of sight."""
    world = World("transactional", fails=False)
    world.brokers.append(A, 4)
    until(world, world._is_idle)
    world.copy_store()
    for _ in range(3):
        world.brokers.append(A, 3)
        plan_next(world)
        until(world, world._is_idle)
    world.brokers.append(A, 3)
    plan_next(world)

    world.hide(0)
    world.restore_store()
    world.settle()

    assert world.seen["ReplayImpossibleError"] == 1, world.seen


def test_advice_names_no_leader_of_a_topic_that_is_gone():
    """One of its epoch is unknown to the new topic, and would be waited for."""
    world = World("transactional", fails=False)
    world.brokers.elect(A)
    world.brokers.append(A, 3)
    plan_next(world)

    world.kill()
    world.brokers.make("a")
    world.brokers.append(A, 2)
    world.lose_leaders(0)
    until(world, world._is_idle)
    world.settle()

    assert world.seen["ReplayImpossibleError"] == 1, world.seen


def test_a_batch_of_a_new_topic_begins_where_the_former_one_was_read_to():
    """An older checkpoint follows the store there; then the store is put back."""
    world = World("transactional", fails=False)
    world.brokers.append(A, 4)
    until(world, world._is_idle)
    world.copy_store()
    world.leave_checkpoint()
    world.brokers.make("a")
    world.brokers.append(A, 4)
    until(world, world._is_idle)

    world.use_another_checkpoint(0)
    world.lose_commit_entry()
    world.once["tx.onDisagreement"] = "store"
    until(world, lambda: world.sink.newest.txid == 3)
    world.brokers.append(A, 2)
    plan_next(world)
    world.restore_store()
    world.settle()

    assert world.seen["disagreed: ahead"] == 1, world.seen


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_checkpoint_of_before_the_store_went_back_does_not_follow_later_owners(
    is_committed,
):
    """Its txid is the next one, but it came after a batch that was lost since."""
    world = World("transactional", fails=False)
    world.brokers.append(A, 4)
    until(world, world._is_idle)
    world.copy_store()
    world.brokers.append(A, 1)
    plan_next(world)
    until(world, world._is_idle)
    world.leave_checkpoint()
    world.brokers.append(A, 2)
    plan_next(world)

    store, sink = world.store_copy
    world.store.restore(store)
    world.sink.put_back(sink)
    world.leave_checkpoint()
    for _ in range(6):
        world.store.acquire()
    until(world, lambda: world.sink.newest.txid == 2)
    until(world, world._is_idle if is_committed else lambda: True)
    world.use_another_checkpoint(1)
    world.settle()

    assert world.seen["disagreed: apart"], world.seen
    assert [n for n in world.sink.records() if n >= 0] == [*range(7)]


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_without_records_is_known_after_another_checkpoint_had_one(mode):
    """A kill takes the commit entry after Spark has asked for the next batch."""
    world = World(mode, fails=False)
    world.start()
    empty_batch(world)
    until(world, lambda: world.sink.newest.txid == 1)
    world.leave_checkpoint()
    world.start()
    empty_batch(world)
    until(world, lambda: "meta/2" in world.store.read())
    world.use_another_checkpoint(0)
    until(world, world._is_idle)

    world.lose_commit_entry()
    world.settle()

    assert world.sink.newest.txid == 1
    assert len(world.sink.records()) == 1


# --- a simulation that finds nothing proves nothing ---


def positions_decide(start, end):
    return start is None or dict(start.positions) != dict(end.positions)


def any_plan_of_these_ends(numbering, batch, end):
    return not batch.spark_batch and batch.logged_ends() == dict(end.positions)


def begins_again(check: PositionCheck) -> int:
    bounds = check.bounds
    is_outside = check.finding is not Finding.WITHIN and bounds is not None
    return bounds.log_start if is_outside and bounds else check.position


def known_by_the_query(question: asking.Question) -> str:
    """Under Spark Connect another name than in a classic session."""
    return question.query_batch


def without_topic_ids(payload):
    batch = read_batch(payload)
    ranges = tuple(each.of_topic(None) for each in batch.ranges)
    return replace(batch, ranges=ranges)


def some_walks():
    """First those that noticed something when they were last all walked."""
    any(map(walk, (0, 1, 2, 3, 19, 46, 170, *range(300))))


def a_classic_session_goes_on_with_what_connect_began():
    """A checkpoint's first batch, without records; the sink has it already."""
    world = World("transactional", fails=False, connect=True)
    world.start()
    empty_batch(world)
    while not world.sink.records():
        world.step()
    world.kill()
    world.must_be_classic = True
    world.settle()


def test_a_classic_session_goes_on_with_what_connect_began():
    a_classic_session_goes_on_with_what_connect_began()


@pytest.mark.all
@pytest.mark.parametrize(
    ("where", "name", "broken", "what_happens"),
    [
        (
            *(asking.Question, "spark_batch", property(known_by_the_query)),
            a_classic_session_goes_on_with_what_connect_began,
        ),
        (asking, "moves", positions_decide, some_walks),
        (agreement, "fits", any_plan_of_these_ends, some_walks),
        (PositionCheck, "next_offset", property(begins_again), some_walks),
        (
            TransactionalMicroBatches,
            "_remembered",
            lambda self, partition: None,
            some_walks,
        ),
        (TransactionalMicroBatches, "_ids", lambda self: {}, some_walks),
        (
            TransactionalMicroBatches,
            "_epochs_of_positions",
            lambda self: {},
            some_walks,
        ),
        (ledger_reading, "read_batch", without_topic_ids, some_walks),
    ],
)
def test_the_simulation_notices(monkeypatch, where, name, broken, what_happens):
    """Within some hundred known walks, or where it is known to show."""
    monkeypatch.setattr(where, name, broken)
    if where is asking:
        module = "kafka_tx.source.transactional"
        monkeypatch.setattr(f"{module}.{name}", broken)

    with pytest.raises((AssertionError, KafkaTxError)):
        what_happens()
