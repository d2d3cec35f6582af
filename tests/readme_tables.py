"""The tables of the README, as tests read them."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
_FOOTNOTE = re.compile("[¹²³⁴⁵⁶⁷⁸⁹⁰]")

Row = dict[str, str]
"""The cells of a row by the names of their columns; marks of footnotes left out."""


def table(first_column: str) -> dict[str, Row]:
    """The rows of the table whose first column has this name, by their first cell."""
    lines = README.read_text(encoding="utf-8").splitlines()
    begin = next(
        n for n, line in enumerate(lines) if line.startswith(f"| {first_column} |")
    )
    columns = _cells(lines[begin])[1:]
    rows = {}
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = _cells(line)
        rows[name] = dict(zip(columns, cells, strict=True))
    return rows


def _cells(line: str) -> list[str]:
    return [_FOOTNOTE.sub("", cell).strip() for cell in line.strip("| ").split(" | ")]
