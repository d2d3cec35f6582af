"""A planner's signs of life."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from kafka_tx.errors import StateUnavailableError
from kafka_tx.running.heartbeat import Heartbeat, end_with_session

WITHIN_S = 60

PLANNER = """
import os, sqlite3, sys, threading, time
from kafka_tx.running.heartbeat import Heartbeat, end_with_session

place, how = sys.argv[1:]
if how == "parent" and os.fork():
    time.sleep(600)

def let_go():
    with open(place, "a") as out:
        out.write("let go")

made = Heartbeat(lambda: None, let_go)
end_with_session(lambda: os.path.exists(place + "-over"), made.stop)
print(os.getpid(), flush=True)
if how == "end":
    threading.Thread(target=time.sleep, args=(600,)).start()
    sys.exit(0)
if how == "busy":  # in C code: no handler of Python's runs on the main thread
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n)"
    sqlite3.connect(":memory:").execute(endless + "SELECT max(x) FROM n").fetchall()
time.sleep(600)
"""


@pytest.mark.parametrize("error", [StateUnavailableError, KeyError])
def test_it_beats_until_it_is_stopped_and_then_lets_go(error):
    thrice, beats = threading.Event(), []

    def beat():
        beats.append("beat")
        if len(beats) == 3:
            thrice.set()
        raise error("never mind")

    made = Heartbeat(beat, lambda: beats.append("let go"), every_s=0.001)
    assert thrice.wait(WITHIN_S)
    made.stop()

    assert beats[-1] == "let go"
    assert beats.count("let go") == 1


def signalled(planner, pid, place):
    for _ in range(5):  # Spark sends it twice, maybe into a run of the handler
        os.kill(pid, signal.SIGTERM)


def parent_killed(planner, pid, place):
    planner.kill()


def session_ended(planner, pid, place):
    place.with_name(f"{place.name}-over").touch()


@pytest.mark.parametrize(
    ("how", "end"),
    [
        ("waits", signalled),
        ("busy", signalled),
        ("end", signalled),
        ("parent", parent_killed),
        ("waits", session_ended),
    ],
)
def test_a_planner_ends_with_all_that_it_was_started_for(tmp_path, how, end):
    place = tmp_path / "said"
    with subprocess.Popen(
        [sys.executable, "-c", PLANNER, str(place), how],
        stdout=subprocess.PIPE,
        text=True,
    ) as planner:
        assert planner.stdout is not None
        pid = int(planner.stdout.readline())
        try:
            end(planner, pid, place)

            assert planner.stdout.read() == ""  # the last process closes it
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            planner.kill()
    assert place.read_text() == "let go"


def test_a_handler_of_somebody_else_stays():
    former = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        end_with_session(lambda: False)

        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, former)
