"""A run whose workers crash tells of it, runs everything else, and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TESTS = """
import os

import pytest

@pytest.mark.parametrize("number", range(8))
def test_one(number):
    if number == {at}:
        os._exit(3)
"""
CRASHING = {"first": 0, "middle": 4, "last": 7}


@pytest.mark.parametrize("workers", [1, 2])
def test_all_tests_run_though_workers_crash(tmp_path: Path, workers: int) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.scheduling"]')
    for name in ("a", "first", "b", "middle", "c", "last"):
        at = CRASHING.get(name)
        (tmp_path / f"test_{name}.py").write_text(TESTS.format(at=at))

    options = f"-n {workers} --dist loadfile --no-loadscope-reorder -q"
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split(), "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    for name, at in CRASHING.items():
        crashed = f"crashed while running 'test_{name}.py::test_one[{at}]'"
        assert crashed in found.stdout
    assert "3 failed, 45 passed in" in found.stdout.splitlines()[-1]
