"""What tasks report arrives, is believed only from tasks, and is known to be whole."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest
from pyspark import TaskContext

from integration.promptness import promptly
from kafka_tx.errors import ConfigError
from kafka_tx.model import OffsetRange, TopicPartition, TransactionAttempt
from kafka_tx.running.permit import PermitServer, permit
from kafka_tx.running.task_reports import (
    PORTS,
    DriverAddress,
    ReportListener,
    send_report,
)
from kafka_tx.source.read_reports import ReadReport, ReadReports
from kafka_tx.spark.queries.listener import _open_read_reports
from kafka_tx.spark.source import reports
from kafka_tx.spark.source.reports import ReadReportListener, send_read_report
from kafka_tx.spark.versions import names

P0 = TopicPartition("t", 0)
LOOPBACK = "127.0.0.1"


@pytest.fixture
def listener():
    listener = ReadReportListener(DriverAddress(LOOPBACK))
    yield listener
    listener.close()


class Task:
    """A task's context, as far as a report needs it."""

    def __init__(self, address, batch=3):
        self._properties = {
            reports.PROPERTY: address,
            names.QUERY_ID: "q",
            names.BATCH_ID: str(batch),
        }

    def getLocalProperty(self, name):  # noqa: N802 - Spark's name
        return self._properties.get(name)


@pytest.fixture
def in_task(monkeypatch, listener):
    monkeypatch.setattr(reports, "_given_up_until", {})

    def enter(address=None):
        task = Task(address or listener.address)
        monkeypatch.setattr(TaskContext, "get", lambda: task)

    enter()
    return enter


def span(start, end, partition=P0):
    return OffsetRange(partition, start, end)


def sizes_of(found):
    return [each.bytes for each in found.by_range.values()]


def test_a_report_arrives_whole(listener, in_task):
    send_read_report(ReadReport(span(0, 10), 8, 100, skipped=2, newest_ms=5))
    send_read_report(ReadReport(span(10, 20), 10, 50, newest_ms=9))
    send_read_report(
        ReadReport(span(10, 20), 10, 50, newest_ms=9)
    )  # the task ran twice

    found = listener.collect("q", 3).sums_of([span(0, 20)])
    assert found.records == 18
    assert found.bytes == 150
    assert found.newest_ms == 9
    assert found.skipped == {(P0, "retention"): 2}
    assert listener.collect("q", 3) is None


def test_none_is_lost_when_many_tasks_end_at_once(listener, in_task):
    def report(number):
        send_read_report(ReadReport(span(number, number + 1), 1, 1_000))

    with ThreadPoolExecutor(48) as pool:
        list(pool.map(report, range(1_152)))

    found = listener.collect("q", 3)
    assert len(found.by_range) == 1_152
    assert found.sums_of([span(0, 1_152)]).bytes == 1_152_000


def test_a_read_outside_any_stream_holds_up_no_report(listener, in_task, monkeypatch):
    """``spark.read`` in the thread that has called ``attach``."""
    outside = Task(listener.address)
    outside._properties = {reports.PROPERTY: listener.address}
    monkeypatch.setattr(TaskContext, "get", lambda: outside)
    send_read_report(ReadReport(span(0, 1), 1, 1))
    in_task()

    send_read_report(ReadReport(span(0, 1), 1, 1))

    assert sizes_of(listener.collect("q", 3)) == [1]


def test_a_worker_that_failed_reports_again_later(listener, in_task, monkeypatch):
    monkeypatch.setattr(reports, "_GIVEN_UP_S", 0.0)
    with socket.create_server((LOOPBACK, 0)) as nobody:
        port = nobody.getsockname()[1]
    in_task(f"{LOOPBACK}:{port}:x")
    send_read_report(ReadReport(span(0, 1), 1, 1))  # does not raise
    in_task()

    send_read_report(ReadReport(span(0, 1), 1, 1))

    assert sizes_of(listener.collect("q", 3)) == [1]


def test_a_driver_that_halts_for_some_seconds_is_waited_for():
    """Its system takes the connection; three short waits were over too soon."""
    goes_on, taken = threading.Event(), []

    def take(report):
        goes_on.wait(30)
        taken.append(report)

    driver = ReportListener(DriverAddress(LOOPBACK), take, "halts")
    threading.Timer(3.5, goes_on.set).start()
    try:
        send_report(driver.address, {"number": 1})
    finally:
        goes_on.set()
        driver.close()

    assert {"number": 1} in taken


def test_a_desk_that_was_given_up_costs_the_next_task_nothing(listener, in_task):
    with socket.create_server((LOOPBACK, 0)) as nobody:
        port = nobody.getsockname()[1]
    in_task(f"{LOOPBACK}:{port}:x")
    send_read_report(ReadReport(span(0, 1), 1, 1))

    def of_next_tasks():
        for _ in range(1_000):
            send_read_report(ReadReport(span(0, 1), 1, 1))

    promptly(of_next_tasks, 5)


@pytest.mark.parametrize(
    "change",
    [{"bytes": "many"}, {"start": None}, {"newest_ms": []}, {"topic": "x" * 2_000_000}],
    ids=lambda change: next(iter(change)),
)
def test_nonsense_is_not_taken_and_not_told_on_stderr(listener, change, capfd):
    good = {
        "query": "q",
        "batch": 3,
        "topic": "t",
        "partition": 0,
        "start": 0,
        "end": 1,
        "records": 1,
        "bytes": 1,
        "skipped": 0,
        "newest_ms": None,
    }

    send_report(listener.address, good)
    with pytest.raises(ConnectionError):
        send_report(listener.address, good | change)
    with pytest.raises(ConnectionError):
        send_report(
            listener.address.rpartition(":")[0] + ":guessed", good | {"bytes": 9}
        )

    assert sizes_of(listener.collect("q", 3)) == [1]
    assert capfd.readouterr().err == ""


