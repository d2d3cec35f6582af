"""Which bolts finish in the processing phase, which in the commit phase, in what order.

::

    spout → A → B (committer) → C → D (committer)      processing: A
              └───────────────────┘                      commit:     B, C, D

C reads A and B. It cannot finish before B did, so it finishes in the commit phase,
although it is no committer. D is a committer below a committer: when C has finished, so
does D, without a commit message of its own. What reaches B and C from A was already
executed in the processing phase.

Source: Storm, CoordinatedBolt.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kafka_tx.topology.declare.graph import ComponentKind, Graph


class Phase(StrEnum):
    """The two parts of the life of an attempt."""

    PROCESSING = "processing"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class Phases:
    """The order in which components finish, ``finish_batch`` of batch bolts included.

    Attributes:
        processing: Spout first, then bolts, sources before what reads them.
        commit: First the committers that have none above them, in graph order; then
            everything below, sources before what reads them.
    """

    processing: tuple[str, ...]
    commit: tuple[str, ...]

    def of(self, name: str) -> Phase:
        """The phase in which this component finishes."""
        return Phase.COMMIT if name in self.commit else Phase.PROCESSING


def phases_of(graph: Graph) -> Phases:
    """Derive the phases of a graph."""
    commit: list[str] = []
    first: list[str] = []
    for component in graph.components:  # sources come first
        if any(source in commit for source in component.sources):
            commit.append(component.name)
        elif component.kind is ComponentKind.COMMITTER:
            commit.append(component.name)
            first.append(component.name)
    names = [component.name for component in graph.components]
    return Phases(
        tuple(name for name in names if name not in commit),
        tuple(first + [name for name in commit if name not in first]),
    )
