"""A planner's signs of life."""

import signal
import subprocess
import sys
import threading

import pytest

from kafka_tx.errors import StateUnavailableError
from kafka_tx.spark.source.stream import Heartbeat

WITHIN_S = 10

PLANNER = """
import sys
from kafka_tx.spark.source.stream import Heartbeat
made = Heartbeat(lambda: None, lambda: print("let go", flush=True))
made.ends_with_process()
print("ready", flush=True)
sys.stdin.read()
"""


def test_it_beats_until_it_is_stopped_and_then_lets_go():
    thrice, beats = threading.Event(), []

    def beat():
        beats.append("beat")
        if len(beats) == 3:
            thrice.set()
        raise StateUnavailableError("never mind")

    made = Heartbeat(beat, lambda: beats.append("let go"), every_s=0.001)
    assert thrice.wait(WITHIN_S)
    made.stop()

    assert beats[-1] == "let go"
    assert beats.count("let go") == 1


def test_it_lets_go_where_its_process_is_terminated():
    with subprocess.Popen(
        [sys.executable, "-c", PLANNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as planner:
        assert planner.stdout is not None
        assert planner.stdout.readline() == "ready\n"
        planner.terminate()

        assert planner.stdout.readline() == "let go\n"
        assert planner.wait(WITHIN_S) == -signal.SIGTERM


@pytest.mark.parametrize("is_main", [True, False])
def test_a_handler_of_somebody_else_stays(is_main):
    former = signal.signal(
        signal.SIGTERM, signal.SIG_IGN if is_main else signal.SIG_DFL
    )
    made = Heartbeat(lambda: None, lambda: None)
    try:
        if is_main:
            made.ends_with_process()
        else:
            other = threading.Thread(target=made.ends_with_process)
            other.start()
            other.join(WITHIN_S)

        expected = signal.SIG_IGN if is_main else signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is expected
    finally:
        signal.signal(signal.SIGTERM, former)
        made.stop()
