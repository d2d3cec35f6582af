"""The physical plan as data (stages, edges, waves), made from a topology's graph."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
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
from kafka_tx.topology.declare.groupings import GroupingKind
from kafka_tx.topology.declare.templates import Dumps
from kafka_tx.topology.rows.fields import DEFAULT_STREAM


class Phase(StrEnum):
    """The two parts of the life of an attempt."""

    PROCESSING = "processing"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class Phases:
    """The order in which components finish, ``finish_batch`` of batch bolts included.

    Attributes:
        processing: Spout first, then bolts, sources before their readers.
        commit: First the committers without a committer before them, in graph order;
            then all components after them, sources before their readers.
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
        name: The name of its first component.
        components: Sources before their readers.
        tasks: How many tasks run it; 1 for a DataFrame stage.
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
    """The way of the rows of one stream to one component.

    Attributes:
        is_local: Source and target share their tasks: the rows stay.
        tasks: Number of tasks of the target.
        as_arrow: Rows must be sent as Arrow with the declared types.
    """

    target: str
    given: Input
    is_local: bool
    tasks: int
    as_arrow: bool


@dataclass(frozen=True)
class Wave:
    """Stages that run side by side: their input exists when the wave begins."""

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
        stages: By name, in graph order.
        processing, commit: Waves of the two phases, in order.
        dumps: Pickles committers on executors between the phases, and rows that may not
            be picklable.
        settings: The topology's settings, for ``TaskContext``.
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
        """For each component, the edges of its rows."""
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


_RUNS = {
    Placement.EXECUTORS: "on executors",
    Placement.DRIVER: "on the driver",
    Placement.DATAFRAME: "in Spark's own plan",
}


def describe(plan: PhysicalPlan) -> str:
    """The components, the two phases and where everything runs, as lines of text."""
    lines = [f"topology {plan.graph.id}", *_components(plan), "processing phase"]
    return "\n".join([*lines, *_processing(plan), *_commit(plan)])


def _components(plan: PhysicalPlan) -> Iterator[str]:
    width = max(len(component.name) for component in plan.graph.components)
    for component in plan.graph.components:
        outputs = "; ".join(
            str(fields) if stream == DEFAULT_STREAM else f"{stream}: {fields}"
            for stream, fields in component.outputs.items()
        )
        emits = f" → {outputs}" if outputs else ""
        yield f"  {component.name:<{width}}  {component.kind}{emits}"
        for given in component.inputs:
            yield f"  {'':<{width}}    {given}"


def _processing(plan: PhysicalPlan) -> Iterator[str]:
    for number, wave in enumerate(plan.processing, 1):
        for stage in wave.stages:
            yield f"  {number}. {_runs(stage)}: {', '.join(_work(stage, plan))}"


def _work(stage: Stage, plan: PhysicalPlan) -> Iterator[str]:
    """The stage's components, with their part in the commit phase."""
    for name in stage.components:
        if plan.phases.of(name) is Phase.PROCESSING:
            yield name
        elif any(
            plan.phases.of(source) is Phase.PROCESSING
            for source in plan.graph.by_name[name].sources
        ):
            yield f"{name} (execute only)"


def _commit(plan: PhysicalPlan) -> Iterator[str]:
    if not plan.phases.commit:
        yield "commit phase: nothing to do"
        return
    yield "commit phase, in txid order"
    for number, name in enumerate(plan.phases.commit, 1):
        component = plan.graph.by_name[name]
        what = "finish" if component.kind is not ComponentKind.COMMITTER else "commit"
        yield f"  {number}. {_runs(plan.stage_of[name])}: {what} {name}"


def _runs(stage: Stage) -> str:
    if stage.placement is Placement.DATAFRAME:
        return _RUNS[stage.placement]
    tasks = "1 task" if stage.tasks == 1 else f"{stage.tasks} tasks"
    return f"{_RUNS[stage.placement]}, {tasks}"


def mermaid(plan: PhysicalPlan) -> str:
    """A Mermaid flowchart: a box for each phase, committers with doubled borders."""
    ids = {c.name: f"c{number}" for number, c in enumerate(plan.graph.components)}
    lines = ["flowchart LR"]
    for phase, names in (
        (Phase.PROCESSING, plan.phases.processing),
        (Phase.COMMIT, plan.phases.commit),
    ):
        if not names:
            continue
        lines.append(f'  subgraph {phase}["{phase} phase"]')
        for name in names:
            component = plan.graph.by_name[name]
            lines.append(f"    {ids[name]}{_shape(component, plan)}")
        lines.append("  end")
    for component in plan.graph.components:
        for given in component.inputs:
            arrow = f'-- "{_label(given.grouping, given.stream)}" -->'
            lines.append(f"  {ids[given.source]} {arrow} {ids[component.name]}")
    return "\n".join(lines) + "\n"


def _shape(component: Component, plan: PhysicalPlan) -> str:
    stage = plan.stage_of[component.name]
    label = f'"{component.name}<br/>{component.kind}, {_runs(stage)}"'
    if component.kind is ComponentKind.SPOUT:
        return f"([{label}])"
    if component.kind is ComponentKind.COMMITTER:
        return f"[[{label}]]"
    return f"[{label}]"


def _label(grouping: object, stream: str) -> str:
    return str(grouping) if stream == DEFAULT_STREAM else f"{stream}: {grouping}"


_ORDER = (Placement.EXECUTORS, Placement.DATAFRAME, Placement.DRIVER)


