"""Tasks ask the driver over a socket, and both sides notice when the other is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from errno import ECONNRESET, EHOSTUNREACH, EPIPE, ETIMEDOUT

import pytest

from kafka_tx.errors import FailedException
from kafka_tx.model import TransactionAttempt
from kafka_tx.running import permit as permits
from kafka_tx.running.permit import PermitAddress, PermitServer, permit
from kafka_tx.running.task_reports import DriverAddress

ATTEMPT = TransactionAttempt(3, 1_000_000_000_007)
WITHIN_S = 60


@pytest.fixture
def server():
    made = PermitServer(DriverAddress("127.0.0.1"))
    yield made
    made.close()


def in_thread(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_a_task_works_while_its_phase_is_open(server):
    with server.phase(ATTEMPT) as address, permit(address, ATTEMPT, "note[0]"):
        pass

    with (
        pytest.raises(FailedException, match=r"given up before task note\[0\] began"),
        permit(server.address, ATTEMPT, "note[0]"),
    ):
        pass


def test_a_stranger_is_not_answered(server, monkeypatch):
    monkeypatch.setattr(permits, "_ANSWER_WITHIN_S", 0.3)
    stranger = PermitAddress("127.0.0.1", server.address.port, "guessed")

    with (
        server.phase(ATTEMPT),
        pytest.raises(FailedException),
        permit(stranger, ATTEMPT, "note[0]"),
    ):
        pass


def test_a_phase_ends_after_the_last_task_and_tells_it_to_leave(server):
    has_begun, may_end, working = (threading.Event() for _ in range(3))

    def task():
        with permit(server.address, ATTEMPT, "note[0]", leave=has_begun.set):
            working.set()
            may_end.wait(WITHIN_S)

    def phase():
        with server.phase(ATTEMPT):
            worker.start()
            working.wait(WITHIN_S)

    worker = threading.Thread(target=task, daemon=True)
    driver = in_thread(phase)

    assert has_begun.wait(WITHIN_S)
    driver.join(0.2)
    assert driver.is_alive(), "it did not wait for the task"
    may_end.set()
    driver.join(WITHIN_S)
    assert not driver.is_alive()


def test_a_task_leaves_when_it_hears_nothing_from_the_driver(server):
    left = threading.Event()

    with (
        server.phase(ATTEMPT) as address,
        permit(address, ATTEMPT, "note[0]", silence_s=1.0, leave=left.set),
    ):
        assert left.wait(WITHIN_S)


TASK = """
import sys
from kafka_tx.model import TransactionAttempt
from kafka_tx.running.permit import PermitAddress, permit
import time
host, port, token, attempt = sys.argv[1:]
address = PermitAddress(host, int(port), token)
with permit(address, TransactionAttempt.parse(attempt), "note[0]"):
    print("working", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("end", ["killed", "given up"])
def test_a_process_that_is_killed_or_given_up_is_gone_at_once(server, end):
    address = server.address
    given = (address.host, str(address.port), address.token, str(ATTEMPT))
    with server.phase(ATTEMPT):
        process = subprocess.Popen(
            [sys.executable, "-c", TASK, *given],
            stdout=subprocess.PIPE,
            env=os.environ,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"working\n"
        if end == "killed":
            process.kill()
    process.stdout.close()

    # The phase has ended, so the process is gone, or just about to be reaped.
    assert process.wait(WITHIN_S) == (-9 if end == "killed" else 70)


def test_a_closed_desk_lets_nobody_wait(server):
    working = threading.Event()

    def task():
        with permit(server.address, ATTEMPT, "note[0]", leave=lambda: None):
            working.set()
            time.sleep(WITHIN_S)

    def phase():
        with server.phase(ATTEMPT):
            in_thread(task)
            working.wait(WITHIN_S)

    driver = in_thread(phase)
    assert working.wait(WITHIN_S)

    server.close()

    driver.join(WITHIN_S)
    assert not driver.is_alive()


class FakeConnection:
    """Its ``recv`` gives one of ``heard`` after the other, bytes or an error.

    A heartbeat raises ``sent``, if any.
    """

    def __init__(self, heard, sent):
        self.heard, self.sent = iter(heard), sent

    def settimeout(self, _):
        pass

    def recv(self, _):
        found = next(self.heard)
        if isinstance(found, OSError):
            raise found
        return found

    def sendall(self, said):
        if said == permits.BEAT and self.sent is not None:
            raise self.sent


SILENT = TimeoutError("timed out")  # as of ``settimeout``: without a number
LOST, RESET = OSError(ETIMEDOUT, "lost"), OSError(ECONNRESET, "reset")
USED_UP = OSError(EPIPE, "its error was raised before")


@pytest.mark.parametrize(
    ("heard", "sent", "is_lost"),
    [
        ([LOST], USED_UP, True),
        ([SILENT], LOST, True),
        ([SILENT], USED_UP, True),
        ([OSError(EHOSTUNREACH, "lost")], None, True),
        ([b""], None, False),
        ([SILENT, permits.DONE, b""], None, False),
        ([SILENT, RESET], None, False),
        ([SILENT], RESET, False),
    ],
)
def test_a_task_whose_connection_is_lost_counts_as_working_for_a_while(
    server, monkeypatch, heard, sent, is_lost
):
    waits = []
    monkeypatch.setattr(server._changed, "wait_for", lambda *given: waits.append(given))

    server._permits.open(ATTEMPT)
    server._serve(
        FakeConnection(heard, sent), {"attempt": str(ATTEMPT), "task": "note[0]"}
    )

    assert [within_s for _, within_s in waits] == [35] * is_lost
    assert not server._permits.holders(ATTEMPT)
