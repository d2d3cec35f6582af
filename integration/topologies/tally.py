"""Running topologies on real servers: the tally, its end, and what may be left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from integration.cluster.interface import KafkaCluster, ZooKeeperServer
from integration.cluster.records import Produce
from integration.cluster.waiting import PATIENT_S, NotReadyError, wait_until
from integration.sizes import size
from integration.topologies import topology_job
from integration.topologies.topology_job import Trouble

PARTITIONS = 4
BATCHES = size(12, 25)
WITHIN_S = 600
STORES = ("sqlite", "zookeeper")
MODES = ("transactional", "opaque")


def even(produce: Produce, topic: str, records: int) -> dict[int, int]:
    """Write so many records evenly; where each partition ends."""
    for partition in range(PARTITIONS):
        produce(topic, ["v"] * (records // PARTITIONS), partition=partition)
    return dict.fromkeys(range(PARTITIONS), records // PARTITIONS)


def store_url(kind: str, zookeeper: ZooKeeperServer, place: Path) -> str:
    """A fresh store of that kind."""
    if kind == "sqlite":
        return f"sqlite:///{place}/state.db"
    return f"zookeeper://{zookeeper.hosts}/topologies/{place.name}"


def run_tally(
    spark: SparkSession,
    kafka: KafkaCluster,
    topic: str,
    mode: str,
    place: Path,
    store: str,
    trouble: Trouble,
    *,
    records: int,
) -> Any:
    """Run a tally to its end; its handle, stopped."""
    built = topology_job.topology(
        kafka.bootstrap_servers,
        topic,
        mode,
        str(place / "sink.db"),
        trouble,
        batch=max(records // BATCHES, 1),
    )
    settings = {"tx.store": store, "topology.max.spout.pending": 4, "tx.retryMs": 50}
    return run_out(built.start(spark, settings))


def run_out(handle: Any) -> Any:
    """Let a topology process all there is, and stop it."""
    with ending(handle):
        assert handle.process_all_available(WITHIN_S), handle.status
        handle.stop()
    return handle


@contextmanager
def ending(handle: Any) -> Iterator[Any]:
    """After the block the topology has ended, whatever happened: others need Spark."""
    try:
        yield handle
    finally:
        if handle.isActive:
            handle.stop(finish=False)


def committed_past(handle: Any, txid: int) -> None:
    """Wait until a topology has committed that batch."""
    deadline = time.monotonic() + 90
    while (handle.status.committed_txid or 0) < txid:
        assert time.monotonic() < deadline, handle.status
        assert handle.isActive, handle.exception()
        time.sleep(0.05)


class Leftovers:
    """What is there that was not there when this object was made.

    The session is shared: what earlier tests left behind is not our topology's.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext
        self._before = {name: poll() for name, poll in self._polls().items()}

    def none(self, within_s: float = PATIENT_S) -> bool:
        """Whether nothing is left; Spark gives its caches back a little later.

        Raises:
            NotReadyError: Something is; it says what.
        """
        try:
            wait_until("nothing is left", lambda: not self.found(), timeout_s=within_s)
        except NotReadyError as error:
            raise NotReadyError(f"{error}: {self.found()}") from None
        return True

    def found(self) -> dict[str, set[Any]]:
        """Jobs that run, RDDs that are cached, threads that live; by kind."""
        found = {n: poll() - self._before[n] for n, poll in self._polls().items()}
        return {name: new for name, new in found.items() if new}

    def _polls(self) -> dict[str, Callable[[], set[Any]]]:
        return {"jobs": self._jobs, "cached": self._cached, "threads": _threads}

    def _jobs(self) -> set[Any]:
        return set(self._context.statusTracker().getActiveJobsIds())

    def _cached(self) -> set[Any]:
        return {int(number) for number in self._context._jsc.getPersistentRDDs()}


def _threads() -> set[str]:
    return {t.name for t in threading.enumerate() if t.name.startswith("kafka-tx")}
