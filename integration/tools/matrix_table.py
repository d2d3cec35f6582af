"""The table of Spark's versions, from what ``make matrix`` saw.

It has no numbers of tests: they would be wrong with the next test.

``python -m integration.tools.matrix_table [REPORT.xml ...]`` writes it between its
markers; a report's name begins with the version that it is of.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

from integration.cluster.jars import REPOSITORY

PAGE = REPOSITORY / "docs/spark-versions.md"
BEGIN, END = "<!-- made by integration.tools.matrix_table -->", "<!-- end -->"

ROWS = {
    "limits, restarts, txids, both sinks": ("test_versions",),
    "Spark Connect": ("test_connect", "test_table_connect"),
    "parity with Spark's own source": ("test_source_parity", "test_late_binding"),
    "brokers that fail, logs that shrink": ("test_source_faults",),
    "kills of the driver": ("test_crashes",),
    "kills of exactly-once writes": ("test_exactly_once",),
    "`for_each_transaction`, listener": ("test_numbering", "test_listener"),
    "records with a schema": ("test_schemas",),
    "sinks and their replays": ("test_sink", "test_sink_replays"),
    "maps and tables": ("test_state",),
    "Delta tables": ("test_lakehouse", "test_table_facts", "test_table_doctor"),
    "Iceberg tables": ("test_iceberg", "test_iceberg_statements", "test_examples"),
    "topologies": ("test_topology", "test_spout"),
}
"""What a reader asks for, and the test files that show it."""

Counts = dict[str, dict[str, Counter[str]]]
"""By version and test file: how many passed, were skipped, failed."""


def counted(reports: list[Path]) -> Counts:
    """What reports say; of a file that was run twice, what was seen last."""
    found: Counts = defaultdict(dict)
    for report in sorted(reports, key=lambda path: path.stat().st_mtime):
        version = re.match(r"\d+\.\d+\.\d+", report.name)
        assert version is not None, f"{report.name} names no version"
        seen: dict[str, Counter[str]] = defaultdict(Counter)
        for case in ElementTree.parse(report).iter("testcase"):
            file = case.get("classname", "").rpartition(".")[2]
            seen[file][_outcome(case)] += 1
        found[version[0]].update(seen)
    return found


def table(counts: Counts) -> str:
    """The table in Markdown, one column a version."""
    versions = sorted(counts, key=lambda text: tuple(map(int, text.split("."))))
    lines = ["| tests on | " + " | ".join(versions) + " |"]
    lines.append("| --- |" + " --- |" * len(versions))
    for what, files in ROWS.items():
        cells = [_cell([counts[v].get(f) for f in files]) for v in versions]
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def put_into(text: str, new: str) -> str:
    """A text with another table between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, "the markers are missing"
    return f"{before}{BEGIN}\n{new}\n{END}{after}"


def _outcome(case: ElementTree.Element) -> str:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"


def _cell(seen: list[Counter[str] | None]) -> str:
    if any(each is None for each in seen):
        return "not run"
    total = sum((each for each in seen if each), Counter[str]())
    if total["failed"]:
        return "failed"
    if total["skipped"] > total["passed"]:
        return "mostly skipped"
    return "passed, some skipped" if total["skipped"] else "passed"


def main() -> None:
    """Write the table into its page."""
    given = [Path(word) for word in sys.argv[1:]]
    reports = given or sorted((REPOSITORY / ".cache/matrix").glob("*.xml"))
    PAGE.write_text(put_into(PAGE.read_text(), table(counted(reports))))


if __name__ == "__main__":
    main()
