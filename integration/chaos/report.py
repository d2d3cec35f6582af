"""What a run saw, as text and as a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from integration.chaos.counting import Count
from integration.chaos.schedule import Planned


@dataclass(slots=True)
class Happened:
    """One fault of the run.

    Attributes:
        proof: What was observed of it; why not, where it did not hit.
        recovered_s: Seconds after its end until each job went on; None: it did not
            while it was watched.
        restarted: Jobs of which another driver was begun.
        began: The time of day.
        load: Of the machine, the minute before all had gone on.
    """

    planned: Planned
    proof: str
    has_hit: bool
    recovered_s: dict[str, float | None] = field(default_factory=dict)
    restarted: list[str] = field(default_factory=list)
    began: str = ""
    load: float = 0.0

    def text(self, within_s: float) -> str:
        """Two lines that tell it."""
        hit = "" if self.has_hit else "NOT HIT: "
        again = f", begun again: {' '.join(self.restarted)}" if self.restarted else ""
        return (
            f"{self.began} {self.planned}: {hit}{self.proof}\n"
            f"    went on after {_times(self.recovered_s, within_s)}{again},"
            f" load {self.load:.1f}"
        )

    def is_good(self, within_s: float) -> bool:
        """It hit, and everything went on in time."""
        return self.has_hit and all(
            took is not None and took <= within_s for took in self.recovered_s.values()
        )


@dataclass(slots=True)
class Report:
    """A whole run.

    Attributes:
        title: Which one.
        within_s: How long after a fault a job may stand still.
        first_s: Seconds until each job counted its first numbers.
        calm_s: The same while nothing was wrong: what a wait is made of besides.
        starts: How many drivers each job had.
    """

    title: str
    within_s: float = 60.0
    first_s: dict[str, float | None] = field(default_factory=dict)
    calm_s: dict[str, float | None] = field(default_factory=dict)
    acknowledged: int = 0
    happened: list[Happened] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Nothing lost, nothing doubled, nothing late, every fault hit."""
        return (
            bool(self.counts)
            and all(count.is_good for count in self.counts)
            and all(one.is_good(self.within_s) for one in self.happened)
        )

    def start(self) -> str:
        """When all jobs ran."""
        first, calm = (_times(t, float("inf")) for t in (self.first_s, self.calm_s))
        return f"{self.title}: began after {first}; while all is well {calm}"

    def __str__(self) -> str:
        lines = [f"{self.title}: {self.acknowledged} numbers acknowledged"]
        for count in self.counts:
            lines.append(
                f"{count.kind}: {count.counted} counted, lost {len(count.lost)}"
                f" {count.lost[:5]}, doubled {len(count.doubled)} {count.doubled[:5]},"
                f" {self.starts.get(count.kind, 0)} drivers"
            )
        lines.extend(f"  {line}" for line in _by_kind(self.happened))
        lines.append(
            f"{len(self.happened)} faults, {'GOOD' if self.is_good else 'NOT GOOD'}"
        )
        return "\n".join(lines)


def _times(took_s: Mapping[str, float | None], within_s: float) -> str:
    return ", ".join(f"{kind} {_time(took, within_s)}" for kind, took in took_s.items())


def _time(took: float | None, within_s: float) -> str:
    if took is None:
        return "NEVER"
    return f"{took:.1f} s{' LATE' if took > within_s else ''}"


def _by_kind(happened: list[Happened]) -> list[str]:
    """For each kind of fault, how often it hit and the longest wait of any job."""
    lines = []
    for name in sorted({one.planned.name for one in happened}):
        some = [one for one in happened if one.planned.name == name]
        times = [took for one in some for took in one.recovered_s.values()]
        longest = "NEVER" if None in times else f"{max(filter(None, times)):.1f} s"
        hits = sum(one.has_hit for one in some)
        lines.append(f"{name}: hit {hits} of {len(some)}, longest wait {longest}")
    return lines
