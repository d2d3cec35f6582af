"""The table of Spark's versions."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from integration import capabilities
from integration.capabilities import CAPABILITIES
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
TESTS = REPOSITORY / "integration"


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
        "| sinks | failed | passed |",
        "| both | not run | passed, some skipped |",
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


def files_of(name: str) -> list[str]:
    """The names of test files that the noxfile lists there."""
    return [Path(_text(node).partition("::")[0]).stem for node in of_noxfile(name).elts]


def _text(node: Any) -> str:
    """Of a constant, or of one that its name or the head of an f-string names."""
    while not isinstance(node, ast.Constant):
        if isinstance(node, ast.JoinedStr):
            (node,) = (
                n.value for n in node.values if isinstance(n, ast.FormattedValue)
            )
        node = of_noxfile(node.id)
    return str(node.value)


def test_every_file_of_the_matrix_is_in_a_row():
    listed = files_of("FILES") + files_of("WHOLE")
    assert sorted(f for files in ROWS.values() for f in files) == sorted(listed)


def test_what_make_test_all_leaves_out_runs_whole_in_the_matrix():
    """Tests marked `all` would run nowhere else."""
    lacking = {
        name
        for name, what in vars(capabilities).items()
        if isinstance(what, str) and not CAPABILITIES.get(what, True)
    }
    asking = {f"need({name}" for name in lacking} | {f"else {name}" for name in lacking}
    asking |= {"(ice,", " ice,"}  # the fixture
    files = {file.stem: file.read_text() for file in TESTS.rglob("*.py")}
    needing = {n for n, text in files.items() if any(a in text for a in asking)}
    needing |= {
        name
        for name, text in files.items()
        if any(f" {shared}\n" in text for shared in needing)
    }

    whole = {name for name in needing if name.startswith("test_")}
    assert whole - {"test_matrix_table"} <= set(files_of("WHOLE"))
    assert {"test_iceberg", "test_iceberg_statements"} <= whole
