"""Which quick tests run a line of code: they alone can notice that it is wrong.

Loaded by pytest as a plugin, it takes only the tests that a file names.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

PYTEST = (
    *(sys.executable, "-m", "pytest", "-x", "-q", "--no-header"),
    *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.mutant_tests"),
    *("--timeout", "120", "-k", "not million"),
)
"""Until the first failure, and without tests that a busy machine fails."""
WANTED, CPU_S = "KAFKA_TX_MUTANT_TESTS", "KAFKA_TX_MUTANT_CPU_S"


class Tests:
    """The tests of a room, run once to see which lines each of them runs.

    Args:
        room: Its name.
        paths: Files and folders of tests.

    Raises:
        SystemExit: They fail as they are.
    """

    def __init__(self, room: str, paths: tuple[str, ...]) -> None:
        given = [path for pattern in paths for path in Path().glob(pattern)]
        self._files = sorted(
            {f for p in given for f in (p.rglob("test_*.py") if p.is_dir() else [p])}
        )
        self._measured = Path(f".coverage.{room}").resolve()
        began = time.monotonic()
        if self._run("--cov=kafka_tx", "--cov-context=test", "--cov-report="):
            began = time.monotonic()  # a test may not bear to be measured
            if self._run():
                raise SystemExit(f"the tests of {room!r} fail as they are")
        self.take_s = time.monotonic() - began

    def command(self, module: Path, line: int) -> list[str]:
        """What tries a mutant: the tests that run its line, the nearest ones first.

        All of them where the line runs as the module is imported, or in no test: it may
        run in a process that a test starts.
        """
        ids = self._ids(module, line)
        found = {Path(one.partition("::")[0]) for one in ids}
        files = [file for file in self._files if file in found] or self._files
        selection = self._measured.with_suffix(".json")
        selection.write_text(json.dumps(sorted(ids)))
        os.environ[WANTED] = str(selection)
        os.environ[CPU_S] = str(round(30 + 3 * self.take_s))
        nearest = sorted(files, key=lambda file: (distance(file, module), file))
        return [*PYTEST, *map(str, nearest)]

    def _ids(self, module: Path, line: int) -> set[str]:
        runs = self._lines(module)
        contexts = {c for n in statement(module, line) for c in runs.get(n, [""])}
        return set() if "" in contexts else {c.rpartition("|")[0] for c in contexts}

    @cache  # noqa: B019 - one for each room
    def _lines(self, module: Path) -> dict[int, list[str]]:
        from coverage import CoverageData

        data = CoverageData(str(self._measured))
        data.read()
        return data.contexts_by_lineno(str(module.resolve()))

    def _run(self, *more: str) -> int:
        command = [*PYTEST, *more, *map(str, self._files)]
        environment = {**os.environ, "COVERAGE_FILE": str(self._measured)}
        environment = {k: v for k, v in environment.items() if k not in (WANTED, CPU_S)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(done.stdout[-3000:], file=sys.stderr)
        return done.returncode


def distance(test: Path, module: Path) -> int:
    """How far a test is from a module: by its name, what it imports, its length."""
    if "properties" in test.parts:
        return 3
    if module.stem in test.stem:
        return 0
    dotted = ".".join(module.with_suffix("").parts)
    return 1 if dotted in test.read_text() else 2


def statement(module: Path, line: int) -> range:
    """The lines of the innermost statement there: of its head, if it has a body."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or line
            if line <= last:
                found = range(node.lineno, last + 1)
    return found


# --- in pytest ----------------------------------------------------------------------


def pytest_configure() -> None:
    """An endless loop ends, however busy the machine is."""
    if seconds := int(os.environ.get(CPU_S, "0")):
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take what is named, if anything is."""
    if WANTED in os.environ:
        wanted = set(json.loads(Path(os.environ[WANTED]).read_text()))
        items[:] = [item for item in items if not wanted or item.nodeid in wanted]
