"""All doors side by side while everything around them breaks: nothing lost or doubled.

A short run is here, ``make chaos`` has longer ones with every fault, and ``python -m
integration.chaos`` one with any seed.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice

import pytest

from integration.chaos.counting import Count
from integration.chaos.faults import FAULTS
from integration.chaos.people import person
from integration.chaos.people import run as people
from integration.chaos.people.person import Account
from integration.chaos.report import Happened, Report
from integration.chaos.run import run
from integration.chaos.schedule import (
    KINDS,
    Planned,
    among,
    chosen,
    each_once,
    schedule,
)
from tests.properties.people_advice import WAYS

SHORT = ("leader-move:2", "half-open:postgresql")


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


@pytest.mark.parametrize(
    ("words", "targets"),
    [
        (["cut"], [("cut", ("brokers", "postgresql", "zookeeper"))]),
        (["cut:brokers", "cut:zookeeper"], [("cut", ("brokers", "zookeeper"))]),
    ],
)
def test_faults_and_their_targets_are_chosen_by_name(words, targets):
    assert [(kind.name, kind.targets) for kind in chosen(words)] == targets


@pytest.mark.parametrize("word", ["flood", "cut:moon"])
def test_a_fault_that_there_is_not_is_refused(word):
    with pytest.raises(ValueError, match=word):
        chosen([word])


def test_each_fault_comes_once_on_each_target():
    planned = [
        (one.name, one.target) for one in each_once(chosen(["cut", "broker-kill"]))
    ]

    assert planned == [
        *(("cut", target) for target in ("brokers", "postgresql", "zookeeper")),
        *(("broker-kill", target) for target in ("1", "2", "3")),
    ]


def test_a_job_that_does_not_run_is_no_target():
    kinds = among(["sql", "topology"], chosen(["planner-kill", "worker-kill:records"]))

    assert [(kind.name, kind.targets) for kind in kinds] == [("planner-kill", ("sql",))]


PLANNED = Planned("cut", "brokers", 2.0, 1.0)


@pytest.mark.parametrize(
    ("happened", "is_good", "word"),
    [
        (Happened(PLANNED, "3 reset", has_hit=True, recovered_s={"sql": 1}), True, ""),
        (
            Happened(PLANNED, "3 reset", has_hit=True, recovered_s={"sql": None}),
            False,
            "sql NEVER",
        ),
        (
            Happened(PLANNED, "3 reset", has_hit=True, recovered_s={"sql": 61.0}),
            False,
            "sql 61.0 s LATE",
        ),
        (
            Happened(
                PLANNED,
                "3 reset",
                has_hit=True,
                recovered_s={"sql": 61},
                spark_s={"sql": 9},
            ),
            True,
            "sql 61.0 s (another driver, Spark after 9.0 s)",
        ),
        (
            Happened(PLANNED, "none", has_hit=False, recovered_s={"sql": 1}),
            False,
            "NOT HIT: none",
        ),
    ],
)
def test_a_run_is_good_where_every_fault_hit_and_everything_went_on_in_time(
    happened, is_good, word
):
    report = Report("seed 1", 60, happened=[happened], counts=[Count("sql", 1)])

    assert report.is_good is is_good
    assert ("NOT GOOD" in str(report)) is not is_good
    assert word in happened.text(60)


def test_the_same_seed_gives_the_same_jobs_and_the_same_is_done_to_them():
    def first(seed):
        chance = random.Random(seed)
        jobs = list(islice(people.setups(chance), 20))
        done = [[one.name for one in people.drawn(job, chance)] for job in jobs]
        return [(job.door, job.mode, job.sink, job.opaque) for job in jobs], done

    assert first(7) == first(7)
    assert first(7) != first(8)


def test_what_a_way_out_is_called_in_the_simulation_it_is_called_on_real_parts():
    assert person.DO.keys() <= {way.name for way in WAYS}


@pytest.mark.parametrize(
    ("account", "is_good", "words"),
    [
        (Account("job", sent=3, in_sink=3), True, "good"),
        (Account("job", refusal="store is empty"), True, "stands still: store is"),
        (Account("job", lost=[1]), False, "lost 1 [1]"),
        (Account("job", doubled=[1, 2]), False, "doubled 2 [1, 2]"),
        (Account("job", stuck="no error came"), False, "STUCK: no error"),
    ],
)
def test_a_job_is_good_where_it_went_on_or_said_why_not(account, is_good, words):
    report = people.Report("seed 1", [account])

    assert report.is_good is is_good
    assert ("NOT GOOD" in str(report)) is not is_good
    assert words in str(account)


@pytest.mark.all
def test_a_person_loses_and_doubles_nothing_in_a_short_run():
    lines: list[str] = []

    report = people.run(1, 2, lines.append)

    assert report.is_good, "\n".join(lines)
    assert lines[-1] == str(report)


@pytest.mark.all
def test_a_short_run_loses_and_doubles_nothing():
    """Wide limits: other tests run beside it, on machines that may be slow."""
    lines: list[str] = []

    report = run(
        "short",
        each_once(chosen(SHORT)),
        jobs=("sql", "topology"),
        within_s=180,
        say=lines.append,
    )

    assert report.is_good, "\n".join(lines)
    assert lines[-1] == str(report)
    assert len(report.happened) == len(SHORT)
