"""Rounds of a simulation: each walks other ways, even where chance is switched off."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def play_round(
    number: int,
    machine: type[RuleBasedStateMachine],
    *,
    steps: int,
    phases: tuple[Phase, ...] = tuple(Phase),
) -> None:
    """Let Hypothesis play; a failure prints the steps and a blob that replays them.

    Under CI, Hypothesis plays the same game each time it is asked: every round would be
    the first one. There the number of the round is the seed.
    """
    if settings().derandomize:
        machine = seed(number)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=steps,
            phases=phases,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
