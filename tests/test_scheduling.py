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
from pathlib import Path

import pytest

@pytest.mark.parametrize("number", range(8))
def test_one(number):
    seen = Path(f"{{__name__}}-{{number}}")
    if number == {at} and not ({once} and seen.exists()):
        seen.touch()
        os._exit(3)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_all_tests_run_though_workers_crash(tmp_path: Path, workers: int) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.scheduling"]')
    crashing = {"first": (0, True), "middle": (4, False), "last": (7, True)}
    for name in ("a", "first", "b", "middle", "c", "last", "d"):
        at, once = crashing.get(name, (None, False))
        (tmp_path / f"test_{name}.py").write_text(TESTS.format(at=at, once=once))

    options = f"-n {workers} --dist loadfile --reruns 1 -q -p no:cacheprovider"
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert "crashed while running 'test_middle.py::test_one[4]'" in found.stdout
    assert "1 failed, 55 passed, 3 rerun" in found.stdout.splitlines()[-1]
