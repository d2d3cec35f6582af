"""``kafka-tx options`` and ``kafka-tx metrics``: the tables of the documentation."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kafka_tx.cli.stores import JsonOption
from kafka_tx.metrics import catalogue
from kafka_tx.options.option_tables import Table


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
