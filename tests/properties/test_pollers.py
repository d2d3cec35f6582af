"""At-least-once spouts on logs that come, go, shrink, and are made anew as long.

What a poller knows is always some looks old, and it asks less of what it believes to be
quiet. Whatever happens, when it says that all there is was processed, it was.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from kafka_tx.model import CommittedOffset, LogPosition, TopicPartition
from kafka_tx.offsets import position_checks
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.running import serial_worker
from kafka_tx.running.at_least_once import offset_keeper
from tests.properties.rounds import SIMULATED_STEPS, is_enough, play_round
from tests.properties.simulated_poller import Inline, PollerWorld

STEPS_WANTED = SIMULATED_STEPS // 20

seen: Counter[str] = Counter()
names = st.sampled_from(["a", "b"])
few = st.integers(1, 4)

MOVES: dict[str, Callable[[PollerWorld], None]] = {
    "ask": PollerWorld.ask,
    "take": PollerWorld.take,
    "take the newest": PollerWorld.take_newest,
    "chunk": PollerWorld.chunk,
    "end": PollerWorld.end,
    "fail": PollerWorld.fail,
    "bury": PollerWorld.bury,
    "refuse a letter": PollerWorld.refuse_letter,
    "end the newest": PollerWorld.end_newest,
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
        if self.brokers.exists(name):
            self.brokers.append(TopicPartition(name, 0), count)

    @rule(name=names, more=st.integers(-2, 2))
    def make_anew(self, name, more):
        """With fewer records, as many, or more."""
        at = TopicPartition(name, 0)
        former = self.brokers.log(at).end if self.brokers.exists(name) else 0
        self.brokers.make(name)
        self.brokers.append(at, max(former + more, 0))
        seen["made anew"] += 1
        seen["made anew as long as before"] += bool(former and not more)

    @rule(name=names, more=st.integers(-2, 2), questions=few)
    def make_anew_between_questions(self, name, more, questions):
        self.brokers.questions.before(questions, lambda: self.make_anew(name, more))

    @rule(name=names)
    def delete(self, name):
        """Perhaps the only topic; it may be made anew later."""
        self.brokers.delete(name)
        seen["deleted"] += 1
        seen["no topic"] += not self.brokers.partitions()

    @rule(name=names, lost=st.integers(0, 4), others=st.integers(0, 6))
    def elect(self, name, lost, others):
        """A leader that lacks the last records; others take their offsets."""
        if not self.brokers.exists(name):
            return
        at = TopicPartition(name, 0)
        self.brokers.elect(at, lost)
        self.brokers.append(at, others)
        seen["leaders moved"] += 1
        seen["offsets taken"] += others >= lost > 0

    @rule(name=names, lost=few, others=few, questions=few)
    def elect_between_questions(self, name, lost, others, questions):
        self.brokers.questions.before(questions, lambda: self.elect(name, lost, others))

    @rule(name=names, count=few)
    def trim(self, name, count):
        if self.brokers.exists(name):
            self.brokers.trim(TopicPartition(name, 0), count)

    @rule(name=names, what=st.sampled_from(["hidden", "no leader", "down", "healed"]))
    def lose_or_find(self, name, what):
        """A topic is not named, has no leader, or no broker answers; or all is well."""
        topic = self.brokers.topics_[name]
        topic.is_hidden = what == "hidden"
        topic.has_leaders = what != "no leader"
        # A refused first look ends a topology.
        self.brokers.is_down = what == "down" and self.world.has_begun

    @rule(name=names)
    def damage_or_mend(self, name):
        """Records cannot be decoded any more; then they can, on another replica."""
        self.world.damaged ^= {TopicPartition(name, 0)}

    @rule(name=names, moves=moves)
    def read_damage_for_long(self, name, moves):
        self.write(name, 1)
        self.world.damaged.add(TopicPartition(name, 0))
        for _ in range(12):
            self.go_on(["ask", "take", "take", "chunk", "end", "end"])
            self.world.clock.advance(31_000)
        self.go_on(moves)

    @rule(moves=moves, name=names)
    def damage_what_has_failed(self, moves, name):
        """A dead letter whose records cannot be read; later perhaps they can."""
        self.let_one_be_read(name)
        self.go_on(["end"] * (len(self.world.in_flight) - 1) + ["fail"])
        self.world.damaged.add(TopicPartition(name, 0))
        self.go_on(["bury", *moves])

    def let_one_be_read(self, name):
        self.write(name, 1)
        self.world.clock.advance(600)
        self.go_on(["ask", "take", "take", "chunk"])

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

    @rule(moves=moves, name=names, lost=few, others=st.integers(2, 6))
    def lose_the_end_at_work(self, moves, name, lost, others):
        self.write(name, lost)
        self.go_on(["ask", *moves])
        self.elect(name, lost, others)
        self.go_on(["chunk", *moves])

    @rule(moves=moves, name=names, lost=few, others=st.integers(2, 6))
    def lose_the_end_at_a_restart(self, moves, name, lost, others):
        """Also what is stored as completed beyond records that are unfinished."""
        self.go_on(moves)
        for _ in range(2):
            self.let_one_be_read(name)
        self.world.end_newest()
        self.world.poller.commit_if_due(at_once=True)
        seen["runs stored"] += self.world.has_stored_runs
        self.elect(name, lost, others)
        self.restart()

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
    "deleted",
    "no topic",
    "answers that waited",
    "failed reads",
    "ends by damage",
    "damaged letters",
    "letters",
    "letters without records",
    "refused letters",
    "late answers",
    "reads of another topic",
    "leaders moved",
    "runs stored",
    "offsets taken",
    "reads of other records",
    "restarts",
)


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    monkeypatch.setattr(serial_worker, "SerialWorker", Inline)
    monkeypatch.setattr(offset_keeper, "SerialWorker", Inline)
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def walk(steps: int = STEPS_WANTED, *, known_from: int | None = None) -> None:
    """Until enough was played, and everything happened that must."""
    seen.clear()
    for number in itertools.count(known_from or 0):
        if is_enough(seen, steps, WHAT_MUST_HAPPEN, blind_after=100):
            return
        play_round(
            number,
            SimulatedPoller,
            steps=40,
            phases=(Phase.generate,),
            is_known=known_from is not None,
        )


def test_what_is_said_to_be_processed_is():
    walk()


def by_length(patch):
    def unknown(position, bounds):
        return position_checks.check_position(replace(position, topic_id=None), bounds)

    patch.setattr("kafka_tx.offsets.manager.check_position", unknown)
    patch.setattr("kafka_tx.offsets.manager.is_another", lambda *_: False)


def by_offset(patch):
    patch.setattr(position_checks, "is_of_other_leader", lambda *_: False)


def by_first_unfinished(patch):
    patch.setattr(PartitionManager, "reached", PartitionManager.position)
    patch.setattr(
        CommittedOffset,
        "reached",
        property(lambda at: LogPosition(at.offset, at.topic_id, at.leader_epoch)),
    )


def by_any_answer(patch):
    def trim(manager, given_up, generation, bounds):
        manager.trim(given_up.end)
        return []

    patch.setattr(PartitionManager, "unburied", trim)


def by_silence(patch):
    patch.setattr(PartitionManager, "deleted", lambda _: None)


@pytest.mark.all
@pytest.mark.parametrize(
    "mistake", [by_length, by_offset, by_first_unfinished, by_any_answer, by_silence]
)
def test_the_simulation_notices_managers_that_go(monkeypatch, mistake):
    """Within some known rounds."""
    mistake(monkeypatch)

    with pytest.raises(AssertionError, match="left over|not counted"):
        walk(200 * STEPS_WANTED, known_from=0)
