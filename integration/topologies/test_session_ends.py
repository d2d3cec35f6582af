"""The session, its driver or its JVM ends under living jobs: no process stays.

Topologies say so where their driver goes on. Planning processes of queries end, also
one that waits for a store or for brokers.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from integration.cluster.jars import REPOSITORY
from integration.cluster.waiting import PATIENT_S, wait_until
from kafka_tx.testing.process_tree import session_members

JOB = "integration.topologies.session_job"
NAMES = {"numbered-busy", "numbered-idle", "records-busy", "records-idle"}
GONE_WITHIN_S = 60
"""10 s on a machine that has nothing else to do. Who waits for a broker or a store does
so for two minutes."""
ASKS_FOR_TLS = b"\x00\x00\x00\x08"
"""How PostgreSQL's client begins, and Kafka's does not."""


@pytest.mark.all
@pytest.mark.parametrize("how", ["stop", "kill", "end", "TERM", "INT", "KILL"])
def test_no_process_outlives_its_session_or_driver(
    kafka, topic, produce, tmp_path: Path, how: str
):
    full, empty, shown = topic(1), topic(1), tmp_path / "shown"
    produce(full, ["v"] * 5, partition=0)
    with ExitStack() as opened:
        hole = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        given = {
            "work": tmp_path,
            "servers": kafka.bootstrap_servers,
            "how": how,
            "full": full,
            "empty": empty,
            "hole": hole.getsockname()[1],
        }
        words = [word for name, value in given.items() for word in (f"--{name}", value)]
        out = opened.enter_context(shown.open("wb"))
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "integration.topologies.session_job",
                *map(str, words),
            ],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},  # a child of the JVM
        )
        opened.callback(end, process)

        def text() -> str:
            return shown.read_text(errors="replace")

        def wait(
            what: str, is_so: Callable[[], bool], within_s: int = PATIENT_S
        ) -> None:
            def failed() -> str | None:
                return None if process.poll() in (None, 3) else text()[-4000:]

            wait_until(what, is_so, timeout_s=within_s, complain=failed)

        wait("the jobs run", lambda: "waits for go" in text())
        for connection in waiting(hole):
            opened.enter_context(closing(connection))
        assert len(planners(process.pid)) == 4
        say(process, "go")
        if how in ("TERM", "INT", "KILL"):
            wait("the driver waits", lambda: "waits for a signal" in text())
            process.send_signal(getattr(signal, f"SIG{how}"))
        elif how != "end":
            wait("all is stopped", lambda: "waits for end" in text())
            wait("no planner", lambda: not planners(process.pid), GONE_WITHIN_S)
            check_topologies(text())
            say(process, "end")
        process.wait(PATIENT_S)
        wait_until(
            "no process is left",
            lambda: not session_members(process.pid),
            timeout_s=GONE_WITHIN_S,
            complain=lambda: None,
        )

    expected = {"TERM": -signal.SIGTERM, "INT": 1, "KILL": -signal.SIGKILL}
    assert process.returncode in (expected.get(how, 3), -signal.SIGINT), text()[-4000:]


def planners(session: int) -> list[int]:
    """The planning processes of a session."""
    found = []
    for pid in session_members(session):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as line:
                is_one = b"python_streaming_source_runner" in line.read()
        except OSError:
            continue  # ended meanwhile
        found += [pid] if is_one else []
    return found


def waiting(hole: socket.socket) -> list[socket.socket]:
    """Connections of a client of PostgreSQL and one of Kafka, which get no answer."""
    hole.settimeout(PATIENT_S)
    connections: list[socket.socket] = []
    kinds: set[bool] = set()
    while len(kinds) < 2:
        connection, _ = hole.accept()
        connection.settimeout(PATIENT_S)
        connections.append(connection)
        kinds.add(connection.recv(4) == ASKS_FOR_TLS)
    return connections


def say(process: subprocess.Popen[bytes], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{word}\n".encode())
    process.stdin.flush()


def end(process: subprocess.Popen[bytes]) -> None:
    for pid in session_members(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def check_topologies(text: str) -> None:
    """All of them said what ended them, in time, and left no thread."""
    ended = re.findall(
        r"^(\S+) awaitTermination (\S+) \[KAFKA_TX_SPARK_STOPPED\]", text, re.M
    )
    assert {name for name, _ in ended} == NAMES, text[-4000:]
    # 10 s on a machine that has nothing else to do
    assert all(float(after_s) < 60 for _, after_s in ended), ended
    assert len(re.findall("process_all_available", text)) == len(NAMES)
    assert "threads []" in text, text[-4000:]
