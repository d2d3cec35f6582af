"""How costs grow: with partitions, records a batch, pending records, batches of a run.

``partitions``: a whole trigger of a query that reads nothing: planning, Spark's logs,
committing. ``idle``: a trigger that finds nothing new, after a record of each partition
was read. ``planning``: the same in the planning process alone, and the requests for
log starts and ends in both codes that send them. ``records``: a whole
trigger whose rows are counted. ``pending``: acknowledging records in random order.
``run``: what the planning process and its store hold after so many batches. ``query``:
what the JVM holds after so many micro-batches with a ``groupBy``, beside a query of
Spark's connector. The last two are flat where all is well.

``--draw FOLDER`` writes each as an SVG file; that needs matplotlib.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any
from unittest.mock import patch

from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from benchmarks.microbatch import SOURCES, count_by_key
from benchmarks.pending import ObviousManager, measure_random, our_manager
from benchmarks.report import Figures, Growth, drawn_to
from benchmarks.servers import broker, fill, session
from integration.cluster.interface import KafkaCluster
from integration.cluster.waiting import wait_until
from kafka_tx.kafka import admin as admin_module
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.collector import collector_paused
from kafka_tx.kafka.offset_requests import ListedOffset, list_offsets
from kafka_tx.model import Earliest, Latest, TopicPartition
from kafka_tx.spark.source.stream import KafkaTxStreamReader

LARGEST_TOPIC = 1_000
ROUNDS, WARM_UP = 8, 3
IDLE_TRIGGERS, IDLE_WARM_UP = 25, 5
LARGE = 1_000_000
"""Records: a trigger of more is run twice, the first time to warm up."""
OF_ONE_BROKER = 10_000
"""Partitions, since each of them takes files."""
NAMES = {"kafka_tx": "kafka_tx, with tx.id", "kafka": "Spark's connector"}

Use = Callable[[DataFrame, int], None]


# --- whole triggers -------------------------------------------------------------------


def drop(_: DataFrame, __: int) -> None:
    """Read nothing of a micro-batch."""


def count(df: DataFrame, _: int) -> None:
    """Read every row of it."""
    df.selectExpr("sum(length(value))").collect()


@contextmanager
def caught_up(
    spark: SparkSession, source: str, options: Mapping[str, str], use: Use
) -> Iterator[list[float]]:
    """Run a query until its topics are read: the milliseconds of each trigger."""
    with query_of(spark, source, options, use) as writer:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        taken = [p["durationMs"] for p in query.recentProgress]
        yield [t["triggerExecution"] for t in taken if "addBatch" in t]


@contextmanager
def query_of(
    spark: SparkSession, source: str, options: Mapping[str, str], use: Use
) -> Iterator[DataStreamWriter]:
    """A query with a checkpoint of its own, which is not started yet."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        reader = spark.readStream.format(source).option("startingOffsets", "earliest")
        if source == "kafka_tx":
            durable = {"tx.id": "scale", "tx.store": f"sqlite:///{work}/store.db"}
            reader = reader.options(**durable)
        writer = reader.options(**options).load().writeStream.foreachBatch(use)
        yield writer.option("checkpointLocation", f"{work}/checkpoint")


def both(
    spark: SparkSession, options: Mapping[str, str], use: Use, warm_up: int = WARM_UP
) -> Figures:
    """Median milliseconds of a trigger, two runs of each source, alternating."""
    taken: dict[str, list[float]] = {source: [] for source in SOURCES}
    for source in (*SOURCES, *reversed(SOURCES)):
        with caught_up(spark, source, options, use) as triggers:
            taken[source] += triggers[warm_up:ROUNDS]
    return {f"{NAMES[source]}, ms": median(taken[source]) for source in SOURCES}


def trigger(cluster: KafkaCluster, topics: str, records: int) -> dict[str, str]:
    """Options that take so many records of all topics in one trigger."""
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": topics,
        "maxOffsetsPerTrigger": str(records),
    }


def by_records(cluster: KafkaCluster, spark: SparkSession, size: int) -> Figures:
    """So many records of 100 bytes a trigger, in four partitions."""
    rounds, warm_up = (2, 1) if size > LARGE else (ROUNDS, WARM_UP)
    fill(cluster, f"records-{size}", size * rounds, 100)
    return both(spark, trigger(cluster, f"records-{size}", size), count, warm_up)


def by_idle(cluster: KafkaCluster, spark: SparkSession, width: int) -> Figures:
    """Nothing new in any partition; two runs of each source, alternating."""
    options = trigger(cluster, wide(cluster, width, 1), width)
    taken: dict[str, list[float]] = {source: [] for source in SOURCES}
    for source in (*SOURCES, *reversed(SOURCES)):
        with query_of(spark, source, options, drop) as writer:
            query = writer.trigger(processingTime="0 seconds").start()
            try:
                taken[source] += idle_triggers(query)[IDLE_WARM_UP:]
            finally:
                query.stop()
    return {f"{NAMES[source]}, ms": median(taken[source]) for source in SOURCES}


