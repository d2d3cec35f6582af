"""The suite for other people's sinks: it passes sound ones, and finds the others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.sizes import in_all
from kafka_tx.running.file_sink import FileSink, OpaqueFileSink
from kafka_tx.testing import TransactionalSinkSuite
from tests.doc_pages import DOCS, blocks
from tests.properties.simulated_files import FORM, MemoryFolder


class TestFiles(TransactionalSinkSuite):
    kind: type[FileSink] = FileSink

    @pytest.fixture(autouse=True)
    def empty(self):
        self.folder = MemoryFolder()

    def open(self):
        return self.kind(self.folder, FORM, {})

    def found(self):
        return [row for _, rows in self.folder.found().values() for row in rows]


class TestOpaqueFiles(TestFiles):
    kind = OpaqueFileSink


def documented() -> str:
    """The sink of the page, and its tests."""
    sink, _, suite = blocks(DOCS / "own-sinks.md")
    return sink.rpartition("\nsink = ")[0] + "\n" + suite


def judged(folder: Path, source: str) -> str:
    """What pytest says about a file of tests."""
    (folder / "test_it.py").write_text(source)
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "test_it.py",
            "-p",
            "no:cacheprovider",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout + ran.stderr


def test_the_sink_of_the_page_passes(tmp_path):
    said = judged(tmp_path, documented())

    assert " passed" in said, said
    assert "failed" not in said, said


BROKEN = {
    "the attempt is stored after the rows": (
        ("print(attempt.as_json(), file=file)", "print('', file=file)"),
        (
            "        staged.unlink()",
            "        (self.folder / 'attempt').write_text(attempt.as_json())",
        ),
        (
            """        with newest.open() as file:
            return TransactionAttempt.of_json(file.readline())""",
            """        file = self.folder / "attempt"
        if not file.exists():
            return None
        return TransactionAttempt.of_json(file.read_text())""",
        ),
    ),
    "the file grows under its name": (
        (
            '''f"{attempt}.{secrets.token_hex(4)}.tmp"''',
            '''f"{attempt.txid:020}.jsonl"''',
        ),
        ("            os.link(", "            (lambda *_: 0)("),
        ("        staged.unlink()", "        pass"),
    ),
    "the last writer wins": (("os.link(", "os.replace("), ("staged.unlink()", "pass")),
    "only another write of the txid is noticed": (
        ('f"after-{last:020}.jsonl"', 'f"{attempt.txid:020}.jsonl"'),
    ),
    "the attempt loses its names": (
        ("attempt.as_json()", "TransactionAttempt.parse(str(attempt)).as_json()"),
    ),
}
USUAL = "the attempt is stored after the rows"


@pytest.mark.parametrize(
    "name", [USUAL, *in_all(*[name for name in BROKEN if name != USUAL])]
)
def test_a_sink_that_breaks_the_promise_is_found(tmp_path, name):
    source = documented()
    for sound, broken in BROKEN[name]:
        assert sound in source
        source = source.replace(sound, broken)

    said = judged(tmp_path, source)

    assert "1 failed" in said, said
    if "attempt is stored after" in name:
        assert "after a death before line" in said, said
        assert "in write readers see" in said, said
