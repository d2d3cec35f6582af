"""Waves: in which order the stages of a plan run, and which of them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_tx.topology.declare.graph import Graph, Placement
from kafka_tx.topology.plan.phases import Phases
from kafka_tx.topology.plan.physical import Stage, Wave

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
