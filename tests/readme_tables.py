"""The tables of the README, as tests read them."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
_FOOTNOTE = re.compile("[¹²³⁴⁵⁶⁷⁸⁹⁰]")

Row = dict[str, str]
"""The cells of a row by the names of their columns; marks of footnotes left out."""


def tables(first_column: str) -> list[dict[str, Row]]:
    """The tables whose first column has this name: their rows by their first cell."""
    lines = README.read_text(encoding="utf-8").splitlines()
    return [
        _table(lines[n:])
        for n, line in enumerate(lines)
        if line.startswith(f"| {first_column} |")
    ]


def _table(lines: list[str]) -> dict[str, Row]:
    head, _, *body = takewhile(lambda line: line.startswith("|"), lines)
    columns = _cells(head)[1:]
    rows = {}
    for line in body:
        name, *cells = _cells(line)
        rows[name] = dict(zip(columns, cells, strict=True))
    return rows


def _cells(line: str) -> list[str]:
    return [_FOOTNOTE.sub("", cell).strip() for cell in line.strip("| ").split(" | ")]
