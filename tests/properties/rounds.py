"""Rounds of a simulation: each walks other ways, also where chance is switched off."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

SIMULATED_STEPS = int(os.environ.get("KAFKA_TX_SIMULATED_STEPS", "5000"))
"""How many of each simulation are wanted, before its own factor.

``make test-fast`` and ``make test`` play 5,000, ``make test-all`` 20,000.
"""


def is_enough(
    seen: Mapping[str, int],
    steps: int,
    must_happen: Iterable[str],
    *,
    blind_after: int = 10,
) -> bool:
    """Whether a simulation may end: rare events are waited for, in short runs too.

    AssertionError: They did not happen in ``blind_after`` times the steps.
    """
    never = [what for what in must_happen if not seen[what]]
    is_blind = never and seen["steps"] >= blind_after * steps
    assert not is_blind, f"the simulation is blind: {never} in {dict(seen)}"
    return seen["steps"] >= steps and not never


def play_round(
    number: int,
    machine: type[RuleBasedStateMachine],
    *,
    steps: int,
    examples: int = 40,
    phases: tuple[Phase, ...] = tuple(Phase),
    is_known: bool = False,
) -> None:
    """Let Hypothesis play; a failure prints the steps and a blob that replays them.

    In ``make test``, Hypothesis plays the same game each time it is asked: every round
    would be the first one. There the number of the round is the seed, as it is where
    the game shall be known: one that is to find something takes as long each time.
    """
    if is_known or settings().derandomize:
        machine = seed(number)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            phases=phases,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
