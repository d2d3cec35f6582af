"""What a user sees of a topology, and how they end it; the runner is a puppet."""

from __future__ import annotations

import pickle
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_tx.errors import ConfigError, FencedError, TransactionError
from kafka_tx.metrics.endpoint import Guest
from kafka_tx.metrics.events import OffsetsCommitted
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import LogBounds, LogPosition, TopicPartition
from kafka_tx.running.at_least_once.spout import KafkaSpout
from kafka_tx.spark.at_least_once import topology
from kafka_tx.spark.at_least_once.topology import (
    AtLeastOnceTopology,
    AtLeastOnceTopologyHandle,
    TopologyBuilder,
)
from kafka_tx.topology.declare.bolts import BasicBolt
from kafka_tx.topology.declare.spout_config import SpoutConfig
from kafka_tx.topology.declare.spout_hosts import BrokerHosts
from tests.local_engine import WordSpout


class Bolt(BasicBolt):
    def execute(self, row, collector):
        raise AssertionError


class Runner:
    """Ends when told to, unless it hangs."""

    id = "job"

    def __init__(self, *, hangs=False):
        self.registry = MetricsRegistry()
        self.has_ended = threading.Event()
        self.error: BaseException | None = None
        self.pollers: dict[str, Any] = {}
        totals = {"emitted": 10, "completed": 7, "skipped": 1}
        view = {"chunks": 2, "pending": 3, "waiting": 1}
        recent = [(view, {"emitted": 4}), (view, totals)]
        self.view, self.totals, self.recent = view, totals, recent
        self.calls: list[Any] = []
        self._hangs = hangs

    def end_within(self, timeout_s):
        self.within_s = timeout_s

    def stop(self, *, finish):
        self.calls.append(("stop", finish))
        if not self._hangs:
            self.has_ended.set()

    def abort(self, error):
        self.calls.append("abort")
        self.error = error
        self.has_ended.set()

    def pause(self):
        self.calls.append("pause")

    def activate(self):
        self.calls.append("activate")

    def wait_until_idle(self, timeout_s):
        return True


def handle_of(runner: Any):
    return AtLeastOnceTopologyHandle(runner, Guest(runner.registry))


def test_the_status_shows_what_is_now_and_what_was():
    status = handle_of(Runner()).status

    assert (status.chunks, status.pending, status.waiting) == (2, 3, 1)
    assert (status.emitted, status.completed, status.skipped) == (10, 7, 1)
    assert (status.failed, status.dead_letters, status.lag) == (0, 0, None)
    assert status.is_active


@pytest.mark.parametrize(("is_complete", "lag"), [(True, 5), (False, None)])
def test_the_lag_is_unknown_while_a_partition_is_not_open(is_complete, lag):
    runner = Runner()
    coordinator = SimpleNamespace(is_complete=is_complete)
    keeper = SimpleNamespace(id="job")
    parts = SimpleNamespace(coordinator=coordinator, keeper=keeper)
    runner.pollers["spout"] = SimpleNamespace(parts=parts)
    handle = handle_of(runner)
    p0 = TopicPartition("t", 0)
    handle.metrics.record_offsets(
        OffsetsCommitted(
            id="job",
            committed={p0: LogPosition(5, None)},
            committed_at_ms=0,
            commit_ms=1,
            bounds={p0: LogBounds(0, 10)},
        )
    )

    assert handle.status.lag == lag


@pytest.mark.parametrize("finish", [True, False])
def test_stopping_ends_it_and_leaves_no_error(finish):
    runner = Runner()
    handle = handle_of(runner)

    handle.stop(finish=finish)

    assert runner.calls == [("stop", finish)]
    assert not handle.isActive
    assert handle.exception() is None
    assert handle.awaitTermination(0)


def test_what_hangs_is_cut_off_and_told():
    runner = Runner(hangs=True)

    with pytest.raises(TransactionError, match="goes on from what is stored"):
        handle_of(runner).stop(timeout_s=0.01)

    assert runner.calls[-1] == "abort"


def test_what_ended_it_is_raised_by_every_wait():
    runner = Runner()
    handle = handle_of(runner)
    assert not handle.awaitTermination(0)

    runner.abort(FencedError("another owner"))

    for wait in (handle.awaitTermination, handle.process_all_available):
        with pytest.raises(FencedError):
            wait(0)
    assert isinstance(handle.exception(), FencedError)


def test_what_it_did_is_told_as_by_a_streaming_query():
    handle = handle_of(Runner())

    assert [progress.emitted for progress in handle.recentProgress] == [4, 10]
    assert handle.lastProgress.completed == 7


def test_it_can_be_paused():
    runner = Runner()
    handle = handle_of(runner)

    handle.pause()
    handle.activate()

    assert runner.calls == ["pause", "activate"]


def test_bolts_of_the_main_script_are_sent_by_value():
    class Local(BasicBolt):
        def execute(self, row, collector):
            pass

    builder = TopologyBuilder("job")
    builder.set_spout("spout", WordSpout())
    builder.set_bolt("work", Local).shuffle_grouping("spout")

    built = builder.build()

    assert isinstance(built, AtLeastOnceTopology)
    with pytest.raises(ConfigError, match="cannot be pickled"):
        builder.build(pickle.dumps)


def spouts_of(**configs):
    builder = TopologyBuilder("two")
    for name, config in configs.items():
        hosts = BrokerHosts("nowhere:9092")
        builder.set_spout(
            name, KafkaSpout(SpoutConfig(hosts=hosts, topic=name, **config))
        )
    builder.set_bolt("work", Bolt).shuffle_grouping(next(iter(configs)))
    return builder


def test_two_spouts_of_a_topology_have_no_id_in_common():
    with pytest.raises(ConfigError, match="'a' and 'b' have the same one"):
        spouts_of(a={"id": "same"}, b={"id": "same"}).build()

    shares = ({"id": "same", "task_index": n, "total_tasks": 2} for n in range(2))
    spouts_of(a=next(shares), b=next(shares)).build()
    spouts_of(a={}, b={}).build()


def test_jobs_that_share_the_partitions_of_an_id_say_which_one_they_are():
    share = {"id": "same", "task_index": 1, "total_tasks": 2}
    other = {**share, "task_index": 0}
    made = spouts_of(a=share, b={"id": "own"}, c={}, d=other).build()
    ids = {"a": "same", "b": "own", "c": made.id, "d": "same"}
    pollers: Any = {
        name: SimpleNamespace(keeper=SimpleNamespace(id=id_))
        for name, id_ in ids.items()
    }

    tasks = topology._tasks(made, pollers)

    assert tasks == {made.id: "0, 1 of 2", "same": "0, 1 of 2", "own": ""}
