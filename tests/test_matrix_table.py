"""The table of Spark's versions."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from integration.cluster.jars import REPOSITORY
from integration.tools import matrix_table
from integration.tools.matrix_table import (
    BEGIN,
    END,
    PAGE,
    ROWS,
    counted,
    put_into,
    table,
)

NOXFILE = REPOSITORY / "noxfile.py"


def of_noxfile(name: str) -> Any:
    """A constant of the noxfile; nox itself need not be installed."""
    lines = {
        node.targets[0].id: node.value
        for node in ast.parse(NOXFILE.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return lines[name]


def report(place: Path, name: str, *cases: tuple[str, str]) -> Path:
    body = "".join(
        f'<testcase classname="integration.room.{file}" name="t">{outcome}</testcase>'
        for file, outcome in cases
    )
    path = place / f"{name}.xml"
    path.write_text(f"<testsuites><testsuite>{body}</testsuite></testsuites>")
    return path


def test_what_reports_say_is_counted(tmp_path, monkeypatch):
    rows = {"sinks": ("test_sink",), "both": ("test_sink", "test_state")}
    monkeypatch.setattr(matrix_table, "ROWS", rows)
    sink, state = ("test_sink", ""), ("test_state", "<skipped/>")
    newer = report(tmp_path, "4.10.0", sink, sink, state)
    older = report(tmp_path, "4.9.1", sink, ("test_sink", "<failure/>"))

    assert table(counted([newer, older])).splitlines() == [
        "| tests on | 4.9.1 | 4.10.0 |",
        "| --- | --- | --- |",
        "| sinks | 1, 1 failed | 2 |",
        "| both | not run | 2, 1 skipped |",
    ]


def test_it_is_put_between_its_markers():
    assert put_into(f"a {BEGIN}\nold\n{END} b", "new") == f"a {BEGIN}\nnew\n{END} b"


def test_the_page_has_every_version_and_nothing_that_failed():
    shown = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip()
    header, _, *rows = shown.splitlines()
    versions = [ast.literal_eval(v) for v in of_noxfile("SPARKS").elts]
    assert header == "| tests on | " + " | ".join(versions) + " |"
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(ROWS)
    assert "failed" not in shown


def test_every_file_of_the_matrix_is_in_a_row():
    listed = [
        Path(node.value).stem
        for node in ast.walk(of_noxfile("FILES"))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert sorted(f for files in ROWS.values() for f in files) == sorted(
        [*listed, "test_versions"]
    )
