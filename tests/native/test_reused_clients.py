"""Small ranges share clients; nobody may notice, but by the time it takes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from kafka_tx.errors import ConfigError, OffsetOutOfRangeError
from kafka_tx.model import (
    AtTime,
    Earliest,
    Latest,
    OffsetRange,
    TopicPartition,
    TopicPattern,
    Topics,
)
from kafka_tx.native import reader as reader_module
from kafka_tx.native.idle_clients import IdleClients, SharedClient, idle
from kafka_tx.native.reader import NativeClusterView, NativeRangeReader
from kafka_tx.testing import MemoryLog
from tests.native.asking import count_clients, for_consumer, range_of, values_of

VALUES = [b"%04d" % number for number in range(3_000)]


@pytest.fixture
def made(monkeypatch):
    """How many clients were made in this test, one by one."""
    idle.close_all()
    return count_clients(monkeypatch)


def waits_of(made):
    """How long brokers may hold back a fetch of each of these clients."""
    pairs = (zip(*[iter(each["settings"])] * 2, strict=True) for each in made)
    return [dict(each)["fetch.wait.max.ms"] for each in pairs]


def native(settings):
    return NativeRangeReader(settings, timeout_ms=5_000)


def test_small_ranges_take_turns_with_one_client(made, settings, topic):
    first, second = topic(b"a", b"b", b"c"), topic(b"d")

    assert values_of(native(settings), range_of(first, 0, 2)) == [b"a", b"b"]
    assert values_of(native(settings), range_of(second, 0, 1)) == [b"d"]
    assert values_of(native(settings), range_of(first, 2, 3)) == [b"c"]

    assert len(made) == 1


def test_any_order_of_ranges_gives_what_was_written(made, settings, cluster, topic):
    name, chance = topic(partitions=3), random.Random(7)
    for number, value in enumerate(VALUES):
        cluster.produce(name, value, partition=number % 3)
    cluster.flush()
    for _ in range(300):
        partition, start = chance.randrange(3), chance.randrange(1_000)
        end = min(1_000, start + chance.choice([1, 2, 50, 700]))
        wanted = OffsetRange(TopicPartition(name, partition), start, end)

        found = values_of(native(settings), wanted)

        assert found == VALUES[partition::3][start:end], wanted

    assert len(made) < 10, "clients were hardly ever used again"


def test_the_client_of_a_large_range_is_not_kept(made, settings, topic):
    values = [bytes(1_000)] * 3_000
    name = topic(*values)

    for _ in range(2):
        assert values_of(native(settings), range_of(name, 0, 3_000)) == values

    assert len(made) == 2


def test_how_large_records_were_decides_what_is_small(made, settings, topic):
    small, large = topic(*VALUES), topic(*[bytes(20_000)] * 60)

    for _ in range(3):
        assert len(values_of(native(settings), range_of(small, 0, 3_000))) == 3_000
    assert len(made) == 2, "known to be small after the first"

    for _ in range(3):
        assert len(values_of(native(settings), range_of(large, 0, 60))) == 60
    assert len(made) == 4, "known to be large after the first"


@pytest.mark.parametrize("waits_ms", ["500", 500])
def test_a_client_that_may_wait_for_long_at_the_end_is_not_shared(
    made, settings, topic, waits_ms
):
    name = topic(b"a", b"b")

    for start in (0, 1):
        given = settings | {"fetch.wait.max.ms": waits_ms}
        assert len(values_of(native(given), range_of(name, start, start + 1))) == 1

    assert len(made) == 2


def test_a_wait_that_is_no_number_is_refused_as_other_settings_are(settings, topic):
    given = settings | {"fetch.wait.max.ms": "often"}

    with pytest.raises(ConfigError, match=r"fetch\.wait\.max\.ms"):
        values_of(native(given), range_of(topic(b"a"), 0, 1))


@pytest.mark.parametrize(
    ("given_ms", "small_ms", "large_ms"),
    [(None, "0", "1"), ("90", "0", "90"), ("0", "0", "0")],
)
def test_a_broker_holds_back_only_the_fetches_of_large_ranges(
    made, cluster, topic, given_ms, small_ms, large_ms
):
    more = {} if given_ms is None else {"fetch_max_wait_ms": given_ms}
    given = for_consumer(bootstrap_servers=cluster.bootstrap_servers, **more)
    small, large = topic(b"a"), topic(*[bytes(20_000)] * 60)

    values_of(native(given), range_of(small, 0, 1))
    values_of(native(given), range_of(large, 0, 30))  # its records are not known yet
    values_of(native(given), range_of(large, 0, 60))

    waits_ms = waits_of(made)
    assert (waits_ms[0], waits_ms[-1]) == (small_ms, large_ms)


def test_a_client_for_questions_refuses_a_wait_that_is_no_number(settings):
    given = settings | {"fetch.wait.max.ms": "often"}

    with pytest.raises(ConfigError, match=r"fetch\.wait\.max\.ms"):
        native(given).client()


def test_other_settings_get_another_client(made, cluster, settings, topic):
    name = topic(b"a")
    others = for_consumer(
        bootstrap_servers=cluster.bootstrap_servers, client_id="another"
    )
    for given in (settings, others, settings, others):
        assert values_of(native(given), range_of(name, 0, 1)) == [b"a"]

    assert len(made) == 2


def test_two_ranges_at_a_time_have_two_clients(made, settings, topic):
    name = topic(b"a", b"b")
    first = native(settings).read(range_of(name, 0, 2))
    second = native(settings).read(range_of(name, 1, 2))

    assert next(first)["value"].to_pylist() == [b"a", b"b"]
    assert next(second)["value"].to_pylist() == [b"b"]

    assert len(made) == 2


def test_a_client_is_not_kept_when_the_range_was_left_early(made, settings, topic):
    name = topic(*VALUES)
    tiny = NativeRangeReader(settings, timeout_ms=5_000, batch_bytes=1)

    batches: Any = tiny.read(range_of(name, 0, 500))
    next(batches)
    batches.close()

    assert values_of(native(settings), range_of(name, 0, 1)) == VALUES[:1]
    assert len(made) == 2


def test_a_client_that_was_idle_for_long_is_not_used(
    made, settings, topic, monkeypatch
):
    name = topic(b"a")
    values_of(native(settings), range_of(name, 0, 1))

    monkeypatch.setattr(idle, "_kept_s", 0)

    values_of(native(settings), range_of(name, 0, 1))
    assert len(made) == 2


def test_a_range_that_is_not_there_is_asked_for_with_a_new_client(
    made, settings, topic
):
    name = topic(b"a", b"b")
    values_of(native(settings), range_of(name, 0, 1))

    with pytest.raises(OffsetOutOfRangeError, match=r"\[0, 2\)"):
        values_of(native(settings), range_of(name, 5, 6))

    assert len(made) == 2


@pytest.mark.parametrize("is_reused", [False, True])
def test_a_small_range_that_comes_late_is_awaited_with_a_client_that_pauses(
    made, cluster, topic, is_reused
):
    name = topic(b"a", b"b")
    given = for_consumer(bootstrap_servers=cluster.bootstrap_servers)
    if is_reused:
        values_of(native(given), range_of(name, 0, 1))
    late = range_of(name, 1, 4)

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(values_of, native(given), late)
        while len(made) < 2:
            time.sleep(0.05)
            assert not reading.done()
        for value in (b"c", b"d"):
            cluster.produce(name, value)
        cluster.flush()

        assert reading.result() == [b"b", b"c", b"d"]
    assert waits_of(made) == ["0", "1"]


def test_at_most_two_clients_are_kept(made, cluster, topic):
    name = topic(b"a")
    for number in range(4):
        given = for_consumer(
            bootstrap_servers=cluster.bootstrap_servers, client_id=f"client-{number}"
        )
        values_of(native(given), range_of(name, 0, 1))

    assert len(idle) == 2


def test_idle_clients_are_closed_though_nobody_asks(settings, topic, monkeypatch):
    kept = IdleClients(kept_s=0.5)
    monkeypatch.setattr(reader_module, "idle", kept)
    name, given_up_at = topic(b"a"), time.monotonic() + 10
    for given in (settings, settings | {"client.id": "another"}):
        values_of(native(given), range_of(name, 0, 1))
        assert len(kept)

    while len(kept):
        assert time.monotonic() < given_up_at
        time.sleep(0.05)


def test_a_fork_makes_its_own(settings, topic):
    name = topic(b"a", b"b")
    values_of(native(settings), range_of(name, 0, 1))
    child = os.fork()
    if not child:
        is_right = False
        try:
            is_right = values_of(native(settings), range_of(name, 1, 2)) == [b"b"]
        finally:
            os._exit(0 if is_right else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert values_of(native(settings), range_of(name, 1, 2)) == [b"b"]


FORKS = """
import os, sys
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.native.reader import NativeRangeReader
settings = client_settings({"bootstrap.servers": sys.argv[1]}, purpose="consumer")
wanted = OffsetRange(TopicPartition(sys.argv[2], 0), 0, 1)
assert sum(b.num_rows for b in NativeRangeReader(settings).read(wanted)) == 1
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_fork_that_ends_as_processes_do_does_not_wait_for_the_parents_threads(
    cluster, topic
):
    forks = [sys.executable, "-c", FORKS, cluster.bootstrap_servers, topic(b"a")]

    assert subprocess.run(forks, timeout=300).returncode == 0


