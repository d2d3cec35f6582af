"""Figures that pages repeat are those of ``benchmarks/README.md``."""

from __future__ import annotations

import re

import pytest

from tests.doc_pages import ROOT

_TIMES = "\N{MULTIPLICATION SIGN}"
BENCHMARKS = (
    (ROOT / "benchmarks/README.md").read_text(encoding="utf-8").replace(_TIMES, "x")
)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")

LIVE = "micro-batch of 1,000 records as they arrive, default options"
WAITING = "the same, both with `kafka.fetch.max.wait.ms=10`"
TOPOLOGY = "topology, 1,000 records a batch, 4 batches at once, against `foreachBatch`"
SPEED = {
    "read 5,000,000 records of 100 B": "5,000,000 x 100 B",
    "read 1,000,000 records of 1 KB": "1,000,000 x 1 KB",
    LIVE: "1,000 records as they arrive",
    WAITING: WAITING,
    "micro-batch of 1,000 records of a backlog": "1,000 records a trigger, catching up",
    TOPOLOGY: "1,000 records a batch, 4 pending",
    "write 1,000,000 records of 100 B": "1,000,000 x 100 B |",
    "write 1,000,000 records of 100 B, with lz4": "the same with `lz4`",
}
"""Rows of README's table, and words of the benchmarks' row that each is."""

SAID = [
    ("README.md", "in Python, at 0.3 to 0.6 of the speed", None),
    ("docs/security.md", "about a third as fast as the compiled reader for rec", None),
    ("docs/security.md", "and 0.6 times as fast for records of 1 KB", None),
    ("docs/questions.md", "about a third as fast for records of 100 B, and 0.6", None),
    ("docs/index.md", "about a third as fast for records of 100 B, and 0.6 ti", None),
    ("README.md", "planning 100 partitions: 7 ms with SQLite, 9 ms with", None),
    ("docs/comparing.md", "268 ms a batch, and 258 ms", "catching up (5 runs"),
    ("docs/comparing.md", "(79 ms instead of 110)", "1,000 records | 110"),
    ("docs/sizing.md", "| 10 to 100 | about 120 ms |", "| 10 | 121 ms"),
    ("docs/sizing.md", "| 1,000 | about 255 ms |", "| 1,000 | 255 ms"),
    ("docs/sizing.md", "| 5,000 | about 510 ms |", "| 5,000 | 512 ms"),
    ("docs/sizing.md", "about 255 ms | about 15 ms |", "| 1,000 | 15 ms |"),
    (
        "docs/sizing.md",
        "about 510 ms | about 50 ms |",
        "| 5,000 | 46 ms |",
    ),
    ("docs/sizing.md", "| read 100 B | 2.47 million", "5,000,000 x 100 B | 2.47"),
    ("docs/sizing.md", "| read 1 KB | 0.78 million", "1,000,000 x 1 KB | 0.78"),
    ("docs/sizing.md", "100 B | 1.09 million", "1,000,000 x 100 B | 1.09"),
    ("docs/sizing.md", "SQLite | 622,000 updates/s", "100,000 keys a batch | 622,000"),
    ("docs/sizing.md", "`fsync=off` | 209,000", "(`fsync=off`) | 209,000"),
    ("docs/sizing.md", "133 MB above idle", "idle | 133 MB"),
    ("docs/sizing.md", "about 26 batches/s of 1,000", "4 pending | 26.2 batches/s"),
]
"""Page, what it says, and the words of the benchmarks that have the figure."""


def rows_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def numbers(cell: str) -> list[str]:
    return _NUMBER.findall(cell)


@pytest.mark.parametrize("ours", SPEED)
def test_the_table_of_speed_is_that_of_the_benchmarks(ours):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (row,) = (r for r in rows_of(readme) if r.startswith(f"| {ours} |"))
    theirs = next(r for r in rows_of(BENCHMARKS) if SPEED[ours] in r)
    _, _, kafka_tx, spark, ratio, _ = row.split("|")
    measured = theirs.split("|")[-4:]

    assert numbers(kafka_tx)[0] == numbers(measured[0])[0]
    assert numbers(spark)[0] == numbers(measured[1])[0]
    assert ratio.strip() == measured[2].strip()


@pytest.mark.parametrize(("page", "said", "measured"), SAID)
def test_a_figure_of_a_page_is_that_of_the_benchmarks(page, said, measured):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())

    assert said in text
    assert measured is None or measured in BENCHMARKS


def test_planning_costs_what_the_front_page_says():
    (row,) = (r for r in rows_of(BENCHMARKS) if r.startswith("| SQLite | 4."))
    (other,) = (r for r in rows_of(BENCHMARKS) if r.startswith("| PostgreSQL (`fs"))
    plans = [float(numbers(r.split("|")[3])[0]) for r in (row, other)]

    assert [round(ms) for ms in plans] == [7, 9]


def test_a_reader_in_python_is_as_slow_as_the_pages_say():
    """Its times beside Spark's are in the benchmarks: 0.9 to 1.1 and 1.4 to 1.5."""
    (said,) = re.findall(
        r"it\s+reads (.*?) times as fast as Spark's connector at 100 B and (.*?) times",
        BENCHMARKS,
    )
    native = {100: 2.9, 1_000: 2.3}
    for size, text in zip(native, said, strict=True):
        low, high = (float(n) for n in numbers(text))
        share = (low + high) / 2 / native[size]
        assert round(share, 1) == {100: 0.3, 1_000: 0.6}[size]
