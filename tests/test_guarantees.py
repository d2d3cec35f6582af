"""Every row of the guarantees has tests that prove it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests import guarantee_proofs
from tests.doc_pages import tables
from tests.guarantee_proofs import Proofs

ROOT = Path(__file__).parents[1]
TABLES = {
    "driver": (tables("guarantees.md", "fault")[0], guarantee_proofs.DRIVER),
    "topology": (tables("guarantees.md", "fault")[1], guarantee_proofs.TOPOLOGY),
    "into Kafka": (tables("guarantees.md", "sink")[0], guarantee_proofs.INTO_KAFKA),
    "markers": (
        tables("guarantees.md", "into Kafka, with `tx.id`")[0],
        guarantee_proofs.MARKERS,
    ),
    "Delta": (tables("guarantees.md", "into a Delta table")[0], guarantee_proofs.DELTA),
    "Iceberg": (
        tables("guarantees.md", "into an Iceberg table")[0],
        guarantee_proofs.ICEBERG,
    ),
    "files": (tables("guarantees.md", "into files")[0], guarantee_proofs.FILES),
    "around": (
        tables("guarantees.md", "around the brokers")[0],
        guarantee_proofs.AROUND,
    ),
}
NOTHING_OF_ITS_OWN = ("—", "as ", "twice", "from `startingOffsets`")
"""How a cell may begin that no test is named for: it refers to another one, or promises
nothing."""


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_that_promises_something_names_a_test(name: str) -> None:
    rows, proofs = TABLES[name]

    assert list(rows) == list(proofs)
    unproven = [
        (fault, column)
        for fault, cells in rows.items()
        for (column, cell), proof in zip(cells.items(), proofs[fault], strict=True)
        if not proof and not cell.startswith(NOTHING_OF_ITS_OWN)
    ]
    assert not unproven


@pytest.mark.parametrize("name", TABLES)
def test_every_named_test_exists_and_runs_in_make_test(name: str) -> None:
    _, proofs = TABLES[name]

    assert not [proof for proof in _all(proofs) if not _runs(proof)]


def _all(proofs: Proofs) -> set[str]:
    return {proof for cells in proofs.values() for proof in cells if proof}


def _runs(proof: str) -> bool:
    """Whether it is there, and not for ``make test-all`` as a whole."""
    path, _, wanted = proof.partition("::")
    file = ROOT / path
    if not file.is_file():
        return False
    text = file.read_text(encoding="utf-8")
    if re.search(r"^pytestmark = .*pytest\.mark\.all", text, re.M):
        return False
    found = ast.walk(ast.parse(text))
    tests = (n for n in found if isinstance(n, ast.FunctionDef) and n.name == wanted)
    marks = [[ast.unparse(mark) for mark in test.decorator_list] for test in tests]
    return any("pytest.mark.all" not in of_one for of_one in marks)
