"""The physical plan: which components share a task, who runs it, what is exchanged.

Rules, in this order:

1. A DataFrame bolt belongs to Spark's own plan; DataFrame bolts that read only each
   other share a stage.
2. A component runs where ``.on_driver()`` or ``.on_executors()`` put it.
3. A component of the commit phase with one task runs on the driver, alone in its stage:
   its ``finish_batch`` costs no Spark job.
4. A shuffle or local-or-shuffle grouping is *narrow* when the source has at least as
   many tasks (local-or-shuffle: always): the bolt then runs in the tasks of its source,
   one instance in each of them, and nothing is exchanged. A batch bolt that asks for
   exactly one task gets exactly one: one result for each batch. If a component has
   several sources, all of them must be in that stage.
5. What has one task and is not narrow runs on the driver, to which the rows are
   collected: a global grouping, for example.
6. Everything else begins a stage on the executors, with an exchange before it.

Data only: nothing runs here.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kafka_tx.topology.declare.graph import (
    Component,
    ComponentKind,
    Graph,
    Input,
    Placement,
)
from kafka_tx.topology.declare.groupings import GroupingKind
from kafka_tx.topology.declare.templates import Dumps
from kafka_tx.topology.plan.physical import (
    Phase,
    Phases,
    PhysicalPlan,
    Stage,
    Wave,
    phases_of,
)
from kafka_tx.topology.rows.fields import DEFAULT_STREAM

_RUNS = {
    Placement.EXECUTORS: "on executors",
    Placement.DRIVER: "on the driver",
    Placement.DATAFRAME: "in Spark's own plan",
}


def describe(plan: PhysicalPlan) -> str:
    """The components, the two phases and where everything runs, as lines of text."""
    return "\n".join(
        [
            f"topology {plan.graph.id}",
            *_components(plan),
            "processing phase",
            *_processing(plan),
            *_commit(plan),
        ]
    )


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
    """Its components, with what is left for the commit phase."""
    for name in stage.components:
        if plan.phase_of(name) is Phase.PROCESSING:
            yield name
        elif any(
            plan.phase_of(source) is Phase.PROCESSING
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
    """Executors as long as they have something to do, then Spark's plan, the driver."""
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
    """In the order of ``phases.commit``; neighbours go together if they can."""
    ordered = _in_order_of_first(phases.commit, stages.values())
    above = _stages_above(graph, stages, phases.commit)
    waves: list[Wave] = []
    for stage in ordered:
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


def _in_order_of_first(names: Iterable[str], stages: Iterable[Stage]) -> list[Stage]:
    stage_of = {name: stage for stage in stages for name in stage.components}
    return list(dict.fromkeys(stage_of[name] for name in names))


def _stages_above(
    graph: Graph, stages: Mapping[str, Stage], sources: tuple[str, ...]
) -> dict[str, set[str]]:
    """For each stage the other stages that send it rows; only from these components."""
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


def plan_of(
    graph: Graph,
    dumps: Dumps = pickle.dumps,
    settings: Mapping[str, Any] | None = None,
) -> PhysicalPlan:
    """Make the physical plan of a graph. The same graph gives the same plan."""
    phases = phases_of(graph)
    stages = _stages(graph, phases)
    return PhysicalPlan(
        graph,
        phases,
        stages,
        processing_waves(graph, phases, stages),
        commit_waves(graph, phases, stages),
        dumps,
        settings or {},
    )


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
    """Where it must run; None: where its sources run, if it fits there."""
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
    if component.tasks == 1 and component.kind in (
        ComponentKind.BATCH,
        ComponentKind.COMMITTER,
    ):
        return False
    return all(_is_narrow(given, component, upstream) for given in component.inputs)


def _is_narrow(given: Input, component: Component, upstream: Stage) -> bool:
    kind = given.grouping.kind
    return kind in _NARROW and (
        kind is GroupingKind.LOCAL_OR_SHUFFLE or component.tasks <= upstream.tasks
    )
