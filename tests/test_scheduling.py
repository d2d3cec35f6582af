"""A run whose workers crash tells of it, runs everything else, and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from integration.sizes import in_all
from tests import scheduling
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


@pytest.mark.parametrize("workers", [1, *in_all(2)])  # see Worker for two
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
        timeout=300,
        check=False,
    )

    for name, at in CRASHING.items():
        crashed = f"crashed while running 'test_{name}.py::test_one[{at}]'"
        assert crashed in found.stdout
    assert "3 failed, 45 passed in" in found.stdout.splitlines()[-1]


class Worker:
    """Takes what it is given."""

    def __init__(self):
        self.given, self.ran, self.shutting_down = [], "", False
        self.gateway = SimpleNamespace(id=id(self))

    def send_runtest_some(self, indices):
        self.given += indices

    def shutdown(self):
        self.shutting_down = True


def made(workers):
    option = SimpleNamespace(loadscopereorder=False, maxschedchunk=None)
    nodes = ["popen"] * workers
    config = SimpleNamespace(option=option, getvalue=lambda _: nodes, hook=None)
    return FileScheduling(config, None)


def test_a_worker_that_has_not_collected_yet_is_given_nothing():
    """One is new in place of a crashed one while another new one is ready."""
    of_all = made(2)
    tests = [f"test_{file}.py::test_{n}" for file in "abcdef" for n in range(4)]
    crashing, crashing_too, new, slow = (Worker() for _ in range(4))
    for worker in (crashing, crashing_too):
        of_all.add_node(worker)
        of_all.add_node_collection(worker, tests)
    of_all.schedule()

    assert of_all.remove_node(crashing) == tests[0]
    assert of_all.remove_node(crashing_too)
    for worker in (new, slow):
        of_all.add_node(worker)
    of_all.add_node_collection(new, tests)
    of_all.schedule()

    assert new.given
    assert not slow.given
    assert not slow.shutting_down
    of_all.add_node_collection(slow, tests)
    of_all.schedule()
    assert slow.given


def test_few_workers_have_a_session_and_begin_with_the_files_that_need_it(monkeypatch):
    monkeypatch.setattr(scheduling, "takes_spark", lambda file: file[0] in "stu")
    of_all, workers = made(4), [Worker() for _ in range(4)]
    tests = [f"{file}.py::test_{n}" for file in "abstucdef" for n in range(4)]
    for worker in workers:
        of_all.add_node(worker)
        of_all.add_node_collection(worker, tests)

    of_all.schedule()
    while any(worker.given for worker in workers):
        for worker in workers:
            for index in worker.given[:4]:
                worker.ran += tests[index][0] if index % 4 == 0 else ""
                worker.given.remove(index)
                of_all.mark_test_complete(worker, index)

    assert sorted("".join(worker.ran for worker in workers)) == sorted("abstucdef")
    ran = sorted(worker.ran for worker in workers)
    with_spark = [files for files in ran if set(files) & set("stu")]
    assert len(with_spark) == 2
    for files in with_spark:  # those that need it come first
        assert set(files.lstrip("stu")).isdisjoint("stu")
    assert all(worker.shutting_down for worker in workers)
