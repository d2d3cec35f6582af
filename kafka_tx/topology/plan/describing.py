"""A topology as text and as a Mermaid diagram."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_tx.topology.declare.graph import Component, ComponentKind, Placement
from kafka_tx.topology.plan.phases import Phase
from kafka_tx.topology.plan.physical import PhysicalPlan, Stage
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
