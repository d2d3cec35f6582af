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
from collections.abc import Mapping
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
from kafka_tx.topology.plan.phases import Phase, Phases, phases_of
from kafka_tx.topology.plan.physical import PhysicalPlan, Stage
from kafka_tx.topology.plan.waves import commit_waves, processing_waves

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
