"""Every row of the guarantees has tests that prove it."""

from __future__ import annotations

import pytest

from tests import guarantee_proofs
from tests.doc_pages import exists, runs, tables
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

RUN_BY = {
    "Delta": "integration/sinks/test_lakehouse.py",
    "Iceberg": "integration/sinks/test_iceberg.py",
}
"""Which module runs the suite of tables for a format, and leaves some of it out."""


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


@pytest.mark.parametrize("name", RUN_BY)
def test_what_a_suite_proves_of_a_table_runs_for_its_format(name: str) -> None:
    module, (_, proofs) = RUN_BY[name], TABLES[name]
    tests = {proof.partition("::")[2] for proof in _all(proofs)}
    overridden = {test for test in tests if exists(f"{module}::{test}")}

    assert not [test for test in overridden if not runs(f"{module}::{test}")]
    assert not [suite for suite in _all(proofs) if "sink_suite" in suite], "in test-all"


def _all(proofs: Proofs) -> set[str]:
    return {proof for cells in proofs.values() for proof in cells if proof}