def processing_waves(
    graph: Graph, phases: Phases, stages: Mapping[str, Stage]
) -> tuple[Wave, ...]:
    """Waves of executors while they have work, then of DataFrames, then the driver."""
    waiting = [s for s in stages.values() if _works_in_processing(s, graph, phases)]
    above = _stages_above(graph, stages, phases.processing)
    waves = []
    while waiting:
        names = {stage.name for stage in waiting}
        ready = [stage for stage in waiting if not above[stage.name] & names]
        placement = next(p for p in _ORDER if any(s.placement is p for s in ready))
        wave = tuple(stage for stage in ready if stage.placement is placement)
        waves.append(Wave(placement, wave))
        waiting = [stage for stage in waiting if stage not in wave]
    return tuple(waves)


def _works_in_processing(stage: Stage, graph: Graph, phases: Phases) -> bool:
    """Whether any of its components finishes, or is given rows, before the commit."""
    if stage.placement is Placement.DATAFRAME:
        return any(name in phases.processing for name in stage.components)
    return any(
        name in phases.processing
        or any(source in phases.processing for source in graph.by_name[name].sources)
        for name in stage.components
    )


def commit_waves(
    graph: Graph, phases: Phases, stages: Mapping[str, Stage]
) -> tuple[Wave, ...]:
    """Waves in the order of ``phases.commit``; neighbours share one if possible."""
    stage_of = {name: each for each in stages.values() for name in each.components}
    above = _stages_above(graph, stages, phases.commit)
    waves: list[Wave] = []
    for stage in dict.fromkeys(stage_of[name] for name in phases.commit):
        last = waves[-1] if waves else None
        if (
            last is not None
            and last.placement is stage.placement
            and not above[stage.name] & {other.name for other in last.stages}
        ):
            waves[-1] = Wave(last.placement, (*last.stages, stage))
        else:
            waves.append(Wave(stage.placement, (stage,)))
    return tuple(waves)


def _stages_above(
    graph: Graph, stages: Mapping[str, Stage], sources: tuple[str, ...]
) -> dict[str, set[str]]:
    """For each stage, the other stages that send it rows from these components."""
    stage_of = {
        name: stage.name for stage in stages.values() for name in stage.components
    }
    return {
        stage.name: {
            stage_of[source]
            for name in stage.components
            for source in graph.by_name[name].sources
            if source in sources
        }
        - {stage.name}
        for stage in stages.values()
    }


_NARROW = (GroupingKind.SHUFFLE, GroupingKind.LOCAL_OR_SHUFFLE)


def plan_of(graph: Graph, dumps: Dumps = pickle.dumps) -> PhysicalPlan:
    """Make the physical plan of a graph. The same graph gives the same plan."""
    phases = phases_of(graph)
    stages = _stages(graph, phases)
    given = graph, phases, stages
    waves = processing_waves(*given), commit_waves(*given)
    return PhysicalPlan(*given, *waves, dumps)


# --- stages ---------------------------------------------------------------------------


def _stages(graph: Graph, phases: Phases) -> dict[str, Stage]:
    stages: dict[str, Stage] = {}
    stage_of: dict[str, str] = {}
    for component in graph.components:
        above = {stage_of[source] for source in component.sources}
        upstream = stages[above.pop()] if len(above) == 1 else None
        stage = _stage_for(component, upstream, phases)
        stages[stage.name] = stage
        stage_of[component.name] = stage.name
    return stages


def _stage_for(component: Component, upstream: Stage | None, phases: Phases) -> Stage:
    """The stage of its sources with this component added, or one of its own."""
    wanted = _wanted_placement(component, phases)
    if upstream is not None and wanted in (None, upstream.placement):
        if wanted is Placement.DRIVER and phases.of(component.name) is Phase.COMMIT:
            upstream = None
        elif _fits(component, upstream):
            names = (*upstream.components, component.name)
            return Stage(upstream.name, names, upstream.tasks, upstream.placement)
    is_frame = component.kind is ComponentKind.DATAFRAME
    tasks = 1 if is_frame else component.tasks
    usual = Placement.DRIVER if tasks == 1 else Placement.EXECUTORS
    return Stage(component.name, (component.name,), tasks, wanted or usual)


def _wanted_placement(component: Component, phases: Phases) -> Placement | None:
    """Where the component must run; None: where its sources run, if that fits."""
    if component.kind is ComponentKind.DATAFRAME:
        return Placement.DATAFRAME
    if component.placement is not None:
        return component.placement
    if component.kind is ComponentKind.SPOUT:
        return Placement.EXECUTORS
    if phases.of(component.name) is Phase.COMMIT and component.tasks == 1:
        return Placement.DRIVER
    return None


def _fits(component: Component, upstream: Stage) -> bool:
    is_frame = component.kind is ComponentKind.DATAFRAME
    if is_frame or upstream.placement is Placement.DATAFRAME:
        return is_frame and upstream.placement is Placement.DATAFRAME
    if upstream.tasks == 1 and component.tasks == 1:
        return True
    ends_batch = component.kind in (ComponentKind.BATCH, ComponentKind.COMMITTER)
    if component.tasks == 1 and ends_batch:
        return False
    return all(_is_narrow(given, component, upstream) for given in component.inputs)


def _is_narrow(given: Input, component: Component, upstream: Stage) -> bool:
    kind = given.grouping.kind
    return kind in _NARROW and (
        kind is GroupingKind.LOCAL_OR_SHUFFLE or component.tasks <= upstream.tasks
    )
