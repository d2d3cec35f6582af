"""The graph of a topology: components, their output and their inputs.

A graph is always checked: building one reports every problem of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from kafka_tx.errors import ConfigError
from kafka_tx.topology.declare.groupings import Grouping, GroupingKind
from kafka_tx.topology.declare.templates import Template
from kafka_tx.topology.rows.fields import DEFAULT_STREAM, Fields


class ComponentKind(StrEnum):
    """The kinds of components."""

    SPOUT = "spout"
    BASIC = "basic bolt"
    BATCH = "batch bolt"
    COMMITTER = "committer"
    DATAFRAME = "DataFrame bolt"
    RICH = "rich bolt"


class Placement(StrEnum):
    """Who runs the tasks of a component."""

    EXECUTORS = "executors"
    DRIVER = "driver"
    DATAFRAME = "Spark's own plan"


@dataclass(frozen=True, slots=True)
class Input:
    """One subscription of a bolt: a stream of another component, and its grouping."""

    source: str
    grouping: Grouping
    stream: str = DEFAULT_STREAM

    def __str__(self) -> str:
        stream = "" if self.stream == DEFAULT_STREAM else f" stream '{self.stream}'"
        return f"{self.grouping} from '{self.source}'{stream}"


@dataclass(frozen=True, slots=True)
class Component:
    """One spout or bolt.

    Attributes:
        name: Unique in its topology.
        parallelism: Requested tasks; None: as many as its source has, but one for
            committers and after a global grouping. Never None in a graph.
        inputs: Its groupings, in the order declared; empty for a spout.
        outputs: Fields by stream; the default stream only if it has fields.
        template: Makes the bolt; None for spouts.
        reads_arrow: Whether the bolt takes record batches instead of rows.
        placement: Where the user wants it to run; None: the physical plan decides.
    """

    name: str
    kind: ComponentKind
    parallelism: int | None = None
    inputs: tuple[Input, ...] = ()
    outputs: Mapping[str, Fields] = field(default_factory=dict)
    template: Template | None = None
    reads_arrow: bool = False
    placement: Placement | None = None

    @property
    def tasks(self) -> int:
        """Requested tasks; always known in a graph."""
        assert self.parallelism is not None, self.name
        return self.parallelism

    @property
    def sources(self) -> tuple[str, ...]:
        """The components it reads from, each once."""
        return tuple(dict.fromkeys(given.source for given in self.inputs))


@dataclass(frozen=True)
class Graph:
    """A checked graph; immutable.

    Attributes:
        components: Sources before their readers; apart from that as declared.
    """

    id: str
    components: tuple[Component, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Component]:
        """Components by name, in the same order."""
        return {component.name: component for component in self.components}

    @cached_property
    def readers(self) -> Mapping[str, tuple[tuple[Component, Input], ...]]:
        """The readers of each component with their inputs, in graph order."""
        found: dict[str, list[tuple[Component, Input]]] = {
            component.name: [] for component in self.components
        }
        for component in self.components:
            for given in component.inputs:
                found[given.source].append((component, given))
        return {name: tuple(pairs) for name, pairs in found.items()}

    def fields(self, source: str, stream: str = DEFAULT_STREAM) -> Fields:
        """The declared fields of a stream."""
        return self.by_name[source].outputs[stream]


def checked_graph(
    topology_id: str, components: Iterable[Component], problems: Iterable[str] = ()
) -> Graph:
    """Check everything and put the components, given as declared, in order.

    If single components have ``problems``, the graph is not checked, because it would
    only report the same problems.

    Raises:
        ConfigError: Lists all problems, each line with the component's name: duplicate
            names, missing groupings, unknown sources, streams and fields, groupings
            that do not fit, parallelism, cycles.
    """
    declared = list(components)
    known = {component.name: component for component in declared}
    ordered = _in_order(known)
    found = list(problems) or [
        *_name_problems(declared),
        *(problem for each in declared for problem in _component_problems(each, known)),
        *_cycle_problems(known, {component.name for component in ordered}),
    ]
    if found:
        lines = "\n".join(f"  {problem}" for problem in dict.fromkeys(found))
        raise ConfigError(
            f"topology '{topology_id}' cannot be built:\n{lines}",
            option="topology",
            value=topology_id,
        )
    return Graph(topology_id, _with_parallelism(ordered))


def _name_problems(components: list[Component]) -> list[str]:
    names = [component.name for component in components]
    twice = dict.fromkeys(name for name in names if names.count(name) > 1)
    return [
        f"component '{name}': two components have this name; give one another."
        for name in twice
    ]


def _component_problems(
    component: Component, known: Mapping[str, Component]
) -> list[str]:
    found = []
    parallelism = component.parallelism
    is_int = isinstance(parallelism, int) and not isinstance(parallelism, bool)
    if parallelism is not None and (not is_int or parallelism < 1):
        found.append(f"parallelism is {parallelism!r}; legal: a whole number from 1.")
    if component.kind is not ComponentKind.SPOUT and not component.inputs:
        found.append("no grouping; call e.g. .shuffle_grouping(source) on it.")
    for given in component.inputs:
        found += _input_problems(component, given, known)
    return [f"component '{component.name}': {problem}" for problem in found]


def _input_problems(
    component: Component, given: Input, known: Mapping[str, Component]
) -> list[str]:
    source = known.get(given.source)
    if source is None:
        names = ", ".join(f"'{name}'" for name in known if name != component.name)
        return [f"unknown source '{given.source}'; legal: {names}."]
    if given.stream not in source.outputs:
        streams = ", ".join(f"'{name}'" for name in source.outputs) or "none"
        return [
            f"source '{given.source}' declares no fields for stream '{given.stream}';"
            f" its streams: {streams}."
        ]
    fields = source.outputs[given.stream]
    if component.kind is ComponentKind.DATAFRAME:
        return _dataframe_problems(given, fields)
    return _fields_problems(given, fields)


def _fields_problems(given: Input, fields: Fields) -> list[str]:
    grouping = given.grouping
    if grouping.kind is GroupingKind.FIELDS and not grouping.fields:
        return [f"fields grouping from '{given.source}' names no field."]
    unknown = [name for name in grouping.fields if name not in fields.names]
    if unknown == ["tx"]:
        return [
            "'tx' is the same for all rows of a batch: use .global_grouping instead"
            " of a fields grouping on it."
        ]
    return [
        f"fields grouping on '{name}', which is not a field of '{given.source}';"
        f" legal: {', '.join(fields.names)}."
        for name in unknown
    ]


def _dataframe_problems(given: Input, fields: Fields) -> list[str]:
    found = []
    if given.grouping.kind not in (GroupingKind.SHUFFLE, GroupingKind.LOCAL_OR_SHUFFLE):
        found.append(
            f"a DataFrame bolt spreads its rows itself; legal: .shuffle_grouping"
            f"('{given.source}')."
        )
    if fields.types is None:
        found.append(
            f"a DataFrame bolt needs types: declare the fields of '{given.source}' with"
            f' types, such as "{" string, ".join(fields.names)} string".'
        )
    return found


def _in_order(known: Mapping[str, Component]) -> list[Component]:
    """Sources first, then as declared; without components on or after a cycle."""
    done: dict[str, Component] = {}
    waiting = list(known.values())
    while waiting:
        for component in waiting:
            if all(name in done or name not in known for name in component.sources):
                waiting.remove(component)
                done[component.name] = component
                break
        else:
            break
    return list(done.values())


def _cycle_problems(known: Mapping[str, Component], placed: set[str]) -> list[str]:
    left = {
        name: [s for s in component.sources if s in known and s not in placed]
        for name, component in known.items()
        if name not in placed
    }
    name = next(iter(left), None)
    if name is None:
        return []
    path: list[str] = []
    while name not in path:  # every component left over has a source left over
        path.append(name)
        name = left[name][0]
    cycle = [name, *reversed(path[path.index(name) :])]
    return [f"component '{name}': it is in a cycle: {' → '.join(cycle)}."]


def _with_parallelism(ordered: list[Component]) -> tuple[Component, ...]:
    done: dict[str, Component] = {}
    for each in ordered:
        tasks = each.parallelism or _default(each, done)
        done[each.name] = replace(each, parallelism=tasks)
    return tuple(done.values())


def _default(component: Component, done: Mapping[str, Component]) -> int:
    if component.kind in (ComponentKind.SPOUT, ComponentKind.COMMITTER):
        return 1
    if all(given.grouping.kind is GroupingKind.GLOBAL for given in component.inputs):
        return 1
    return max(done[source].tasks for source in component.sources)
