"""The tables of options as the docs show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any

from kafka_tx.config import BatchLimits, SinkConfig, SourceConfig, TransactionsConfig
from kafka_tx.options.table import (
    AT_LEAST_ONCE,
    SINK,
    SOURCE,
    STORMS,
    TOPOLOGY,
    Option,
)
from kafka_tx.options.topology_options import RunnerLimits, TopologySettings
from kafka_tx.topology.declare.spout_config import SpoutConfig
from kafka_tx.transactions.pacing import Pacing


class Table(StrEnum):
    """What a table configures."""

    SOURCE = "source"
    SINK = "sink"
    TOPOLOGY = "topology"
    AT_LEAST_ONCE = "at-least-once"
    SPOUT = "spout"

    def markdown(self) -> str:
        """The table as ``docs/options.md`` has it."""
        if self is Table.SPOUT:
            return SpoutConfig.table().rstrip()
        options, *kinds = _TABLES[self]
        defaults = {name: value for kind in kinds for name, value in _of(kind)}
        first: dict[str, str] = {}
        rows = ["| option | default | what it does |", "| --- | --- | --- |"]
        for option in options:
            wins = first.setdefault(option.field or option.name, option.name)
            sentence, default = option.sentence, option.default
            if wins != option.name:
                sentence = f"{sentence} `{wins}` wins."
            elif not default and defaults.get(option.field) is not None:
                default = str(defaults[option.field]).lower()
            sentence = sentence.replace("|", "\\|")
            rows.append(f"| `{option.name}` | {default or '—'} | {sentence} |")
        return "\n".join(rows)


def _of(kind: type[Any]) -> list[tuple[str, Any]]:
    return [(f.name, f.default) for f in fields(kind) if f.default is not MISSING]


_TABLES: dict[Table, tuple[Sequence[Option], *tuple[type[Any], ...]]] = {
    Table.SOURCE: (SOURCE, SourceConfig, BatchLimits, TransactionsConfig),
    Table.SINK: (SINK, SinkConfig),
    Table.TOPOLOGY: ((*TOPOLOGY, *STORMS), TopologySettings, Pacing),
    Table.AT_LEAST_ONCE: (AT_LEAST_ONCE, RunnerLimits),
}
