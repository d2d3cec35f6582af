"""The extension by itself: interruption, closing from outside, misuse."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

import pytest

from integration.promptness import TRIES, promptly
from kafka_tx.native.library import load

NOWHERE = ("bootstrap.servers", "127.0.0.1:1")
SOON_S, LONG_S = 0.2, 60.0


def extension():
    found, reason = load()
    assert found is not None, reason
    return found


def open_range(*settings, **more):
    given = {
        "client": extension().Client(settings=settings or NOWHERE),
        "topic": "orders",
        "partition": 0,
        "start": 0,
        "end": 10,
        "leader_epoch": -1,
        "has_headers": False,
        "batch_bytes": 1 << 20,
        "timeout_ms": 10_000,
        "grace_ms": 5_000,
    }
    return extension().Range(**(given | more))


class InterruptedTestError(Exception):
    pass


def test_a_signal_ends_the_waiting():
    def interrupt(*_):
        raise InterruptedTestError

    def wait():
        waiting = open_range()
        try:
            signal.setitimer(signal.ITIMER_REAL, SOON_S)
            with pytest.raises(InterruptedTestError):
                waiting.next()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            waiting.close()

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        promptly(wait, 5)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_closing_from_another_thread_ends_the_waiting():
    def closed():
        waiting = open_range()
        closer = threading.Timer(SOON_S, waiting.close)
        closer.start()
        with pytest.raises(ValueError, match="closed by another thread"):
            waiting.next()
        closer.join()
        return waiting

    waiting = promptly(closed, 5)

    with pytest.raises(ValueError, match="closed"):
        waiting.next()


def turns_beside_a_wait():
    waiting = open_range(timeout_ms=500)
    turns = 0

    def wait():
        with pytest.raises(extension().ReadError):
            waiting.next()

    thread = threading.Thread(target=wait)
    thread.start()
    while thread.is_alive():
        turns += 1
        time.sleep(0.01)
    waiting.close()
    return turns


def test_other_threads_run_while_it_waits():
    assert any(turns_beside_a_wait() > 10 for _ in range(TRIES))


def test_a_second_thread_is_turned_away():
    waiting = open_range()
    turned_away = []

    def intrude():
        try:
            waiting.next()
        except ValueError as error:
            turned_away.append(str(error))
        waiting.close()

    intruder = threading.Timer(SOON_S, intrude)
    intruder.start()
    with pytest.raises(ValueError, match="closed by another thread"):
        waiting.next()
    intruder.join()

    assert turned_away == ["the range is in use by another thread"]


def test_what_is_told_is_for_the_thread_that_waits_for_it():
    nowhere = ("bootstrap.servers", "127.0.0.1:1")
    producer = extension().Producer(settings=nowhere, suspect=())
    producer.produce(("orders",), b"k", b"v", None, -1, 0)
    told, is_refused = [], threading.Event()

    def flush():
        while not is_refused.is_set():
            with suppress(ValueError):  # while the news are taken
                producer.flush(200)

    def take_news():
        while True:
            told.append(producer.news())

    thread = threading.Thread(target=flush)
    thread.start()
    with pytest.raises(ValueError, match="in use by another thread"):
        take_news()
    is_refused.set()
    thread.join()

    while not any(told):
        producer.flush(200)
        told.append(producer.news())
    producer.purge()


def test_closing_twice_is_harmless():
    waiting = open_range()

    waiting.close()
    waiting.close()


def test_a_range_that_is_dropped_releases_its_threads():
    def threads():
        return set(os.listdir("/proc/self/task"))

    before = threads()
    opened = [open_range() for _ in range(3)]
    of_ranges = threads() - before
    assert of_ranges

    del opened

    ends_s = time.monotonic() + LONG_S
    while threads() & of_ranges and time.monotonic() < ends_s:
        time.sleep(0.01)  # the system shows an ended thread for a moment
    assert not threads() & of_ranges


def test_a_failure_is_told_again():
    waiting = open_range(timeout_ms=100)
    read_error = extension().ReadError

    with pytest.raises(read_error) as first:
        waiting.next()
    with pytest.raises(read_error) as second:
        waiting.next()
    waiting.close()

    assert first.value.args[0] == "timed out"
    assert first.value.args == second.value.args


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (("no.such.name", "1"), "No such configuration property"),
        (("fetch.wait.max.ms", "often"), "fetch.wait.max.ms"),
        (
            ("security.protocol", "ssl", "ssl.ca.location", "/nowhere"),
            "ssl.ca.location",
        ),
    ],
)
def test_a_refused_setting_is_a_failure_of_kind_settings(settings, text):
    with pytest.raises(extension().ReadError) as caught:
        open_range(*settings)

    assert caught.value.args[0] == "settings"
    assert text in caught.value.args[-1]


def test_wrong_arguments_are_type_errors():
    with pytest.raises(TypeError):
        extension().Client(settings=["bootstrap.servers", "127.0.0.1:1"])
    with pytest.raises(TypeError):
        open_range(client=None)
    with pytest.raises(TypeError):
        open_range("bootstrap.servers", 1)
    with pytest.raises(ValueError, match="NUL"):
        open_range("client.id", "a\0b")


def test_a_client_reads_one_range_at_a_time():
    client = extension().Client(settings=NOWHERE)
    reading = open_range(client=client)

    with pytest.raises(ValueError, match="reads another range"):
        open_range(client=client)
    reading.close()

    open_range(client=client).close()
