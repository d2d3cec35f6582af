"""``kafka-tx options`` and ``kafka-tx metrics``: the tables of the documentation."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from kafka_tx.cli.stores import JsonOption
from kafka_tx.metrics import catalogue
from kafka_tx.option_rows import Option
from kafka_tx.options.sink import SINK
from kafka_tx.options.source import SOURCE
from kafka_tx.options.topology import AT_LEAST_ONCE, STORMS, TOPOLOGY
from kafka_tx.topology.declare.spout_config import SpoutConfig


class Table(StrEnum):
    """The tables of options."""

    SOURCE = "source"
    SINK = "sink"
    TOPOLOGY = "topology"
    AT_LEAST_ONCE = "at-least-once"
    SPOUT = "spout"

    def markdown(self) -> str:
        """The table as ``docs/options.md`` has it."""
        if self is Table.SPOUT:
            return SpoutConfig.table().rstrip()
        first: dict[str, str] = {}
        rows = ["| option | default | what it does |", "| --- | --- | --- |"]
        for option in _TABLES[self]:
            wins = first.setdefault(option.field or option.name, option.name)
            sentence, default = option.sentence, option.default
            if wins != option.name:
                sentence = f"{sentence} `{wins}` wins."
            sentence = sentence.replace("|", "\\|")
            rows.append(f"| `{option.name}` | {default or '—'} | {sentence} |")
        return "\n".join(rows)


_TABLES: dict[Table, Sequence[Option]] = {
    Table.SOURCE: SOURCE,
    Table.SINK: SINK,
    Table.TOPOLOGY: (*TOPOLOGY, *STORMS),
    Table.AT_LEAST_ONCE: AT_LEAST_ONCE,
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
    plain = [re.sub(r"^`([^`]*)`$", r"\1", cell.strip()) for cell in cells]
    return [cell.replace("\0", "|") for cell in plain]
