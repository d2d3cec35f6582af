"""What users declare on a builder, and how it becomes components."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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
from kafka_tx.topology.declare.graph import Component, ComponentKind, Input, Placement
from kafka_tx.topology.declare.groupings import Grouping, GroupingKind
from kafka_tx.topology.declare.templates import Dumps, template_of
from kafka_tx.topology.rows.fields import DEFAULT_STREAM, Fields, FieldsLike

_NAME = re.compile(r"(?!__)[A-Za-z0-9_.\-]{1,100}")

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
    is_spout: bool = False
    as_committer: bool = False
    inputs: list[Input] = field(default_factory=list)
    placement: Placement | None = None


class BoltDeclarer:
    """Returned by ``set_bolt``: says what the bolt reads. Every call returns it again.

    A bolt may have several groupings, also several on one source.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def shuffle_grouping(
        self, source: str, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Each row to one task, in equal shares.

        Narrow (no exchange) when the source has at least as many tasks.
        """
        return self._add(source, stream, GroupingKind.SHUFFLE)

    def fields_grouping(
        self, source: str, fields: Iterable[str], stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Rows with equal values in these fields to the same task."""
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        return self._add(source, stream, GroupingKind.FIELDS, names)

    def global_grouping(
        self, source: str, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """All rows to the first task."""
        return self._add(source, stream, GroupingKind.GLOBAL)

    def all_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Each row to every task."""
        return self._add(source, stream, GroupingKind.ALL)

    def local_or_shuffle_grouping(
        self, source: str, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Each row stays in the task that emitted it; without one there, as shuffle."""
        return self._add(source, stream, GroupingKind.LOCAL_OR_SHUFFLE)

    def on_driver(self) -> BoltDeclarer:
        """Run all tasks of the bolt on the driver."""
        self._draft.placement = Placement.DRIVER
        return self

    def on_executors(self) -> BoltDeclarer:
        """Run all tasks of the bolt on executors.

        A committer's instances are then pickled between the phases.
        """
        self._draft.placement = Placement.EXECUTORS
        return self

    def _add(
        self, source: str, stream: str, kind: GroupingKind, fields: tuple[str, ...] = ()
    ) -> BoltDeclarer:
        self._draft.inputs.append(Input(source, Grouping(kind, fields), stream))
        return self


def component_of(
    draft: Draft, legal: Iterable[ComponentKind], dumps: Dumps
) -> tuple[Component, list[str]]:
    """The component a draft stands for, and all that is wrong with it.

    Args:
        draft: What was declared.
        legal: Kinds of bolts this topology can have.
        dumps: Pickles user code.
    """
    problems = name_problems(draft.name)
    component = Component(draft.name, ComponentKind.BASIC, draft.parallelism)
    try:
        component = _bolt_component(draft, legal, dumps)
    except ConfigError as error:
        problems.append(_about(draft.name, error.message))
    return component, problems


def name_problems(name: object) -> list[str]:
    """What is wrong with a component's name."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return []
    return [
        f"component {name!r}: illegal name; legal: 1 to 100 of the characters"
        " A-Z a-z 0-9 . _ -, not beginning with '__'."
    ]


def outputs_of(
    fields: FieldsLike, streams: Mapping[str, FieldsLike]
) -> dict[str, Fields]:
    """Fields by stream; the default stream only when it has fields.

    Raises:
        ConfigError: Fields are declared in no legal form, or a stream without any.
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
    return Component(
        draft.name,
        _kind_of(probe, draft, legal),
        draft.parallelism,
        tuple(draft.inputs),
        outputs_of(probe.fields, probe.streams),
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


def _names(kinds: Iterable[ComponentKind]) -> str:
    return ", ".join(kinds)


def _about(name: str, message: str) -> str:
    prefix = f"component '{name}'"
    return message if message.startswith(prefix) else f"{prefix}: {message}"
