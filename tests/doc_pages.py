"""README and ``docs/``, as tests read them: tables, Python blocks and links."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
"""What users read."""

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FOR_ALL = re.compile(r"^pytestmark = .*pytest\.mark\.all", re.MULTILINE)
_FOOTNOTE = re.compile("[¹²³⁴⁵⁶⁷⁸⁹⁰]")

Row = dict[str, str]
"""The cells of a row by the names of their columns; marks of footnotes left out."""


def blocks(page: Path) -> list[str]:
    """A page's blocks of Python."""
    return _BLOCK.findall(_text(page))


def links(page: Path) -> list[str]:
    """Where a page's links lead to, as it writes them."""
    return _LINK.findall(_CODE.sub("", _text(page)))


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page may have behind ``#``."""
    headings = _HEADING.findall(re.sub(r"(?ms)^```.*?^```$", "", _text(page)))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def tables(page: str, first_column: str) -> list[dict[str, Row]]:
    """A page's tables whose first column has this name: rows by their first cell."""
    lines = _text(DOCS / page).splitlines()
    return [
        _table(lines[n:])
        for n, line in enumerate(lines)
        if line.startswith(f"| {first_column} |")
    ]


def exists(proof: str) -> bool:
    """Whether a test is there: a path below the repository, ``::`` and its name."""
    return bool(_marks(proof))


def runs(proof: str) -> bool:
    """Whether it is there, and not for ``make test-all`` as a whole, nor its class."""
    file = ROOT / proof.partition("::")[0]
    if file.is_file() and _FOR_ALL.search(_text(file)):
        return False
    return any("pytest.mark.all" not in of_one for of_one in _marks(proof))


def _marks(proof: str) -> list[list[str]]:
    """The decorators of each test of this name, and of its class."""
    path, _, wanted = proof.partition("::")
    file = ROOT / path
    return _marks_of_all(file).get(wanted, []) if file.is_file() else []


@cache
def _marks_of_all(file: Path) -> dict[str, list[list[str]]]:
    marks: dict[str, list[list[str]]] = {}
    module = ast.parse(_text(file))
    for room in ast.walk(module):
        if not isinstance(room, ast.Module | ast.ClassDef):
            continue
        of_class = room.decorator_list if isinstance(room, ast.ClassDef) else []
        for found in room.body:
            if isinstance(found, ast.FunctionDef):
                own = [ast.unparse(mark) for mark in (*found.decorator_list, *of_class)]
                marks.setdefault(found.name, []).append(own)
    return marks


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


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
