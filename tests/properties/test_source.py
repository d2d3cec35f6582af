"""The source's planner under everything that topics, checkpoints and stores can do."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kafka_tx.config import Mode
from kafka_tx.errors import KafkaTxError
from kafka_tx.model import OffsetRange
from kafka_tx.planning.standing import Finding, Standing
from kafka_tx.source import agreement
from kafka_tx.source import questions as asking
from kafka_tx.source.transactional import TransactionalMicroBatches
from tests.properties.rounds import SIMULATED_STEPS, play_round
from tests.properties.simulated_source import World, empty_batch, run

PLAYED = 0.05
"""How many of them Hypothesis decides: it looks for odd ones, and shortens what fails.

A plain random walk is fifteen times as fast.
"""

seen: Counter[str] = Counter()


class SimulatedSource(RuleBasedStateMachine):
    """Each rule is a stretch of events and steps; the world asserts after each."""

    world: World

    @initialize(
        mode=st.sampled_from(["transactional", "opaque"]),
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
            seen.update(self.world.seen)


@pytest.mark.timeout(max(300, SIMULATED_STEPS // 200))
def test_every_record_counts_once_or_a_documented_error_says_what_to_do():
    """A failure names the walk, or prints steps that replay it (reproduce_failure)."""
    began, numbers = time.monotonic(), itertools.count()
    seen.clear()

    while seen["steps"] < SIMULATED_STEPS * PLAYED:
        play_round(next(numbers), SimulatedSource, steps=8)
    played = seen["steps"]
    while seen["steps"] < SIMULATED_STEPS:
        walk(next(numbers))

    took_s = time.monotonic() - began
    print(f"\n{took_s:.0f} s, {played} by Hypothesis", dict(seen.most_common()))
    never = {what for what in WHAT_MUST_HAPPEN if not seen[what]}
    assert not never, f"the simulation is blind: {never} in {seen}"


WHAT_MUST_HAPPEN = (
    "CheckpointDisagreesError",
    "DataLossError",
    "ReplayImpossibleError",
    "disagreed: behind",
    "ends lost",
    "another topic was read",
    "finished in a classic session",
    "frozen: FencedError",
    "listener: FencedError",
    "ranges of other topics left out",
    "steps of the frozen",
    "stores put back",
    "topics made anew",
)


def test_a_query_whose_database_went_back_loses_nothing():
    """Sinks in the store's database, and in another one that was put back with it."""
    seen.clear()

    for seed in range(SIMULATED_STEPS // 1_500):
        walk(seed, goes_back=True)

    print(f"\n{dict(seen.most_common())}")
    for what in (
        "databases that went back",
        "StateLostError",
        "disagreed: together",
        "stores that their sinks went back with",
    ):
        assert seen[what], f"the simulation is blind: {what}"


def walk(seed: int, *, goes_back: bool = False) -> None:
    """The life of one world, decided by the seed; its database may go back."""
    chance = random.Random(seed)
    mode: Mode = chance.choice(["transactional", "opaque"])
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
    except BaseException as error:
        error.add_note(f"walk({seed})")
        raise
    seen.update(world.seen)


# --- a simulation that finds nothing proves nothing ---


def positions_decide(start, end):
    return start is None or dict(start.positions) != dict(end.positions)


def any_plan_of_these_ends(transactions, numbering, batch, end):
    return not batch.spark_batch and batch.logged_ends() == dict(end.positions)


def begins_again(standing: Standing) -> int:
    bounds = standing.bounds
    is_outside = standing.finding is not Finding.WITHIN and bounds is not None
    return bounds.log_start if is_outside and bounds else standing.position


def known_by_the_query(question: asking.Question) -> str:
    """Under Spark Connect another name than in a classic session."""
    return question.query_batch


def some_walks():
    any(map(walk, range(300)))


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


@pytest.mark.parametrize(
    ("where", "name", "broken", "what_happens"),
    [
        (
            *(asking.Question, "spark_batch", property(known_by_the_query)),
            a_classic_session_goes_on_with_what_connect_began,
        ),
        (asking, "moves", positions_decide, some_walks),
        (agreement, "fits", any_plan_of_these_ends, some_walks),
        (Standing, "next_offset", property(begins_again), some_walks),
        (
            TransactionalMicroBatches,
            "_remembered",
            lambda self, partition: None,
            some_walks,
        ),
        (TransactionalMicroBatches, "_ids", lambda self: {}, some_walks),
        (OffsetRange, "of_topic", lambda self, topic_id: self, some_walks),
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
