"""Offsets are mirrored beside the work: newest first, and nobody waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_tx.errors import BrokerUnavailableError, StateUnavailableError
from kafka_tx.kafka import mirror as of_mirror
from kafka_tx.kafka.mirror import MirrorThread
from kafka_tx.model import LogPosition, TopicPartition, Topics
from kafka_tx.offsets.retry import BackOff

P0 = TopicPartition("orders", 0)
WITHIN_S = 60


def at(offset: int) -> Callable[[], dict[TopicPartition, LogPosition]]:
    """The store is there."""
    return lambda: {P0: LogPosition(offset, None)}


class Group:
    """A group that is away until it is told to come back."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.tried = threading.Event()
        self.is_away = False
        self.is_closed = threading.Event()
        self.answers = threading.Event()
        self.answers.set()

    def store(self, positions: dict[TopicPartition, LogPosition]) -> None:
        self.tried.set()
        assert self.answers.wait(WITHIN_S)
        if self.is_away:
            raise BrokerUnavailableError("away")
        self.stored.append(positions[P0].offset)

    def close(self) -> None:
        self.is_closed.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        of_mirror, "_PAUSES", BackOff(initial_delay_ms=10, multiplier=2)
    )


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def failures() -> list[int]:
    return []


@pytest.fixture
def mirror(group: Group, failures: list[int]) -> Iterator[MirrorThread]:
    away: Any = group
    made = MirrorThread(away, Topics(("orders",)), lambda: failures.append(1))
    yield made
    group.answers.set()
    made.close()


def until(claim: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nobody_waits_for_a_group_that_does_not_answer(
    group: Group, mirror: MirrorThread
) -> None:
    group.answers.clear()
    mirror(at(1))
    assert group.tried.wait(WITHIN_S)

    for offset in range(2, 100):
        mirror(at(offset))
    assert group.stored == []

    group.answers.set()
    until(lambda: group.stored == [1, 99])  # the newest wins


def test_positions_of_topics_that_the_job_leaves_out_are_not_copied(
    group: Group, mirror: MirrorThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store keeps them; tools would show their lag as that of the job."""
    copied: list[object] = []
    monkeypatch.setattr(group, "store", copied.append)
    former = TopicPartition("former", 0)

    mirror(lambda: {former: LogPosition(3, None), P0: LogPosition(7, None)})
    mirror.close()

    assert copied == [{P0: LogPosition(7, None)}]


def test_what_failed_is_counted_and_sent_again_when_the_group_is_back(
    group: Group, mirror: MirrorThread, failures: list[int]
) -> None:
    group.is_away = True
    mirror(at(5))
    until(lambda: len(failures) >= 2)

    group.is_away = False

    until(lambda: group.stored == [5])


def test_the_last_offsets_are_sent_at_the_end(
    group: Group, mirror: MirrorThread
) -> None:
    mirror(at(7))
    mirror.close()
    mirror.close()
    mirror(at(8))  # too late: no error

    assert group.stored == [7]
    assert group.is_closed.is_set()


def test_the_end_waits_no_longer_than_it_is_told(
    group: Group, mirror: MirrorThread
) -> None:
    group.answers.clear()
    mirror(at(7))

    mirror.close(timeout_s=0.1)

    assert group.stored == []


def test_a_group_that_is_away_at_the_end_is_left(
    group: Group, mirror: MirrorThread, failures: list[int]
) -> None:
    group.is_away = True
    mirror(at(7))
    until(lambda: failures)

    mirror.close(WITHIN_S)

    assert group.is_closed.is_set()


def test_the_end_of_a_run_waits_until_all_is_sent(
    group: Group, mirror: MirrorThread
) -> None:
    group.answers.clear()
    mirror(at(5))
    assert group.tried.wait(WITHIN_S)
    assert not mirror.flush(timeout_s=0.05)

    group.answers.set()

    assert mirror.flush(WITHIN_S)
    assert group.stored == [5]


def test_the_end_of_a_run_does_not_wait_for_a_group_that_is_away(
    group: Group, mirror: MirrorThread
) -> None:
    group.is_away = True
    mirror(at(5))

    assert not mirror.flush(timeout_s=0.2)


# --- whose offsets they are -----------------------------------------------------------


class Stored:
    """What the store says; None: another owner has the id."""

    def __init__(self, offset: int | None) -> None:
        self.offset = offset
        self.asked = 0

    def __call__(self) -> dict[TopicPartition, LogPosition] | None:
        self.asked += 1
        return None if self.offset is None else at(self.offset)()


def test_a_fenced_owner_writes_nothing_more(
    group: Group, mirror: MirrorThread, failures: list[int]
) -> None:
    stored = Stored(5)
    group.is_away = True
    mirror(stored)
    until(lambda: failures)

    stored.offset, group.is_away = None, False
    asked = stored.asked
    until(lambda: stored.asked > asked)
    assert mirror.flush(WITHIN_S)
    mirror.close()

    assert group.stored == []


def test_the_last_try_of_a_fenced_owner_writes_nothing(
    group: Group, mirror: MirrorThread
) -> None:
    mirror(Stored(None))
    mirror.close(WITHIN_S)

    assert group.stored == []


def test_a_late_try_writes_what_the_store_has_then(
    group: Group, mirror: MirrorThread, failures: list[int]
) -> None:
    """The other process of the owner may have committed and copied more meanwhile."""
    stored = Stored(5)
    group.is_away = True
    mirror(stored)
    until(lambda: failures)

    stored.offset, group.is_away = 9, False

    until(lambda: group.stored)
    assert group.stored == [9]


def test_a_store_that_is_away_is_asked_again(
    group: Group, mirror: MirrorThread, failures: list[int]
) -> None:
    def away() -> dict[TopicPartition, LogPosition]:
        if len(failures) < 2:
            raise StateUnavailableError("away", store="memory:")
        return at(5)()

    mirror(away)

    until(lambda: group.stored)
    assert group.stored == [5]


def test_a_new_owner_writes_again_what_a_former_one_may_have_set_back(
    group: Group, mirror: MirrorThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_mirror, "_REPEATED_AFTER_S", (0.02, 0.04))
    monkeypatch.setattr(of_mirror, "_RENEWED_AFTER_S", 0.06)

    mirror(at(5))

    until(lambda: len(group.stored) >= 5)  # twice soon, then at the longer interval


def test_a_mirror_that_rests_tries_once_more_and_goes_on_when_called(
    group: Group, mirror: MirrorThread, failures: list[int]
) -> None:
    group.is_away = True
    mirror(at(5))
    until(lambda: failures)

    mirror.rest()

    assert mirror.flush(WITHIN_S)
    group.is_away = False
    assert group.stored == []
    mirror(at(6))
    until(lambda: group.stored == [6])
