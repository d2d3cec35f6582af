"""``kafka-tx options`` and ``kafka-tx metrics``: the tables of the documentation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Annotated, Any

import typer

from kafka_tx.cli.stores import JsonOption
from kafka_tx.config import BatchLimits, SinkConfig, SourceConfig, TransactionsConfig
from kafka_tx.metrics import catalogue
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


def options(
    of: Annotated[Table, typer.Argument(help="The table to print.")] = Table.SOURCE,
    as_json: JsonOption = False,
) -> None:
    """Print a table of options, with defaults."""
    _print_table(of.markdown(), as_json=as_json)


def metrics(as_json: JsonOption = False) -> None:
    """Print the table of all metrics."""
    _print_table(catalogue.markdown().rstrip(), as_json=as_json)


def _print_table(markdown: str, *, as_json: bool) -> None:
    if not as_json:
        typer.echo(markdown)
        return
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    names, _, *rows = map(_cells, lines)
    typer.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))


def _cells(line: str) -> list[str]:
    cells = line.strip().strip("|").replace(r"\|", "\0").split("|")
    return [cell.strip().strip("`").replace("\0", "|") for cell in cells]
