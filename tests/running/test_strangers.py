"""Whoever reaches a port of the driver without its secret holds nothing up."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from itertools import count

import pytest

from kafka_tx.metrics import endpoint
from kafka_tx.metrics.connections import MOST_CONNECTIONS, BoundedConnections
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TransactionAttempt
from kafka_tx.running import task_reports
from kafka_tx.running.permit import PermitServer, permit
from kafka_tx.running.task_reports import DriverAddress, ReportListener, send_report

HERE = "127.0.0.1"
ATTEMPT = TransactionAttempt(3, 1_000_000_000_007)
WITHIN_S = 60


@pytest.fixture(params=["permits", "reports", "metrics"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    with ExitStack() as opened:
        if request.param == "metrics":
            made = opened.enter_context(endpoint.serve(MetricsRegistry(), 0))
            yield made.port
        elif request.param == "reports":
            listener = ReportListener(DriverAddress(HERE), lambda _: None, "reports")
            opened.callback(listener.close)
            yield int(listener.address.split(":")[1])
        else:
            server = PermitServer(DriverAddress(HERE))
            opened.callback(server.close)
            yield server.address.port


def answering() -> int:
    """The threads that hold a connection."""
    names = [thread.name for thread in threading.enumerate()]
    return sum("process_request_thread" in name for name in names)


def drip(stranger: socket.socket) -> None:
    until = time.monotonic() + WITHIN_S
    while time.monotonic() < until:
        stranger.sendall(b"x")
        time.sleep(0.05)


def test_their_number_is_limited_on_each_port(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (BoundedConnections, endpoint._Server):
        monkeypatch.setattr(kind, "answers_within_s", 2.0 * WITHIN_S)
    with ExitStack() as opened:
        strangers = [socket.socket() for _ in range(4 * MOST_CONNECTIONS)]
        for each in strangers:
            opened.enter_context(closing(each)).setblocking(False)
            each.connect_ex((HERE, port))
            time.sleep(0.003)  # a short queue drops those who come at once
        until = time.monotonic() + WITHIN_S
        for number in count():
            for each in strangers:  # none is silent for long
                with suppress(OSError):
                    each.sendall(b"x")
            time.sleep(0.1)
            is_over = answering() <= MOST_CONNECTIONS + 1
            if (is_over and number > 5) or time.monotonic() > until:
                break
        assert answering() <= MOST_CONNECTIONS + 1


def test_a_request_has_one_time_limit_however_slowly_its_bytes_come(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (BoundedConnections, endpoint._Server):
        monkeypatch.setattr(kind, "answers_within_s", 0.3)
    with (
        socket.create_connection((HERE, port)) as stranger,
        pytest.raises(ConnectionError),
    ):
        drip(stranger)

    until = time.monotonic() + WITHIN_S
    while answering() and time.monotonic() < until:
        time.sleep(0.01)
    assert not answering()


ROUNDS = 5


def test_tasks_and_reports_get_through_while_strangers_keep_coming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # a machine that halts, or is busy with the strangers, is not what is tested
    monkeypatch.setattr(task_reports, "_CONNECT_WITHIN_S", WITHIN_S)
    monkeypatch.setattr(task_reports, "_ANSWER_WITHIN_S", WITHIN_S)
    taken: list[dict[str, object]] = []
    permits = PermitServer(DriverAddress(HERE))
    reports = ReportListener(DriverAddress(HERE), taken.append, "reports")
    is_over = threading.Event()

    def come(port: int) -> None:
        while not is_over.wait(0.05):  # they share the interpreter with the tasks
            with ExitStack() as opened:
                for _ in range(2 * MOST_CONNECTIONS):
                    here = opened.enter_context(closing(socket.socket()))
                    here.connect_ex((HERE, port))

    ports = permits.address.port, int(reports.address.split(":")[1])
    strangers = [threading.Thread(target=come, args=(port,)) for port in ports]
    try:
        with permits.phase(ATTEMPT) as address, permit(address, ATTEMPT, "first"):
            for each in strangers:
                each.start()
            for number in range(ROUNDS):
                with permit(address, ATTEMPT, str(number)):
                    send_report(reports.address, {"number": number})
    finally:
        is_over.set()
        permits.close()
        reports.close()
        for each in strangers:
            if each.ident is not None:
                each.join(WITHIN_S)

    assert [one["number"] for one in taken] == [*range(ROUNDS)]
