"""The physical plan as data: stages, edges, waves. ``stages`` makes it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from kafka_tx.topology.declare.graph import (
    Component,
    ComponentKind,
    Graph,
    Input,
    Placement,
)
from kafka_tx.topology.declare.templates import Dumps


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


class TaskId(NamedTuple):
    """One task of one stage."""

    stage: str
    task: int

    def __str__(self) -> str:
        return f"{self.stage}[{self.task}]"


@dataclass(frozen=True, slots=True)
class Stage:
    """Components that share their tasks.

    Attributes:
        name: That of its first component.
        components: Sources before what reads them.
        tasks: How many tasks run it; 1 for a DataFrame stage.
        placement: Who runs them.
    """

    name: str
    components: tuple[str, ...]
    tasks: int
    placement: Placement

    @property
    def task_ids(self) -> tuple[TaskId, ...]:
        """All tasks, ascending."""
        return tuple(TaskId(self.name, task) for task in range(self.tasks))


@dataclass(frozen=True, slots=True)
class Edge:
    """Where the rows of one stream go.

    Attributes:
        target: The component that reads them.
        given: Its subscription: source, stream, grouping.
        is_local: Source and target share their tasks: the rows stay.
        tasks: Number of tasks of the target.
        as_arrow: Rows must travel as Arrow with the declared types.
    """

    target: str
    given: Input
    is_local: bool
    tasks: int
    as_arrow: bool


@dataclass(frozen=True)
class Wave:
    """Stages that run side by side: what they read is there when the wave begins."""

    placement: Placement
    stages: tuple[Stage, ...]

    @cached_property
    def task_ids(self) -> tuple[TaskId, ...]:
        """All tasks of the wave; the position is the partition that runs it."""
        return tuple(task for stage in self.stages for task in stage.task_ids)

    @cached_property
    def partitions(self) -> Mapping[TaskId, int]:
        """The partition that runs each task."""
        return {task: number for number, task in enumerate(self.task_ids)}


@dataclass(frozen=True)
class PhysicalPlan:
    """Everything a task must know; immutable, and small when pickled.

    Attributes:
        graph: The components.
        phases: In which phase and order they finish.
        stages: By name, in graph order.
        processing: Waves of the processing phase, in order.
        commit: Waves of the commit phase, in order.
        dumps: Pickles what a committer on an executor knows between the phases.
        settings: Of the topology, for ``TaskContext``.
    """

    graph: Graph
    phases: Phases
    stages: Mapping[str, Stage]
    processing: tuple[Wave, ...]
    commit: tuple[Wave, ...]
    dumps: Dumps = pickle.dumps
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def stage_of(self) -> Mapping[str, Stage]:
        """The stage of each component."""
        return {name: s for s in self.stages.values() for name in s.components}

    @cached_property
    def edges(self) -> Mapping[str, tuple[Edge, ...]]:
        """For each component, where its rows go."""
        return {
            name: tuple(self._edge(name, target, given) for target, given in pairs)
            for name, pairs in self.graph.readers.items()
        }

    def _edge(self, source: str, target: Component, given: Input) -> Edge:
        stage = self.stage_of[target.name]
        return Edge(
            target.name,
            given,
            is_local=self.stage_of[source] == stage,
            tasks=stage.tasks,
            as_arrow=target.kind is ComponentKind.DATAFRAME,
        )

    def phase_of(self, component: str) -> Phase:
        """The phase in which a component finishes."""
        return self.phases.of(component)
