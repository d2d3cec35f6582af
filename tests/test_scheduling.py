"""A run whose workers crash tells of it, runs everything else, and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.scheduling import FileScheduling

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


class Worker:
    """Takes what it is given."""

    def __init__(self):
        self.given, self.shutting_down = [], False
        self.gateway = SimpleNamespace(id=id(self))

    def send_runtest_some(self, indices):
        self.given += indices

    def shutdown(self):
        self.shutting_down = True


def test_a_worker_that_has_not_collected_yet_is_given_nothing():
    """One is new in place of a crashed one while another new one is ready."""
    option = SimpleNamespace(loadscopereorder=False, maxschedchunk=None)
    config = SimpleNamespace(option=option, getvalue=lambda _: ["popen"] * 2, hook=None)
    scheduling = FileScheduling(config, None)
    tests = [f"test_{file}.py::test_{n}" for file in "abcdef" for n in range(4)]
    crashing, crashing_too, new, slow = (Worker() for _ in range(4))
    for worker in (crashing, crashing_too):
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, tests)
    scheduling.schedule()

    assert scheduling.remove_node(crashing) == tests[0]
    assert scheduling.remove_node(crashing_too)
    for worker in (new, slow):
        scheduling.add_node(worker)
    scheduling.add_node_collection(new, tests)
    scheduling.schedule()

    assert new.given
    assert not slow.given
    assert not slow.shutting_down
    scheduling.add_node_collection(slow, tests)
    scheduling.schedule()
    assert slow.given
