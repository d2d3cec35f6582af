"""What a spout was opened with is released, whatever fails meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_tx.assembly import SystemClock
from kafka_tx.errors import FencedError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.running.at_least_once.poller import PollerParts
from kafka_tx.testing import MemoryLog
from kafka_tx.topology.rows.schemes import RawScheme


class Part:
    """Notes that it is closed."""

    def __init__(self, name, closed, *, hangs=False, error=None):
        self._name, self._closed = name, closed
        self._hangs, self._error = hangs, error

    def ends_within(self, rest_s):
        assert rest_s() == 1

    def close(self, timeout_s=0.0):
        self._closed.append(self._name)
        if self._error:
            raise self._error
        return not self._hangs


class Cluster(MemoryLog):
    def __init__(self, closed):
        super().__init__({})
        self._closed = closed

    def close(self):
        self._closed.append("cluster")


@pytest.fixture
def closed():
    return []


def parts(closed, *, error=None, hangs="", dead_letters=True):
    made: dict[str, Any] = {
        name: Part(name, closed, hangs=name == hangs) for name in ("keeper", "letters")
    }
    coordinator: Any = Part("coordinator", closed, error=error)
    return PollerParts(
        name="spout",
        coordinator=coordinator,
        cluster=Cluster(closed),
        keeper=made["keeper"],
        reader=MemoryLog({}),
        scheme=RawScheme(),
        dead_letters=made["letters"] if dead_letters else None,
        commit_interval_ms=1,
        registry=MetricsRegistry(),
        clock=SystemClock(),
        closing=(lambda: closed.append("view"),),
    )


def test_the_last_commit_is_made_before_anything_is_closed(closed):
    assert parts(closed).release(lambda: 1)

    assert closed == ["coordinator", "cluster", "view", "keeper", "letters"]


def test_a_last_commit_that_fails_is_logged_and_the_rest_is_closed(closed, caplog):
    assert parts(closed, error=FencedError("another owner")).release(lambda: 1)

    assert "the last commit of spout failed" in caplog.text
    assert "another owner" in caplog.text
    assert closed[-2:] == ["keeper", "letters"]


@pytest.mark.parametrize("hangs", ["keeper", "letters"])
def test_what_hangs_is_told(closed, hangs):
    assert not parts(closed, hangs=hangs).release(lambda: 1)

    assert closed[-2:] == ["keeper", "letters"]


def test_without_dead_letters_there_is_nothing_to_close_for_them(closed):
    assert parts(closed, dead_letters=False).release(lambda: 1)

    assert closed == ["coordinator", "cluster", "view", "keeper"]
