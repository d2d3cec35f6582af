"""Every row of the guarantees has tests that prove it."""

from __future__ import annotations

import pytest

from tests import guarantee_proofs
from tests.doc_pages import runs, tables
from tests.guarantee_proofs import Proofs

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

    assert not [proof for proof in _all(proofs) if not runs(proof)]


def _all(proofs: Proofs) -> set[str]:
    return {proof for cells in proofs.values() for proof in cells if proof}
