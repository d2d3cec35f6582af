"""Builders: from declarations to checked, immutable topologies."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from kafka_tx.config import check_id
from kafka_tx.errors import ConfigError
from kafka_tx.topology.at_least_once.records import RecordSpout
from kafka_tx.topology.declare.declaring import (
    BoltDeclarer,
    Draft,
    component_of,
    name_problems,
    outputs_of,
)
from kafka_tx.topology.declare.graph import (
    Component,
    ComponentKind,
    Graph,
    checked_graph,
)
from kafka_tx.topology.declare.spouts import Spout
from kafka_tx.topology.declare.templates import Dumps, pickled
from kafka_tx.topology.plan.physical import PhysicalPlan, describe, mermaid, plan_of
from kafka_tx.topology.rows.fields import Fields, FieldsLike


@dataclass(frozen=True)
class Topology:
    """A checked topology with its physical plan; immutable.

    Attributes:
        id: Names its state; stays the same over restarts.
        plan: What tasks are sent: graph, phases, stages, waves.
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
        """The graph as ``text`` (as ``describe``) or as ``mermaid``.

        Raises:
            ConfigError: Another mode.
        """
        forms = {"text": describe, "mermaid": mermaid}
        if mode not in forms:
            raise ConfigError.illegal("mode", mode, "'text' or 'mermaid'")
        return forms[mode](self.plan)


@dataclass(frozen=True)
class TransactionalTopology(Topology):
    """A topology of numbered batches.

    Attributes:
        spout_name: The spout's component name.
        spout: The user's spout; stays on the driver.
    """

    spout_name: str
    spout: Spout


@dataclass(frozen=True)
class AtLeastOnceTopology(Topology):
    """A topology that replays single records.

    Attributes:
        spouts: The user's spouts by component name; they stay on the driver.
    """

    spouts: Mapping[str, RecordSpout]


class _Builder:
    """Bolts and their groupings: what both builders share."""

    _legal: tuple[ComponentKind, ...]

    def __init__(self, topology_id: str) -> None:
        self._id = check_id(topology_id, "topology id")
        self._bolts: list[Draft] = []

    def set_bolt(
        self, name: str, bolt: object, parallelism: int | None = None
    ) -> BoltDeclarer:
        """Add a bolt; what it reads is said on the result.

        Args:
            name: Unique in the topology.
            bolt: A bolt class, a function that makes a bolt, or a bolt to be copied.
            parallelism: How many tasks; None: as many as its source has, but one for
                committers and below a global grouping.
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
            component, found = component_of(draft, self._legal, dumps)
            components.append(replace(component, inputs=tuple(draft.inputs)))
            problems += found
        return plan_of(checked_graph(self._id, components, problems), dumps)


class TransactionalTopologyBuilder(_Builder):
    """Declares a topology of numbered batches with one spout.

    Args:
        topology_id: Names the state: txids and metadata. 1 to 200 of the characters
            ``A-Z a-z 0-9 . _ -``; the same over restarts.
        spout_name: The spout's component name.
        spout: A transactional, partitioned or opaque spout.
        parallelism: Tasks that read it.

    Raises:
        ConfigError: Illegal id. ``build`` reports all else that is wrong.

    Source: Storm, TransactionalTopologyBuilder.
    """

    _legal = (
        ComponentKind.BASIC,
        ComponentKind.BATCH,
        ComponentKind.COMMITTER,
        ComponentKind.DATAFRAME,
    )

    def __init__(
        self, topology_id: str, spout_name: str, spout: Spout, parallelism: int = 1
    ) -> None:
        super().__init__(topology_id)
        self._spout_name = spout_name
        self._spout = spout
        self._parallelism = parallelism

    def set_committer_bolt(
        self, name: str, bolt: object, parallelism: int | None = None
    ) -> BoltDeclarer:
        """Add a batch bolt whose ``finish_batch`` belongs to the commit phase.

        The same as ``set_bolt`` with a bolt that is marked as a committer. One task
        unless ``parallelism`` says more.
        """
        return self._add(Draft(name, bolt, parallelism, as_committer=True))

    def build(self, dumps: Dumps = pickle.dumps) -> TransactionalTopology:
        """Check everything and plan it. The builder may be used further.

        Args:
            dumps: Pickles user code; what it makes, ``pickle.loads`` must read.

        Raises:
            ConfigError: Lists all that is wrong, with the components' names.
        """
        spout, problems = self._spout_component(dumps)
        plan = self._plan([spout], problems, dumps)
        return TransactionalTopology(self._id, plan, self._spout_name, self._spout)

    def _spout_component(self, dumps: Dumps) -> tuple[Component, list[str]]:
        name = self._spout_name
        spout: object = self._spout
        if not isinstance(spout, Spout):
            problem = (
                f"component '{name}': {spout!r} is no transactional spout; subclass"
                " TransactionalSpout, PartitionedTransactionalSpout or"
                " OpaquePartitionedTransactionalSpout."
            )
            return Component(name, ComponentKind.SPOUT, self._parallelism), [problem]
        return _spout_component(
            name, spout.fields, self._parallelism, spout.empty_batch, dumps
        )


class TopologyBuilder(_Builder):
    """Declares an at-least-once topology: each record is replayed on its own.

    Args:
        topology_id: Names the state: committed offsets. 1 to 200 of the characters
            ``A-Z a-z 0-9 . _ -``; the same over restarts.

    Raises:
        ConfigError: Illegal id. ``build`` reports all else that is wrong.

    Source: Storm, TopologyBuilder (deviates: bolts are made anew for each chunk of
    records; what a bolt raises fails the row instead of ending the worker).
    """

    _legal = (ComponentKind.BASIC, ComponentKind.RICH)

    def __init__(self, topology_id: str) -> None:
        super().__init__(topology_id)
        self._spouts: list[tuple[str, RecordSpout, int]] = []

    def set_spout(self, name: str, spout: RecordSpout, parallelism: int = 1) -> None:
        """Add a spout, read by so many tasks."""
        self._spouts.append((name, spout, parallelism))

    def build(self, dumps: Dumps = pickle.dumps) -> AtLeastOnceTopology:
        """Check everything and plan it. The builder may be used further.

        Args:
            dumps: Pickles user code; what it makes, ``pickle.loads`` must read.

        Raises:
            ConfigError: Lists all that is wrong, with the components' names.
        """
        problems = [] if self._spouts else ["the topology has no spout."]
        components = []
        for name, spout, parallelism in self._spouts:
            component, found = _spout_component(
                name, spout.fields, parallelism, spout.empty_chunk, dumps
            )
            components.append(component)
            problems += found
        plan = self._plan(components, problems, dumps)
        spouts = {name: spout for name, spout, _ in self._spouts}
        return AtLeastOnceTopology(self._id, plan, spouts)


def _spout_component(
    name: str,
    fields: FieldsLike,
    parallelism: int,
    travels: Callable[[], object],
    dumps: Dumps,
) -> tuple[Component, list[str]]:
    """The component of a spout, and all that is wrong with its declaration."""
    problems = name_problems(name)
    try:
        pickled(name, travels(), dumps)
    except ConfigError as error:
        problems.append(error.message)
    outputs: dict[str, Fields] = {}
    try:
        outputs = outputs_of(fields, {})
    except ConfigError as error:
        problems.append(f"component '{name}': {error.message}")
    else:
        if not outputs:
            problems.append(f"component '{name}': the spout declares no fields.")
    return Component(name, ComponentKind.SPOUT, parallelism, outputs=outputs), problems
