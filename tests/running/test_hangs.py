"""Rows that bolts do not give back, noticed beside a task."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from integration.promptness import TRIES
from kafka_tx.model import TransactionAttempt
from kafka_tx.running.at_least_once import hangs
from kafka_tx.running.at_least_once.hangs import HangWatch
from kafka_tx.running.task_reports import DriverAddress, ReportListener, send_report
from kafka_tx.spark.at_least_once.topology import TopologyBuilder
from kafka_tx.topology.at_least_once.tasks import AtLeastOnceTask
from kafka_tx.topology.declare.bolts import BasicBolt
from kafka_tx.topology.plan.physical import TaskId
from tests.local_engine import GivenRecords, WordSpout

WITHIN_S = 60
ATTEMPT = TransactionAttempt(7, 1)
may_go = threading.Event()


class Hangs(BasicBolt):
    def execute(self, row, collector):
        if row.word == "hang":
            assert may_go.wait(WITHIN_S)
        if row.word == "slow":
            for _ in range(300):
                may_go.wait(0.002)
                collector.reset_timeout(row)


@pytest.fixture
def words() -> SimpleQueue[Any]:
    return SimpleQueue()


@pytest.fixture
def listener(words):
    may_go.clear()
    made = ReportListener(DriverAddress("127.0.0.1"), words.put, "test")
    yield made
    may_go.set()
    made.close()


def run(listener, *rows):
    builder = TopologyBuilder("job")
    builder.set_spout("spout", WordSpout())
    builder.set_bolt("work", Hangs).shuffle_grouping("spout")
    plan = builder.build().plan
    task = AtLeastOnceTask(plan, TaskId("spout", 0), ATTEMPT)
    source = GivenRecords(([(row,) for row in rows],), first_root=10)
    with HangWatch(listener.address, ATTEMPT, 0.2)(task):
        return list(task.process(source=source))


def test_the_driver_is_told_which_record_a_bolt_holds(listener, words):
    thread = threading.Thread(target=run, args=(listener, "a", "b", "hang", "c"))
    thread.start()

    while (word := words.get(timeout=WITHIN_S)).get("moves"):
        pass
    may_go.set()
    thread.join(WITHIN_S)

    assert (word["attempt"], word["component"]) == ("7:1", "work")
    assert word["roots"] == [12]


def test_a_bolt_that_resets_the_time_out_gets_on(listener, words):
    def is_taken_for_hanging():
        run(listener, "slow")
        reports = [words.get(timeout=WITHIN_S)]
        while not words.empty():
            reports.append(words.get())
        assert any(word.get("moves") for word in reports)
        return any(word.get("roots") for word in reports)

    assert not all(is_taken_for_hanging() for _ in range(TRIES))


class Ended(threading.Event):
    """Moves the clock on by so many seconds at each wait, and is set after the last."""

    def __init__(self, now, waits):
        super().__init__()
        self.now, self.waits = now, list(waits)

    def wait(self, timeout=None):
        if not self.waits:
            return True
        self.now[0] += self.waits.pop(0)
        return False


@pytest.mark.parametrize(
    ("waits", "is_told"),
    [
        ([1] * 7, False),
        ([1] * 8, True),
        ([1] * 4 + [100] + [1] * 2, False),  # stopped, and woken
        ([1] * 4 + [100] + [1] * 3, True),
    ],
)
def test_time_in_which_the_process_was_stopped_does_not_count(
    replace_in, monkeypatch, waits, is_told
):
    now, told = [0.0], []
    replace_in(hangs, "time", monotonic=lambda: now[0])
    monkeypatch.setattr(hangs, "send_report", lambda _, report: told.append(report))
    task: Any = SimpleNamespace(
        place=(1,), component="work", roots_at_work=lambda: np.array([7])
    )

    HangWatch("driver", ATTEMPT, 8)._watch(task, Ended(now, waits))

    assert [report["roots"] for report in told] == [[7]] * is_told


def test_a_stranger_is_not_heard(listener, words):
    host, port, _ = listener.address.rsplit(":", 2)
    with pytest.raises(ConnectionError):
        send_report(f"{host}:{port}:wrong", {"roots": [1]})
    send_report(listener.address, {"roots": [2]})

    assert words.get(timeout=WITHIN_S)["roots"] == [2]
    assert words.empty()
