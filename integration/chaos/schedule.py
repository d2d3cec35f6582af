"""Which faults come one after the other: pure, and the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Kind:
    """A fault that may be drawn.

    Attributes:
        name: Which one.
        targets: What it may hit; one is drawn.
        lasts_s: The shortest and the longest it lasts.
    """

    name: str
    targets: tuple[str, ...]
    lasts_s: tuple[float, float] = (2.0, 6.0)


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault of a run."""

    name: str
    target: str
    lasts_s: float
    pause_s: float
    """How long all is well before it."""

    def __str__(self) -> str:
        return f"{self.name} {self.target} for {self.lasts_s:.0f} s"


BROKERS = ("1", "2", "3")
TABLES = ("delta", "iceberg")
ONCE = ("sql", "kafka", "topology", *TABLES)
ALL_JOBS = (*ONCE, "records")
QUERIES = ("sql", "kafka", *TABLES)

KINDS = (
    Kind("broker-kill", BROKERS),
    Kind("broker-pause", BROKERS, (3, 8)),
    Kind("leader-move", BROKERS),
    Kind("controller-kill", ("active",)),
    Kind("cut", ("brokers", "postgresql", "zookeeper")),
    Kind("half-open", ("brokers", "postgresql", "zookeeper"), (4, 10)),
    Kind("postgresql-kill", ("server",)),
    Kind("postgresql-pause", ("server",), (4, 10)),
    Kind("postgresql-away", ("server",), (20, 20)),
    Kind("zookeeper-kill", ("server",)),
    Kind("zookeeper-pause", ("server",), (4, 10)),
    Kind("worker-kill", ALL_JOBS, (0, 0)),
    Kind("daemon-kill", ALL_JOBS, (0, 0)),
    Kind("planner-kill", QUERIES, (0, 0)),
    Kind("driver-kill", ALL_JOBS, (0, 1)),
    Kind("driver-freeze", ONCE, (0, 0)),
    Kind("commit-entry-lost", QUERIES, (0, 0)),
    Kind("table-append", TABLES, (0, 0)),
    Kind("table-compact", TABLES, (0, 0)),
    Kind("table-expire", TABLES, (0, 0)),
)
"""Every fault there is."""


def chosen(words: Sequence[str]) -> list[Kind]:
    """The kinds that words such as ``cut`` or ``half-open:brokers`` name.

    Raises:
        ValueError: There is no such kind, or it has no such target.
    """
    by_name = {kind.name: kind for kind in KINDS}
    kinds: dict[str, list[str]] = {}
    for word in words:
        name, _, target = word.partition(":")
        if name not in by_name or target not in {"", *by_name[name].targets}:
            legal = ", ".join(f"{k.name}[:{'|'.join(k.targets)}]" for k in KINDS)
            raise ValueError(f"{word!r} is no fault. There are: {legal}")
        kinds.setdefault(name, []).extend([target] if target else by_name[name].targets)
    return [replace(by_name[name], targets=tuple(t)) for name, t in kinds.items()]


def among(jobs: Sequence[str], kinds: Sequence[Kind]) -> list[Kind]:
    """Without the targets that are jobs which do not run."""
    absent = set(ALL_JOBS) - set(jobs)
    left = [
        replace(kind, targets=tuple(t for t in kind.targets if t not in absent))
        for kind in kinds
    ]
    return [kind for kind in left if kind.targets]


def each_once(kinds: Sequence[Kind]) -> Iterator[Planned]:
    """Each fault on each of its targets, one after the other, as long as it can be."""
    for kind in kinds:
        for target in kind.targets:
            yield Planned(kind.name, target, kind.lasts_s[1], 2.0)


def schedule(seed: int, kinds: Sequence[Kind] = KINDS) -> Iterator[Planned]:
    """Faults without end; each kind once in every round, in another order."""
    chance = random.Random(seed)
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            yield Planned(
                kind.name,
                chance.choice(kind.targets),
                round(chance.uniform(*kind.lasts_s), 1),
                round(chance.uniform(1, 4), 1),
            )
