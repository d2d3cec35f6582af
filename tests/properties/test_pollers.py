"""At-least-once spouts on logs that come, go, shrink, and are made anew as long.

What a poller knows is always some looks old, and it asks less of what it believes to be
quiet. Whatever happens, when it says that all there is was processed, it was.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from kafka_tx.model import TopicPartition
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.running.at_least_once import asker, offset_keeper
from tests.properties.rounds import SIMULATED_STEPS, is_enough, play_round
from tests.properties.simulated_poller import Inline, PollerWorld

STEPS_WANTED = SIMULATED_STEPS // 20
NOTICED = 4
"""A known round that comes upon bounds of a former topic within some hundred steps."""

seen: Counter[str] = Counter()
names = st.sampled_from(["a", "b"])
few = st.integers(1, 4)

MOVES: dict[str, Callable[[PollerWorld], None]] = {
    "ask": PollerWorld.ask,
    "take": PollerWorld.take,
    "take the newest": PollerWorld.take_newest,
    "chunk": PollerWorld.chunk,
    "end": PollerWorld.end,
    "wait": lambda world: world.clock.advance(600),
}
moves = st.lists(st.sampled_from(sorted(MOVES)), min_size=5, max_size=25)


class SimulatedPoller(RuleBasedStateMachine):
    """What happens to the logs, and what the topology's thread does meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PollerWorld()

    @property
    def brokers(self):
        return self.world.brokers

    # --- the logs ---

    @rule(name=names, count=few)
    def write(self, name, count):
        self.brokers.append(TopicPartition(name, 0), count)

    @rule(name=names, more=st.integers(-2, 2))
    def make_anew(self, name, more):
        """With fewer records, as many, or more."""
        at = TopicPartition(name, 0)
        former = self.brokers.log(at).end
        self.brokers.make(name)
        self.brokers.append(at, max(former + more, 0))
        seen["made anew"] += 1
        seen["made anew as long as before"] += bool(former and not more)

    @rule(name=names, more=st.integers(-2, 2), questions=few)
    def make_anew_between_questions(self, name, more, questions):
        self.brokers.questions.before(questions, lambda: self.make_anew(name, more))

    @rule(name=names, count=few)
    def trim(self, name, count):
        self.brokers.trim(TopicPartition(name, 0), count)

    @rule(name=names, what=st.sampled_from(["hidden", "no leader", "down", "healed"]))
    def lose_or_find(self, name, what):
        """A topic is not named, has no leader, or no broker answers; or all is well."""
        topic = self.brokers.topics_[name]
        topic.is_hidden = what == "hidden"
        topic.has_leaders = what != "no leader"
        # A refused first look ends a topology.
        self.brokers.is_down = what == "down" and self.world.has_begun

    @rule(ms=st.sampled_from([10, 100, 600, 3_000, 31_000]))
    def time_passes(self, ms):
        self.world.clock.advance(ms)

    # --- the topology ---

    @rule(moves=moves)
    def work(self, moves):
        self.go_on(moves)

    @rule(moves=moves)
    def work_more(self, moves):
        self.go_on(moves)

    @rule(moves=moves, name=names, more=st.integers(-1, 1))
    def lose_the_topic_at_work(self, moves, name, more):
        self.go_on(moves)
        self.trim(name, 1)
        self.world.ask()
        self.make_anew(name, more)
        self.go_on(moves)

    def go_on(self, moves):
        for move in moves:
            seen["answers that waited"] += len(self.world.answers) > 1
            MOVES[move](self.world)

    @rule()
    def restart(self):
        self.brokers.is_down = False
        self.world.start()
        seen["restarts"] += 1

    @rule()
    def process_all_available(self):
        self.world.heal()
        self.world.process_all_available()
        self.brokers.questions.settle()
        self.world.process_all_available()
        self.world.check()

    def teardown(self):
        self.process_all_available()
        seen["steps"] += 40
        seen.update(self.world.seen)


WHAT_MUST_HAPPEN = (
    "made anew",
    "made anew as long as before",
    "answers that waited",
    "failed reads",
    "late answers",
    "reads of another topic",
    "restarts",
)


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    monkeypatch.setattr(asker, "SerialWorker", Inline)
    monkeypatch.setattr(offset_keeper, "SerialWorker", Inline)
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def walk(steps: int = STEPS_WANTED, *, known_from: int | None = None) -> None:
    """Until enough was played, and everything happened that must."""
    seen.clear()
    for number in itertools.count(known_from or 0):
        if is_enough(seen, steps, WHAT_MUST_HAPPEN):
            return
        assert seen["steps"] < 40 * steps, f"the simulation is blind: {seen}"
        play_round(
            number,
            SimulatedPoller,
            steps=40,
            phases=(Phase.generate,),
            is_known=known_from is not None,
        )


@pytest.mark.timeout(300)
def test_what_is_said_to_be_processed_is():
    walk()


@pytest.mark.timeout(300)
def test_the_simulation_notices_managers_that_believe_a_length(monkeypatch):
    monkeypatch.setattr(PartitionManager, "_is_of_its_topic", lambda *_: True)
    monkeypatch.setattr("kafka_tx.offsets.manager.is_another", lambda *_: False)

    with pytest.raises(AssertionError, match="left over"):
        walk(200 * STEPS_WANTED, known_from=NOTICED)
