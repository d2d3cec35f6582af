from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from kafka_tx.testing.process_tree import ProcessTree, session_members

PROGRAM = """
import json, os, subprocess, sys, time
fd = int(sys.argv[1])
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
own_group = subprocess.Popen(sleep, process_group=0)
orphan = subprocess.Popen(
    [sys.executable, "-c", f"import subprocess; subprocess.Popen({sleep!r})"]
)
orphan.wait()
os.write(fd, json.dumps({"phase": "ready"}).encode() + b"\\n")
line = sys.stdin.readline()
print("said", line, flush=True)
os.write(fd, json.dumps({"phase": line.strip()}).encode() + b"\\n")
if line.strip() == "leave":
    sys.exit(3)
time.sleep(600)
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    (tmp_path / "a_family.py").write_text(PROGRAM)
    program = ProcessTree(
        "a_family", str, tmp_path / "log", {"PYTHONPATH": str(tmp_path)}
    )
    yield program
    program.kill()


def wait_for(tree, phase):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if phase in [event["phase"] for event in tree.events()]:
            return
        time.sleep(0.02)
    pytest.fail(f"never came to {phase}: {tree.tail()}")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts in /proc")
def test_kill_ends_children_in_other_groups_and_orphans_too(tree):
    wait_for(tree, "ready")
    assert len(session_members(tree.pid)) == 3

    tree.kill()

    assert session_members(tree.pid) == []
    assert tree.code is not None


def test_it_hears_and_tells(tree):
    wait_for(tree, "ready")

    tree.say("hello")

    wait_for(tree, "hello")
    assert "said hello" in tree.tail()
    assert tree.code is None


def test_an_end_of_its_own_leaves_a_code_and_what_it_printed(tree):
    wait_for(tree, "ready")
    tree.say("leave")
    wait_for(tree, "leave")
    deadline = time.monotonic() + 60
    while tree.code is None and time.monotonic() < deadline:
        time.sleep(0.02)

    assert tree.code == 3
    tree.say("anybody there?")  # no error


def test_it_runs_this_python(tree):
    wait_for(tree, "ready")

    if not Path("/proc").exists():
        pytest.skip("looks into /proc")
    command = Path(f"/proc/{tree.pid}/cmdline").read_text().split("\0")
    assert command[0] == sys.executable