OPEN_RANGE = """
import os, sys
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.native.reader import NativeRangeReader
settings = client_settings({"bootstrap.servers": sys.argv[1]}, purpose="consumer")
wanted = OffsetRange(TopicPartition(sys.argv[2], 0), 0, 2)
batches = NativeRangeReader(settings, batch_bytes=1).read(wanted)
next(batches)
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    assert [b.num_rows for b in batches] == [1]
else:
    try:
        next(batches)
    except ValueError as error:
        assert "another process" in str(error)
    else:
        raise AssertionError("a fork read on")
    batches.close()
"""


def test_a_fork_leaves_an_open_range_to_its_parent(cluster, topic):
    forks = [sys.executable, "-c", OPEN_RANGE, cluster.bootstrap_servers]

    assert subprocess.run([*forks, topic(b"a", b"b")], timeout=300).returncode == 0


def test_a_task_asks_for_bounds_with_the_client_that_reads_the_log(
    made, settings, topic
):
    name = topic(b"a", b"b")
    partition = TopicPartition(name, 0)
    poll = NativeClusterView(
        native(settings), lambda: pytest.fail("another view was asked")
    )

    (described,) = poll.topics(Topics((name,))).values()
    ends = poll.offsets({partition: Latest()}), poll.offsets({partition: Earliest()})
    poll.close()
    read = values_of(native(settings), range_of(name, 0, 2))

    assert described.partitions == [partition]
    assert ends == ({partition: 2}, {partition: 0})
    assert read == [b"a", b"b"]
    assert len(made) == 1


def test_a_task_asks_another_view_what_its_client_cannot_tell(settings, topic):
    name = topic(b"a")
    log = MemoryLog({name: 1})
    poll = NativeClusterView(native(settings), lambda: log)
    partition = TopicPartition(name, 0)

    assert poll.offsets({partition: AtTime(5)}) == {partition: None}
    assert poll.topics(TopicPattern(name)).keys() == {name}
    assert poll.topics(Topics(("absent",))) == {}
    poll.close()


def test_a_client_that_has_read_100_ranges_is_closed():
    clients = IdleClients()

    for read, is_kept in ((98, True), (99, False)):
        clients.keep(("a",), SharedClient(cast("Any", object()), read))
        assert (clients.take(("a",)) is not None) is is_kept