def idle_triggers(query: StreamingQuery) -> list[float]:
    """Milliseconds of each trigger that found nothing new, once there are enough."""

    def found() -> list[float]:
        if error := query.exception():
            raise SystemExit(f"the query ended: {error}")
        taken = [p["durationMs"] for p in query.recentProgress]
        return [t["triggerExecution"] for t in taken if "addBatch" not in t]

    wait_until("idle triggers", lambda: len(found()) >= IDLE_TRIGGERS, timeout_s=300)
    return found()[:IDLE_TRIGGERS]


def by_partitions(cluster: KafkaCluster, spark: SparkSession, width: int) -> Figures:
    """One record of each partition a trigger, which nobody reads."""
    return both(spark, trigger(cluster, wide(cluster, width, ROUNDS), width), drop)


def wide(cluster: KafkaCluster, width: int, records: int) -> str:
    """Make topics of so many partitions together, with so many records in each."""
    number = -(-width // LARGEST_TOPIC)
    topics = [f"wide-{width}-{records}-{n}" for n in range(number)]
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 200}
    )
    for topic in topics:
        try:
            cluster.create_topic(topic, width // number, replication=1)
        except KafkaException as error:  # the client has asked twice by itself
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        for record in range(width // number * records):
            producer.produce(topic, b"v", partition=record % (width // number))
            if record % 50_000 == 0:
                producer.flush()  # its queue holds 100,000
        producer.flush()
    return ",".join(topics)


TRIGGERS = {"idle": by_idle, "partitions": by_partitions, "records": by_records}


# --- the planning process alone -------------------------------------------------------


class Planner:
    """Plans and commits one micro-batch after the other, as Spark asks for them."""

    def __init__(self, cluster: KafkaCluster, topics: str, records: int, work: str):
        self.store = Path(work, "store.db")
        mine = {
            "tx.id": "scale",
            "tx.store": f"sqlite:///{self.store}",
            "startingOffsets": "earliest",
        }
        self._reader = KafkaTxStreamReader(trigger(cluster, topics, records) | mine)
        self._at: Any = self._reader.initialOffset()

    def batch(self) -> float:
        """Milliseconds of processor time."""
        began = process_time()
        limit = self._reader.getDefaultReadLimit()
        end = json.loads(json.dumps(self._reader.latestOffset(self._at, limit)))
        tasks = self._reader.partitions(self._at, end)
        self._reader.commit(end)
        self._at = end
        assert tasks
        return (process_time() - began) * 1000

    def close(self) -> None:
        """End the query."""
        self._reader.stop()


def planning(cluster: KafkaCluster, width: int) -> Figures:
    """Processor time of a plan with its commit, and the memory that they hold."""
    with tempfile.TemporaryDirectory() as work:
        topics, before = wide(cluster, width, ROUNDS + 1), megabytes(os.getpid())
        planner = Planner(cluster, topics, width, work)
        taken = [planner.batch() for _ in range(ROUNDS)]
        held = megabytes(os.getpid()) - before
        planner.close()
    return {
        "plan and commit, ms": median(taken[WARM_UP:]),
        "memory, MB": max(held, 0.1),
        **asking(cluster, topics, width),
    }


@collector_paused()
def asking(cluster: KafkaCluster, topics: str, width: int) -> Figures:
    """Processor time of asking for all log starts and ends, in both codes in turn."""
    settings = client_settings(
        {"bootstrap.servers": cluster.bootstrap_servers}, purpose="admin"
    )
    names = topics.split(",")
    asked = [TopicPartition(t, n) for t in names for n in range(width // len(names))]
    questions = [dict.fromkeys(asked, Earliest()), dict.fromkeys(asked, Latest())]
    taken: dict[str, list[float]] = {"in native code": [], "in Python": []}
    admin = AdminConnection(settings)
    for number in range(2 * ROUNDS):
        code = "in Python" if number % 2 else "in native code"
        fewest = 0 if code == "in native code" else inf
        with patch.object(admin_module, "MANY", fewest):
            began = process_time()
            found = list_offsets(admin, questions, Deadline(60_000), committed=False)
            taken[code].append((process_time() - began) * 1000)
        assert all(
            isinstance(one, ListedOffset) for part in found for one in part.values()
        )
    return {
        f"asking {code}, ms": median(times[WARM_UP:]) for code, times in taken.items()
    }


def run(cluster: KafkaCluster, sizes: list[int]) -> dict[int, Figures]:
    """One run as long as the longest; looked at on its way."""
    found: dict[int, Figures] = {}
    topics = wide(cluster, 4, max(sizes) + 1)
    with tempfile.TemporaryDirectory() as work:
        planner = Planner(cluster, topics, 4, work)
        for number in range(1, max(sizes) + 1):
            took = planner.batch()
            if number in sizes:
                gc.collect()
                store = sum(f.stat().st_size for f in Path(work).iterdir()) / 1024
                found[number] = {
                    "store, KB": store,
                    "processor time, ms": took,
                    **held(os.getpid()),
                    "blocks of memory": float(sys.getallocatedblocks()),
                }
        planner.close()
    return found


# --- what a process holds -------------------------------------------------------------


def held(pid: int) -> dict[str, float]:
    """Memory, threads and open files, now."""
    return {
        "memory, MB": megabytes(pid),
        "threads": float(len(os.listdir(f"/proc/{pid}/task"))),
        "open files": float(len(os.listdir(f"/proc/{pid}/fd"))),
    }


def megabytes(pid: int) -> float:
    """The resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def query(
    cluster: KafkaCluster, spark: SparkSession, sizes: list[int]
) -> dict[int, Figures]:
    """Threads and open files of the JVM along two queries, one after the other."""
    topics = wide(cluster, 4, max(sizes))
    system = spark._jvm.java.lang  # type: ignore[union-attr]
    jvm = int(system.ProcessHandle.current().pid())
    found: dict[int, dict[str, float]] = {size: {} for size in sizes}

    def use(source: str, df: DataFrame, number: int) -> None:
        count_by_key(df, number)
        if number + 1 in sizes:
            seen = held(jvm)
            del seen["memory, MB"]  # a heap grows until it is collected
            found[number + 1] |= {f"{k}, {source}": seen[k] for k in seen}

    for source in reversed(SOURCES):
        with caught_up(
            spark, source, trigger(cluster, topics, 4), partial(use, source)
        ):
            pass
    return found


def pending(size: int) -> Figures:
    """Microseconds to acknowledge one of so many pending records."""
    order = list(range(size))
    random.Random(7).shuffle(order)
    return {
        "kafka_tx, µs a record": measure_random(our_manager(), order) / size * 1e6,
        "SortedDict, µs a record": measure_random(ObviousManager(), order) / size * 1e6,
    }


# --- the command ----------------------------------------------------------------------

SIZES = {
    "idle": [10, 100, 1_000, 5_000, 20_000],
    "partitions": [10, 100, 1_000, 5_000, 20_000],
    "planning": [10, 100, 1_000, 5_000, 20_000],
    "records": [1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    "pending": [1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    "run": [10, 100, 1_000, 10_000],
    "query": [10, 100, 500, 1_500],
}
AXES = {
    "idle": "partitions, none of which has new records",
    "partitions": "partitions, one record of each a trigger",
    "planning": "partitions, one record of each a batch",
    "records": "records of 100 B a trigger",
    "pending": "records pending in one partition",
    "run": "batches since the start",
    "query": "micro-batches since the start",
}


def each(sizes: list[int], one: Callable[[int], Figures]) -> dict[int, Figures]:
    """Measure each size and print it at once: the largest may take too long."""
    found: dict[int, Figures] = {}
    for size in sizes:
        found[size] = one(size)
        print(size, dict(found[size]), flush=True)
    return found


def measure(name: str, sizes: list[int]) -> Growth:
    """Start what it needs, measure each size, smallest first."""
    sizes = sorted(sizes)
    if name == "pending":
        return Growth(name, AXES[name], each(sizes, pending))
    few, many = sizes, list[int]()
    if name in ("idle", "partitions", "planning"):
        few = [size for size in sizes if size <= OF_ONE_BROKER]
        many = sizes[len(few) :]
    found: dict[int, Figures] = {}
    for number, of_them in enumerate((few, many), 1):
        if of_them:
            with broker(number) as cluster:
                found |= measure_on(cluster, name, of_them)
    return Growth(name, AXES[name], found)


def measure_on(
    cluster: KafkaCluster, name: str, sizes: list[int]
) -> Mapping[int, Figures]:
    """The same on these brokers."""
    if name == "run":
        return run(cluster, sizes)
    if name == "planning":
        return each(sizes, partial(planning, cluster))
    every_trigger = {
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.sql.streaming.noDataProgressEventInterval": "0",
    }
    with session(every_trigger) as spark:
        if name == "query":
            return query(cluster, spark, sizes)
        return each(sizes, partial(TRIGGERS[name], cluster, spark))


def main(arguments: list[str]) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale")
    parser.add_argument("only", nargs="*", choices=[[], *SIZES], help="default: all")
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="instead of the usual ones"
    )
    parser.add_argument("--draw", type=drawn_to, metavar="FOLDER", help="SVG files")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    given = parser.parse_args(arguments)
    found = []
    for name in given.only or SIZES:
        growth = measure(name, given.sizes or SIZES[name])
        growth.print()
        if given.draw:
            growth.draw(given.draw)
        found.append({"case": name, "sizes": growth.found})
    if given.json:
        print(json.dumps({"benchmark": "scale", "cases": found}))
