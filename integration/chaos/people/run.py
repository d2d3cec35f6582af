"""A run: one job after the other, until the time is up; then the account."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from integration.chaos.lake import HERE
from integration.chaos.people.jobs import Setup, Starter, new_setup, session
from integration.chaos.people.operations import OPERATIONS, Operation
from integration.chaos.people.parts import parts
from integration.chaos.people.person import Account, Person
from integration.chaos.schedule import ALL_JOBS, TABLES

MOST = 4
"""Things that people do to one job."""


@dataclass
class Report:
    """What became of all jobs."""

    title: str
    accounts: list[Account] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Every job has a good account."""
        return bool(self.accounts) and all(one.is_good for one in self.accounts)

    def __str__(self) -> str:
        total = Counter(
            {
                "sent": sum(one.sent for one in self.accounts),
                "in sinks": sum(one.in_sink for one in self.accounts),
                "lost": sum(len(one.lost) for one in self.accounts),
                "doubled": sum(len(one.doubled) for one in self.accounts),
                "stood still with a reason": sum(
                    bool(one.refusal) for one in self.accounts
                ),
                "stuck": sum(bool(one.stuck) for one in self.accounts),
            }
        )
        counted = ", ".join(f"{what} {times}" for what, times in total.items())
        verdict = "GOOD" if self.is_good else "NOT GOOD"
        return f"{self.title}: {len(self.accounts)} jobs, {counted}. {verdict}"


def setups(chance: random.Random, jobs: Sequence[str] = ALL_JOBS) -> Iterator[Setup]:
    """Jobs without end, each kind in its turn, as far as they are like these."""
    every = {
        "sql": [("query", sink, n) for sink in ("map", "table") for n in (1, 2)],
        "kafka": [("query", "kafka", 1), ("query", "kafka", 2)],
        "topology": [("topology", "map", 1)],
        **{kind: [("query", kind, 1)] for kind in TABLES if HERE[kind]},
    }
    kinds = [kind for job in jobs for kind in every.get(job, ())]
    while True:
        for door, sink, sources in chance.sample(kinds, len(kinds)):
            modes = ["transactional", "opaque"][: 1 if sink in TABLES else 2]
            mode = chance.choice(modes)
            store = chance.choice(["postgresql", "sqlite"])
            yield new_setup(door, mode, sink, store, sources)


def drawn(setup: Setup, chance: random.Random) -> list[Operation]:
    """What is done to a job."""
    fitting = [one for one in OPERATIONS if one.fits(setup)]
    return chance.sample(fitting, min(chance.randint(2, MOST), len(fitting)))


def run(
    seed: int,
    minutes: float,
    say: Callable[[str], None],
    jobs: Sequence[str] = ALL_JOBS,
) -> Report:
    """Live through it; what was seen. Says each account before anything is taken down.

    Args:
        seed: Decides which jobs, and what is done to them; not how fast they are.
        minutes: How long jobs are begun.
        say: Told each account, and the verdict at last.
        jobs: As those that run while everything breaks.
    """
    report = Report(f"people, seed {seed}")
    chance = random.Random(seed)
    until = time.monotonic() + 60 * minutes
    with parts() as given:
        starter = Starter(given, session(given))
        for setup in setups(chance, jobs):
            if time.monotonic() > until:
                break
            account = live(Person(starter, setup, chance), drawn(setup, chance))
            report.accounts.append(account)
            say(str(account))
        say(str(report))
        starter.spark.stop()
    return report


def live(person: Person, operations: list[Operation]) -> Account:
    """One job's life."""

    def whole() -> None:
        person.go_on()
        for operation in operations:
            person.note(operation.name)
            operation.do(person)
            person.go_on()

    person.attempt(whole)
    person.settle()
    return person.account
