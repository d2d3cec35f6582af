"""Every option and setting, in tables that also print themselves for the README."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from kafka_tx.options.sink_table import SINK_OPTIONS
from kafka_tx.options.source_table import OPTIONS, Option
from kafka_tx.options.topology_options import SETTINGS, Setting, TopologySettings
from kafka_tx.store_place import DEFAULT
from kafka_tx.topology.declare.spout_config import SpoutConfig

RECORD_SETTINGS = (
    Option("tx.maxPending", "2", "Spark jobs in flight."),
    Option(
        "tx.chunkRecords",
        "10000",
        "Records of one Spark job, at most; fewer when bolts are slow.",
    ),
    Option("topology.max.spout.pending", "", "Records in flight."),
    Option("tx.deployment", "", "Name in stored offsets, for `ignore_stored_offsets`."),
)
"""Settings of at-least-once topologies, beside or instead of those of all."""


def options_markdown(options: tuple[Option, ...] = OPTIONS) -> str:
    """A table of options for the README."""
    rows = ["| option | default | what it does |", "| --- | --- | --- |"]
    for option in options:
        sentence = option.sentence.replace("|", "\\|")
        rows.append(f"| `{option.name}` | {option.default or '—'} | {sentence} |")
    return "\n".join(rows)


def settings_markdown() -> str:
    """The settings of topologies, as a table for the README."""
    first = {setting.field: setting.name for setting in reversed(SETTINGS)}
    return options_markdown(
        tuple(
            Option(s.name, _default(s), s.sentence)
            if first[s.field] == s.name
            else Option(s.name, "", f"{s.sentence} `{first[s.field]}` wins.")
            for s in SETTINGS
        )
    )


def _default(setting: Setting) -> str:
    if setting.name == "tx.store":
        return DEFAULT
    settings = TopologySettings()
    for holder in (settings, settings.pacing):
        if hasattr(holder, setting.field):
            value = getattr(holder, setting.field)
            return "" if value is None else str(value).lower()
    return ""


class Table(StrEnum):
    """What a table configures."""

    SOURCE = "source"
    SINK = "sink"
    TOPOLOGY = "topology"
    AT_LEAST_ONCE = "at-least-once"
    SPOUT = "spout"

    def markdown(self) -> str:
        """The table as the README has it."""
        return _TABLES[self]()


_TABLES: dict[Table, Callable[[], str]] = {
    Table.SOURCE: options_markdown,
    Table.SINK: lambda: options_markdown(SINK_OPTIONS),
    Table.TOPOLOGY: settings_markdown,
    Table.AT_LEAST_ONCE: lambda: options_markdown(RECORD_SETTINGS),
    Table.SPOUT: lambda: SpoutConfig.table().rstrip(),
}
