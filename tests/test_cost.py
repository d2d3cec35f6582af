"""What `make test-cost` prints and records."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.cost import Cost, Costs, order_of, tree_s

ROOT = Path(__file__).parent.parent
TESTS = """
import subprocess, sys
from subprocess import PIPE

import pytest

WORKS = "import time\\nwhile time.process_time() < 0.5: pass\\nprint(flush=True)"


@pytest.fixture(scope="module")
def dear():
    subprocess.run([sys.executable, "-c", WORKS], check=True)
    lives = [sys.executable, "-c", WORKS + "\\ninput()"]
    with subprocess.Popen(lives, stdin=PIPE, stdout=PIPE) as live:
        yield live
        live.communicate(b"end")


def test_one(dear):
    dear.stdout.readline()
"""


def cost_of(tests, place):
    """What a run of these tests prints of its cost."""
    (place / "test_given.py").write_text(tests)
    options = "-q -p tests.cost -p no:cacheprovider -n 1 --rootdir ."
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options.split()],
        cwd=place,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    ).stdout


@pytest.mark.all
def test_a_child_that_was_waited_for_is_a_fixtures_and_a_live_one_is_a_server(tmp_path):
    printed = cost_of(TESTS, tmp_path)

    tables = {"fixture of": "dear", "server (": Path(sys.executable).name}
    found = {}
    for title, name in tables.items():
        _, _, table = printed.partition(f"  {title}")
        row = next(line for line in table.splitlines() if f"  {name}" in line)
        found[title] = [float(number) for number in row.split()[:4]]
    assert found["fixture of"][2] >= 0.5
    assert found["server ("][3] >= 0.5
    assert "1 passed" in printed


KILLED = """
import sys
from pathlib import Path

from integration.cluster.child import Child
from integration.cluster.waiting import wait_until

WORKS = "import time\\nwhile time.process_time() < 0.5: pass\\nprint(flush=True)"
WORKS += "\\ntime.sleep(600)"
PROGRAM = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def test_one(tmp_path):
    child = Child([sys.executable, "-c", PROGRAM, WORKS], tmp_path / "log")
    wait_until("it has worked", lambda: (tmp_path / "log").read_text())
    child.kill()
"""


@pytest.mark.all
def test_what_a_killed_server_has_started_counts(tmp_path):
    """Nobody waits for it: its time is in no times of children."""
    printed = cost_of(KILLED, tmp_path)

    _, _, table = printed.partition("  test\n")
    assert float(table.splitlines()[0].split()[3]) >= 0.5
    assert "1 passed" in printed


def test_the_longest_files_are_recorded_longest_first():
    costs = Costs()
    for name, seconds in {"a.py": 0.9, "b.py": 1.2, "c.py": 70.0}.items():
        costs.files[name].add(Cost(seconds=seconds))

    assert list(json.loads(order_of(costs)).items()) == [("c.py", 70), ("b.py", 1)]


@pytest.mark.all
def test_processes_may_end_while_they_are_counted():
    until = time.monotonic() + 0.7

    def come_and_go():
        while time.monotonic() < until:
            subprocess.run(["true"], check=True)

    crowd = [threading.Thread(target=come_and_go) for _ in range(3)]
    for each in crowd:
        each.start()
    while time.monotonic() < until:
        assert tree_s(os.getpid()) > 0
    for each in crowd:
        each.join()
