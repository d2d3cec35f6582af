"""Shared by both topology builders: turns declarations into a checked, immutable plan.

The two builders are in ``kafka_tx.spark``, because their topologies start Spark jobs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kafka_tx.config import check_id, never_runs
from kafka_tx.errors import ConfigError
from kafka_tx.topology.declare.bolts import (
    BasicBolt,
    BatchBolt,
    Bolt,
    DataFrameBolt,
    RichBolt,
    does_something,
    reads_arrow,
)
from kafka_tx.topology.declare.graph import (
    Component,
    ComponentKind,
    Graph,
    Input,
    Placement,
    checked_graph,
)
from kafka_tx.topology.declare.groupings import Grouping, GroupingKind
from kafka_tx.topology.declare.templates import Dumps, pickled, template_of
from kafka_tx.topology.plan.physical import PhysicalPlan, describe, mermaid, plan_of
from kafka_tx.topology.rows.fields import DEFAULT_STREAM, Fields, FieldsLike

_NAME = re.compile(r"(?!__)[A-Za-z0-9_.\-]{1,100}")

_METHODS = ("prepare", "execute", "execute_arrow", "finish_batch", "cleanup")
"""What tasks call of a bolt, and ignore the result of."""

_KINDS: Mapping[type[Bolt], ComponentKind] = {
    BasicBolt: ComponentKind.BASIC,
    BatchBolt: ComponentKind.BATCH,
    DataFrameBolt: ComponentKind.DATAFRAME,
    RichBolt: ComponentKind.RICH,
}


@dataclass(slots=True)
class Draft:
    """A component as declared so far."""

    name: str
    given: object
    parallelism: int | None
    as_committer: bool = False
    inputs: list[Input] = field(default_factory=list)
    placement: Placement | None = None


class BoltDeclarer:
    """Declares the inputs of a bolt. ``set_bolt`` and every method return it.

    A bolt may have several groupings, also several on one source.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def shuffle_grouping(
        self, source: str, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Send each row to one task, in equal shares.

        Needs no exchange if the source has at least as many tasks as the bolt.
        """
        return self._add(source, stream, GroupingKind.SHUFFLE)

    def fields_grouping(
        self, source: str, fields: Iterable[str], stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Send rows with equal values in these fields to the same task."""
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        return self._add(source, stream, GroupingKind.FIELDS, names)

    def global_grouping(
        self, source: str, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Send all rows to the first task."""
        return self._add(source, stream, GroupingKind.GLOBAL)

    def all_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send each row to every task."""
        return self._add(source, stream, GroupingKind.ALL)

    def local_or_shuffle_grouping(
        self, source: str, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Keep each row in the task that emitted it; if the bolt has none: shuffle."""
        return self._add(source, stream, GroupingKind.LOCAL_OR_SHUFFLE)

    def on_driver(self) -> BoltDeclarer:
        """Run all tasks of the bolt on the driver."""
        self._draft.placement = Placement.DRIVER
        return self

    def on_executors(self) -> BoltDeclarer:
        """Run all tasks of the bolt on executors.

        Instances of a committer are then pickled between the two phases.
        """
        self._draft.placement = Placement.EXECUTORS
        return self

    def _add(
        self, source: str, stream: str, kind: GroupingKind, fields: tuple[str, ...] = ()
    ) -> BoltDeclarer:
        self._draft.inputs.append(Input(source, Grouping(kind, fields), stream))
        return self


@dataclass(frozen=True)
class Topology:
    """A checked topology with its physical plan; immutable.

    Attributes:
        id: Names the stored state; keep it the same over restarts.
        plan: Sent to the tasks: graph, phases, stages, waves.
    """

    id: str
    plan: PhysicalPlan

    @property
    def graph(self) -> Graph:
        """The components and their groupings."""
        return self.plan.graph

    def describe(self) -> str:
        """The graph, its phases and its stages as text."""
        return describe(self.plan)

    def explain(self, mode: str = "text") -> str:
        """The graph as ``text``, the same as ``describe``, or as ``mermaid``.

        Raises:
            ConfigError: ``mode`` is neither of them.
        """
        forms = {"text": describe, "mermaid": mermaid}
        if mode not in forms:
            raise ConfigError.illegal("mode", mode, "'text' or 'mermaid'")
        return forms[mode](self.plan)


class Builder:
    """Declares bolts and their groupings, for both kinds of topologies.

    Args:
        topology_id: Names the stored state: 1 to 200 characters ``A-Z a-z 0-9 . _ -``.
            Keep it the same over restarts.

    Raises:
        ConfigError: Illegal id.
    """

    _legal: tuple[ComponentKind, ...]

    def __init__(self, topology_id: str) -> None:
        self._id = check_id(topology_id, "topology id")
        self._bolts: list[Draft] = []

    def set_bolt(
        self, name: str, bolt: object, parallelism: int | None = None
    ) -> BoltDeclarer:
        """Add a bolt. Declare its inputs on the returned object.

        Args:
            name: Unique in the topology.
            bolt: A bolt class, a function that makes a bolt, or a bolt to be copied.
            parallelism: Number of tasks. None: as many as its source has, but one for
                committers and after a global grouping.
        """
        return self._add(Draft(name, bolt, parallelism))

    def _add(self, draft: Draft) -> BoltDeclarer:
        self._bolts.append(draft)
        return BoltDeclarer(draft)

    def _plan(
        self, spouts: Iterable[Component], problems: list[str], dumps: Dumps
    ) -> PhysicalPlan:
        components = list(spouts)
        for draft in self._bolts:
            component, found = _component_of(draft, self._legal, dumps)
            components.append(replace(component, inputs=tuple(draft.inputs)))
            problems += found
        return plan_of(checked_graph(self._id, components, problems), dumps)


def spout_component(
    name: str,
    fields: FieldsLike,
    parallelism: int,
    travels: Callable[[], object],
    dumps: Dumps,
) -> tuple[Component, list[str]]:
    """The component of a spout, and every problem of its declaration."""
    problems = _name_problems(name)
    try:
        pickled(name, travels(), dumps)
    except ConfigError as error:
        problems.append(error.message)
    outputs: dict[str, Fields] = {}
    try:
        outputs = _outputs_of(fields, {})
    except ConfigError as error:
        problems.append(f"component '{name}': {error.message}")
    else:
        if not outputs:
            problems.append(f"component '{name}': the spout declares no fields.")
    return Component(name, ComponentKind.SPOUT, parallelism, outputs=outputs), problems


def _component_of(
    draft: Draft, legal: Iterable[ComponentKind], dumps: Dumps
) -> tuple[Component, list[str]]:
    """The component that a draft declares, and every problem of it.

    Args:
        draft: The declaration.
        legal: Kinds of bolts that this topology can have.
        dumps: Pickles user code.
    """
    problems = _name_problems(draft.name)
    component = Component(draft.name, ComponentKind.BASIC, draft.parallelism)
    try:
        component = _bolt_component(draft, legal, dumps)
    except ConfigError as error:
        problems.append(_about(draft.name, error.message))
    return component, problems


def _name_problems(name: object) -> list[str]:
    """Problems of a component's name; empty if the name is legal."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return []
    return [
        f"component {name!r}: illegal name; legal: 1 to 100 of the characters"
        " A-Z a-z 0-9 . _ -, not beginning with '__'."
    ]


def _outputs_of(
    fields: FieldsLike, streams: Mapping[str, FieldsLike]
) -> dict[str, Fields]:
    """Fields by stream, with the default stream only if it has fields.

    Raises:
        ConfigError: The form of the fields is illegal, or a named stream has none.
    """
    found = {}
    default = Fields.parse(fields)
    if default.names:
        found[DEFAULT_STREAM] = default
    for stream, declared in streams.items():
        found[stream] = Fields.parse(declared)
        if not found[stream].names:
            raise ConfigError.illegal(
                "streams", stream, "streams with at least one field each"
            )
    return found


def _bolt_component(
    draft: Draft, legal: Iterable[ComponentKind], dumps: Dumps
) -> Component:
    template = template_of(draft.name, draft.given, dumps)
    try:
        probe = template.new()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"its bolt cannot be made: {type(error).__name__}: {error}. A class is"
            " called without arguments; give a bolt, or a function that makes one."
        ) from error
    kind = _kind_of(probe, draft, legal)
    _check_methods(probe)
    return Component(
        draft.name,
        kind,
        draft.parallelism,
        tuple(draft.inputs),
        _outputs_of(probe.fields, probe.streams),
        template,
        reads_arrow(probe),
        draft.placement,
    )


def _kind_of(bolt: Bolt, draft: Draft, legal: Iterable[ComponentKind]) -> ComponentKind:
    kinds = [k for base, k in _KINDS.items() if isinstance(bolt, base)]
    if not kinds:
        raise ConfigError(
            f"{type(bolt).__name__} is none of {_names(_KINDS.values())}."
        )
    kind = next((k for k in kinds if k in legal), kinds[0])
    if draft.as_committer or bolt.committer:
        if ComponentKind.COMMITTER not in legal:
            raise ConfigError(
                f"a committer cannot be used in this topology; legal: {_names(legal)}."
            )
        if kind is not ComponentKind.BATCH:
            raise ConfigError(
                f"a committer must be a batch bolt, and {type(bolt).__name__} is a"
                f" {kind}; subclass BatchBolt."
            )
        kind = ComponentKind.COMMITTER
    if kind not in legal:
        raise ConfigError(
            f"a {kind} cannot be used in this topology; legal: {_names(legal)}."
        )
    if not does_something(bolt):
        raise ConfigError(
            f"{type(bolt).__name__} overrides none of the methods that are given rows"
            " (execute, execute_arrow, transform)."
        )
    return kind


def _check_methods(bolt: Bolt) -> None:
    for name in _METHODS:
        if never_runs(getattr(bolt, name, None)):
            raise ConfigError(
                f"{type(bolt).__name__}.{name} has yield or async, so that a call runs"
                " nothing of it; emit with the collector, and await in asyncio.run()."
            )


def _names(kinds: Iterable[ComponentKind]) -> str:
    return ", ".join(kinds)


def _about(name: str, message: str) -> str:
    prefix = f"component '{name}'"
    return message if message.startswith(prefix) else f"{prefix}: {message}"
