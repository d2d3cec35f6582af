"""What a run saw, as text and as a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field

from integration.chaos.counting import Count
from integration.chaos.schedule import Planned


@dataclass(slots=True)
class Happened:
    """One fault of the run.

    Attributes:
        proof: What was observed of it; why not, where it did not hit.
        recovered_s: Seconds after its end until each job went on; None: it did not
            within the limit.
    """

    planned: Planned
    proof: str
    has_hit: bool
    recovered_s: dict[str, float | None] = field(default_factory=dict)

    def __str__(self) -> str:
        times = ", ".join(
            f"{kind} {'STUCK' if took is None else f'{took:.1f} s'}"
            for kind, took in self.recovered_s.items()
        )
        hit = "" if self.has_hit else "NOT HIT: "
        return f"{self.planned}: {hit}{self.proof}\n    recovered: {times}"

    @property
    def is_good(self) -> bool:
        """It hit, and everything went on."""
        return self.has_hit and None not in self.recovered_s.values()


@dataclass(slots=True)
class Report:
    """A whole run."""

    seed: int
    acknowledged: int = 0
    happened: list[Happened] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Nothing lost, nothing doubled, nothing stuck, every fault hit."""
        return (
            bool(self.counts)
            and all(count.is_good for count in self.counts)
            and all(one.is_good for one in self.happened)
        )

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.acknowledged} numbers acknowledged"]
        for count in self.counts:
            lines.append(
                f"{count.kind}: {count.counted} counted, lost {len(count.lost)}"
                f" {count.lost[:5]}, doubled {len(count.doubled)} {count.doubled[:5]},"
                f" {self.starts.get(count.kind, 0)} drivers"
            )
        times = [
            took
            for one in self.happened
            for took in one.recovered_s.values()
            if took is not None
        ]
        lines.append(
            f"{len(self.happened)} faults, longest recovery {max(times, default=0):.1f}"
            f" s: {'GOOD' if self.is_good else 'NOT GOOD'}"
        )
        return "\n".join(lines)