def test_strangers_cost_no_threads(listener, in_task):
    host, port, _ = listener.address.rsplit(":", 2)
    before = threading.active_count()
    strangers = [socket.create_connection((host, int(port))) for _ in range(300)]

    send_read_report(ReadReport(span(0, 1), 1, 7))

    assert threading.active_count() - before < 100
    assert sizes_of(listener.collect("q", 3)) == [7]
    for stranger in strangers:
        stranger.close()


def test_an_address_of_another_machine_is_announced_and_not_listened_on():
    listener = ReadReportListener(DriverAddress("192.0.2.77", "192.0.2.78"))
    try:
        host, port, _ = listener.address.rsplit(":", 2)
        assert host == "192.0.2.77"
        with socket.create_connection((LOOPBACK, int(port)), 5):
            pass
    finally:
        listener.close()


def test_the_property_has_a_name_that_spark_hides():
    assert "token" in reports.PROPERTY  # spark.redaction.regex


@pytest.mark.parametrize(
    ("ranges", "is_whole"),
    [
        ([(0, 10)], True),
        ([(0, 4), (4, 10)], True),
        ([(0, 4), (5, 10)], False),
        ([(0, 9)], False),
        ([(1, 10)], False),
        ([(0, 11)], False),
        ([], False),
    ],
)
def test_a_batch_is_whole_when_every_offset_was_reported(ranges, is_whole):
    found = ReadReports()
    for start, end in ranges:
        found.add(ReadReport(span(start, end), 1, 1))

    sums = found.sums_of([span(0, 10), span(7, 7, TopicPartition("t", 1))])
    assert (sums.records is not None) is is_whole


def test_what_an_earlier_try_read_besides_is_not_counted():
    found = ReadReports()
    found.add(ReadReport(span(0, 10), 10, 100, skipped=7))
    found.add(ReadReport(span(7, 10), 3, 30))

    assert found.sums_of([span(7, 10)]).records == 3
    assert found.sums_of([span(7, 10)]).skipped == {}


def test_executors_reach_the_driver_at_a_port_that_was_chosen(free_ports):
    first, last = free_ports
    given = {"spark.driver.host": LOOPBACK, PORTS: f"{first}-{last}"}
    driver = DriverAddress.of(given.get)

    made = [ReportListener(driver, lambda report: None, "test") for _ in range(2)]

    assert [int(each.address.split(":")[1]) for each in made] == [first, last]
    with pytest.raises(ConfigError) as refusal:
        PermitServer(driver)
    for each in made:
        each.close()
    assert f"{LOOPBACK} with {first}-{last}: " in str(refusal.value)
    assert "in use. If the ports are taken, name more in " + PORTS in str(refusal.value)


def test_a_session_without_a_free_port_is_attached_and_says_what_is_not_measured(
    free_ports, caplog
):
    given = {"spark.driver.host": LOOPBACK, PORTS: str(free_ports[0])}
    context = SimpleNamespace(getConf=lambda: given)
    with socket.create_server((LOOPBACK, free_ports[0])):
        assert _open_read_reports(context) is None

    assert "bytes and newest timestamps are not measured" in caplog.text
    assert PORTS in caplog.text


def test_a_topology_without_a_free_port_runs_and_says_that_no_hang_is_reported(
    case, caplog
):
    def listen(*_):
        raise ConfigError(f"taken: {PORTS}")

    case.engine.listen = listen

    case.start()

    assert f"tasks cannot tell that a bolt hangs: [KAFKA_TX_CONFIG] taken: {PORTS}" in (
        caplog.text
    )


def test_an_address_of_another_machine_says_which_setting_to_change():
    driver = DriverAddress.of({"spark.driver.bindAddress": "192.0.2.78"}.get)

    with pytest.raises(ConfigError, match=r"set spark\.driver\.bindAddress to one"):
        PermitServer(driver)


@pytest.mark.parametrize("setting", ["spark.driver.host", "spark.driver.bindAddress"])
def test_tasks_reach_a_driver_with_an_ipv6_address(ipv6_loopback, setting):
    """Spark demands brackets around it, and adds them itself."""
    given = {"spark.driver.host": ipv6_loopback, setting: f"[{ipv6_loopback}]"}
    driver = DriverAddress.of(given.get)
    taken: list[object] = []
    attempt = TransactionAttempt(3, 1_000_000_000_007)
    with (
        closing(ReportListener(driver, taken.append, "test")) as listener,
        closing(PermitServer(driver)) as server,
    ):
        send_report(listener.address, {"read": 7})
        with server.phase(attempt) as address, permit(address, attempt, "note[0]"):
            taken.append("permitted")

    assert taken == [{"read": 7}, "permitted"]


def test_an_ipv6_address_of_another_machine_is_announced_too(ipv6_loopback):
    driver = DriverAddress.of({"spark.driver.host": "[2001:db8::77]"}.get)
    with closing(ReportListener(driver, lambda _: None, "test")) as listener:
        host, port, _ = listener.address.rsplit(":", 2)
        assert host == "2001:db8::77"
        with socket.create_connection((ipv6_loopback, int(port)), 5):
            pass


@pytest.fixture
def free_ports():
    """Two that follow each other, now free."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind((LOOPBACK, 0))
            port = one.getsockname()[1]
            with suppress(OSError, OverflowError):
                other.bind((LOOPBACK, port + 1))
                break
    return port, port + 1


@pytest.mark.parametrize("ports", ["", "many", "0", "20-10", "70000", "1-2-3"])
def test_ports_that_are_none_are_refused(ports):
    with pytest.raises(ConfigError, match="as in 40000-40019"):
        DriverAddress.of({PORTS: ports}.get)
