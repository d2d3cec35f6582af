"""Planning and committing micro-batches of 1 to 5,000 partitions, without reading them.

The reader that Spark calls is asked as Spark's planning process asks it, on a real
broker and for every kind of store. ``plan``: where the next batch ends and what its
tasks read, with the ranges stored before Spark hears of them; ``commit``: its offsets
and txid recorded. ``group`` is the mirror into a Kafka group, beside a store in memory.

The baseline does it the plain way: it asks for the bounds of one partition after the
other and keeps a row, node or group offset for each of them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient

from benchmarks.plan_plainly import Keep, in_group, in_memory, in_rows, in_zookeeper
from benchmarks.report import Case, print_report
from benchmarks.servers import broker
from integration.cluster import provider
from integration.cluster.interface import KafkaCluster
from integration.cluster.postgresql import PostgresServer
from kafka_tx.spark.source.stream import KafkaTxStreamReader

WIDTHS = (1, 100, 1_000, 5_000)
STORES = ("memory", "sqlite", "postgresql", "zookeeper", "group")
LARGEST_TOPIC = 1_000
ROUNDS, WARM_UP = 12, 3
PLAIN_ROUNDS = 3

Milliseconds = tuple[list[float], list[float]]
"""Of plans and of commits."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one store keeps its state, and the same in the plain way."""

    options: dict[str, str]
    keep: Keep


def topics_of(width: int) -> dict[str, int]:
    """Topics and their partitions; a new set of them for every width."""
    count = -(-width // LARGEST_TOPIC)
    return {f"plan-{width}-{n}": width // count for n in range(count)}


def fill(cluster: KafkaCluster, width: int) -> None:
    """As many records in each partition as there are rounds."""
    for name, partitions in topics_of(width).items():
        cluster.create_topic(name, partitions)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 200}
    )
    for name, partitions in topics_of(width).items():
        for number in range(partitions * ROUNDS):
            producer.produce(name, b"v", partition=number % partitions)
        producer.flush()


# --- as the source does it ------------------------------------------------------------


def measure(cluster: KafkaCluster, width: int, options: dict[str, str]) -> Milliseconds:
    """Plan and commit batches of one record from each partition."""
    reader = KafkaTxStreamReader(
        {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": ",".join(topics_of(width)),
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(width),
            "tx.id": f"plan-{width}",
            **options,
        }
    )
    plans, commits = [], []
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    for _ in range(ROUNDS):
        began = time.perf_counter()
        end = json.loads(json.dumps(reader.latestOffset(start, limit)))
        tasks = reader.partitions(start, end)
        planned = time.perf_counter()
        reader.commit(end)
        committed = time.perf_counter()
        assert len(tasks) == width
        plans.append((planned - began) * 1000)
        commits.append((committed - planned) * 1000)
        start = end
    reader.stop()
    return plans[WARM_UP:], commits[WARM_UP:]


# --- the plain way --------------------------------------------------------------------


def measure_plainly(cluster: KafkaCluster, width: int, keep: Keep) -> Milliseconds:
    """The same with a question and an entry for each partition."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "plainly"}
    )
    partitions = [
        TopicPartition(name, number)
        for name, count in topics_of(width).items()
        for number in range(count)
    ]
    plans, commits = [], []
    for txid in range(1, PLAIN_ROUNDS + 1):
        began = time.perf_counter()
        ranges = {}
        for partition in partitions:
            low, high = consumer.get_watermark_offsets(partition)
            first = max(low, txid - 1)
            ranges[partition.topic, partition.partition] = (first, min(high, first + 1))
        keep(
            f"ranges/{txid}",
            {place: f'{{"start":{s},"end":{e}}}' for place, (s, e) in ranges.items()},
        )
        planned = time.perf_counter()
        keep("committed", {place: str(e) for place, (_, e) in ranges.items()})
        plans.append((planned - began) * 1000)
        commits.append((time.perf_counter() - planned) * 1000)
    consumer.close()
    return plans[1:], commits[1:]


# --- stores ---------------------------------------------------------------------------


@contextmanager
def opened(
    cluster: KafkaCluster, stores: list[str]
) -> Iterator[Callable[[str, int], Place]]:
    """Start the servers of these stores; the answer gives a fresh place in one."""
    with ExitStack() as stack:
        work = stack.enter_context(tempfile.TemporaryDirectory())
        urls = {"sqlite": f"sqlite:///{Path(work)}/", "memory": "memory:", "group": ""}
        if "postgresql" in stores:
            server = PostgresServer()
            stack.callback(server.stop)
            server.start()
            urls["postgresql"] = server.url()
        if "zookeeper" in stores:
            keeper = provider.chosen().zookeeper()
            stack.callback(keeper.stop)
            keeper.start()
            urls["zookeeper"] = keeper.hosts
            client = KazooClient(keeper.hosts)
            stack.callback(client.stop)
            client.start()

        def place(store: str, width: int) -> Place:
            url = urls[store]
            if store == "group":
                group = {"tx.store": "memory:group", "tx.commitGroupId": f"g{width}"}
                return Place(group, in_group(cluster.bootstrap_servers, width))
            if store == "memory":
                return Place({"tx.store": url}, in_memory())
            if store == "zookeeper":
                ours = {"tx.store": f"zookeeper://{url}/ours"}
                return Place(ours, in_zookeeper(client, f"/plain/{width}"))
            if store == "sqlite":
                file = f"{url}{width}"
                return Place({"tx.store": f"{file}.db"}, in_rows(f"{file}-plain.db"))
            return Place({"tx.store": url}, in_rows(url))

        yield place


def cases(cluster: KafkaCluster, width: int, store: str, place: Place) -> list[Case]:
    """A case for planning and one for committing."""
    plainly = measure_plainly(cluster, width, place.keep)
    ours = measure(cluster, width, place.options)
    found = [
        Case(f"{what}-{width}-{store}", median(mine), median(plain), "ms")
        for what, mine, plain in zip(("plan", "commit"), ours, plainly, strict=True)
    ]
    return found[1:] if store == "group" else found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks plan")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument(
        "--partitions", type=int, choices=WIDTHS, action="append", help="only these"
    )
    parser.add_argument(
        "--store", choices=STORES, action="append", help="only these stores"
    )
    given = parser.parse_args(arguments)
    stores = given.store or list(STORES)
    found: list[Case] = []
    with broker() as cluster, opened(cluster, stores) as place:
        for width in given.partitions or WIDTHS:
            fill(cluster, width)
            for store in stores:
                found += cases(cluster, width, store, place(store, width))
    print_report("plan", "one by one", found, as_json=given.json)
