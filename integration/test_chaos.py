"""All doors side by side while everything around them breaks: nothing lost or doubled.

``make test-all`` has a short run, ``make chaos`` longer ones, and
``python -m integration.chaos`` one with any seed.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from integration.chaos.counting import Count
from integration.chaos.faults import FAULTS
from integration.chaos.report import Happened, Report
from integration.chaos.run import run
from integration.chaos.schedule import KINDS, Planned, schedule

SHORT = ("leader-move", "worker-kill", "broker-pause")


def test_the_same_seed_gives_the_same_faults():
    def first(seed):
        return list(islice(schedule(seed), 50))

    assert first(7) == first(7)
    assert first(7) != first(8)


def test_every_fault_comes_in_every_round():
    planned = list(islice(schedule(3), len(KINDS)))

    assert {one.name for one in planned} == {kind.name for kind in KINDS}
    assert {kind.name for kind in KINDS} == set(FAULTS)


def test_what_is_missing_or_there_twice_is_counted():
    count = Count.of("sql", {1, 2, 3}, Counter({1: 1, 2: 2, 9: 1}))

    assert (count.lost, count.doubled) == ([3], [2])
    assert not count.is_good


def test_at_least_once_may_double_but_not_lose():
    assert Count.of("records", {1}, Counter({1: 2})).is_good
    assert not Count.of("records", {1}, Counter()).is_good


PLANNED = Planned("cut", "brokers", 2.0, 1.0)


@pytest.mark.parametrize(
    ("happened", "is_good"),
    [
        (Happened(PLANNED, "3 reset", has_hit=True, recovered_s={"sql": 1.0}), True),
        (Happened(PLANNED, "3 reset", has_hit=True, recovered_s={"sql": None}), False),
        (Happened(PLANNED, "none", has_hit=False, recovered_s={"sql": 1.0}), False),
    ],
)
def test_a_run_is_good_where_every_fault_hit_and_everything_went_on(happened, is_good):
    report = Report(1, 1, [happened], [Count("sql", 1)])

    assert report.is_good is is_good
    assert ("NOT GOOD" in str(report)) is not is_good


@pytest.mark.all
@pytest.mark.timeout(900)
def test_a_short_run_loses_and_doubles_nothing():
    lines: list[str] = []

    report = run(
        11,
        0.5,
        jobs=("sql", "topology"),
        kinds=[kind for kind in KINDS if kind.name in SHORT],
        within_s=240,
        say=lines.append,
    )

    assert report.is_good, "\n".join([*lines, str(report)])
