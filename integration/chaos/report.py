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
        spark_s: Jobs of which another driver was begun, and how many of those seconds
            it took until that one had Spark ready: its session, and for queries the
            Python processes that it starts for any source.
        began: The time of day.
        load: Of the machine, the minute before all had gone on.
    """

    planned: Planned
    proof: str
    has_hit: bool
    recovered_s: dict[str, float | None] = field(default_factory=dict)
    spark_s: dict[str, float] = field(default_factory=dict)
    began: str = ""
    load: float = 0.0

    def text(self, within_s: float) -> str:
        """Two lines that tell it."""
        hit = "" if self.has_hit else "NOT HIT: "
        times = ", ".join(self._time(kind, within_s) for kind in self.recovered_s)
        return (
            f"{self.began} {self.planned}: {hit}{self.proof}\n"
            f"    went on after {times}, load {self.load:.1f}"
        )

    def is_good(self, within_s: float) -> bool:
        """It hit, and everything went on in time."""
        return self.has_hit and all(
            self._in_time(kind, within_s) for kind in self.recovered_s
        )

    def _in_time(self, kind: str, within_s: float) -> bool:
        took = self.recovered_s[kind]
        return took is not None and took - self.spark_s.get(kind, 0.0) <= within_s

    def _time(self, kind: str, within_s: float) -> str:
        took, spark = self.recovered_s[kind], self.spark_s.get(kind)
        again = "" if spark is None else f" (another driver, Spark after {spark:.1f} s)"
        late = took is not None and not self._in_time(kind, within_s)
        return f"{kind} {_seconds(took)}{again}{' LATE' if late else ''}"


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
        first, calm = _times(self.first_s), _times(self.calm_s)
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


def _times(took_s: Mapping[str, float | None]) -> str:
    return ", ".join(f"{kind} {_seconds(took)}" for kind, took in took_s.items())


def _seconds(took: float | None) -> str:
    return "NEVER" if took is None else f"{took:.1f} s"


def _by_kind(happened: list[Happened]) -> list[str]:
    """For each kind of fault, how often it hit and the longest wait of any job."""
    lines = []
    for name in sorted({one.planned.name for one in happened}):
        some = [one for one in happened if one.planned.name == name]
        times = [took for one in some for took in one.recovered_s.values()]
        known = [took for took in times if took is not None]
        longest = _seconds(max(known, default=0) if len(known) == len(times) else None)
        hits = sum(one.has_hit for one in some)
        lines.append(f"{name}: hit {hits} of {len(some)}, longest wait {longest}")
    return lines
