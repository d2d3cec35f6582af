"""Coordinators, managers, retries and a store, in whatever order the world allows."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from integration.sizes import size
from kafka_tx.model import Earliest, Latest
from kafka_tx.offsets.retry import BackOff
from kafka_tx.offsets.unfinished import PartitionRules
from tests.properties.rounds import SIMULATED_STEPS, is_enough, play_round
from tests.properties.simulated_spout import Spout
from tests.properties.spout_steps import STEPS, check, settle, step

SECONDS_AT_MOST = 300 + SIMULATED_STEPS // 1_000

seen: Counter[str] = Counter()

arguments = st.integers(0, 255)


class SimulatedSpout(RuleBasedStateMachine):
    """Every rule is a step or a run of steps; what must hold is checked after each."""

    spout: Spout

    @initialize(
        limit=st.sampled_from([None, 0, 2]),
        max_uncommitted=st.sampled_from([7, 40, None]),
        behind=st.sampled_from([None, 6]),
        position=st.sampled_from([Earliest(), Latest()]),
        tasks=st.integers(1, 3),
    )
    def start(self, limit, max_uncommitted, behind, position, tasks):
        back_off = BackOff(
            initial_delay_ms=100, multiplier=2, max_delay_ms=400, limit=limit
        )
        rules = PartitionRules(
            back_off=back_off,
            max_uncommitted_offsets=max_uncommitted,
            max_offset_behind=behind,
        )
        self.spout = Spout(rules, position, tasks)

    @rule(what=st.sampled_from(sorted(STEPS)), which=arguments)
    def one_step(self, what, which):
        self.take(what, which)

    @rule(data=st.binary(min_size=40, max_size=240))
    def a_while(self, data):
        self.take_all(data)

    @rule(data=st.binary(min_size=40, max_size=240))
    def another_while(self, data):
        self.take_all(data)

    def take_all(self, data):
        for what, which in zip(data[::2], data[1::2], strict=False):
            self.take(ORDER[what % len(ORDER)], which)

    def take(self, what, which):
        step(self.spout, what, which)
        check(self.spout)
        seen["steps"] += 1
        seen[what] += 1

    def teardown(self):
        if hasattr(self, "spout"):
            settle(self.spout)
            seen.update(self.spout.world.seen)


ORDER = [name for name, (weight, _) in STEPS.items() for _ in range(weight)]

WHAT_MUST_HAPPEN = (
    "commits",
    "commits beyond a gap",
    "failed commits",
    "failed reads",
    "failed first looks",
    "given up",
    "late answers",
    "retries",
    "trimmed unfinished",
    "lost",
    "crashes",
    "never given",
    "cut",
    "expired",
    "too far behind",
)


@pytest.mark.timeout(SECONDS_AT_MOST + 600)
def test_no_readable_record_is_passed_or_lost_and_everything_ends():
    """A failure prints the steps and a blob that replays them (reproduce_failure).

    They are not shrunk, which takes minutes: add ``Phase.shrink`` to see fewer.
    """
    began, rounds = time.monotonic(), itertools.count()
    seen.clear()

    must_happen = (*WHAT_MUST_HAPPEN, *STEPS)
    while not is_enough(seen, SIMULATED_STEPS, must_happen, blind_after=100):
        play_round(
            next(rounds),
            SimulatedSpout,
            steps=40,
            examples=size(10, 40),
            phases=(Phase.generate,),
        )
        if time.monotonic() - began > SECONDS_AT_MOST:
            break

    print(f"\n{time.monotonic() - began:.0f} s", dict(seen.most_common()))
    assert seen["steps"] >= SIMULATED_STEPS
    never = {what for what in (*WHAT_MUST_HAPPEN, *STEPS) if not seen[what]}
    assert not never, f"the simulation is blind: {never} in {seen}"
