"""At-least-once topologies: records/s against plain consumers doing the same work.

Work for each record: the length of its value, added up. ``row`` does it in ``execute``,
``arrow`` with ``pyarrow.compute`` in ``execute_arrow``, ``two-bolts`` in a rich bolt
that emits the length anchored on its row, before a second bolt adds it up. The baseline
is two processes with a consumer of confluent-kafka each: ``consume(10_000)``, the same
function for each record, and a commit after each of these batches.

Consumers are timed from their first message to their last commit, topologies from
``start()`` to the last stored offset. The systems alternate in one session.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from multiprocessing.queues import Queue
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from benchmarks.report import Case, print_report
from benchmarks.servers import PARTITIONS, broker, fill, session
from kafka_tx import (
    BasicBolt,
    BrokerHosts,
    KafkaSpout,
    RichBolt,
    SpoutConfig,
    TopologyBuilder,
)

TOPIC = "at-least-once"
BYTES = 100
PROCESSES = ([0, 1], [2, 3])
"""The partitions of each plain consumer."""


def work(value: bytes) -> int:
    return len(value)


class AddLength(BasicBolt):
    def prepare(self, context: Any) -> None:
        self.total = 0

    def execute(self, row: Any, collector: Any) -> None:
        self.total += work(row.bytes)


class AddLengths(BasicBolt):
    def prepare(self, context: Any) -> None:
        self.total = 0

    def execute_arrow(self, batch: pa.RecordBatch, collector: Any) -> None:
        self.total += pc.sum(pc.binary_length(batch.column("bytes"))).as_py()


class EmitLength(RichBolt):
    fields = "length int"

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, row: Any) -> None:
        self.collector.emit((work(row.bytes),), [row])
        self.collector.ack(row)


class AddNumbers(BasicBolt):
    def prepare(self, context: Any) -> None:
        self.total = 0

    def execute(self, row: Any, collector: Any) -> None:
        self.total += row.length


TOPOLOGIES: dict[str, Sequence[type]] = {
    "row": (AddLength,),
    "arrow": (AddLengths,),
    "two-bolts": (EmitLength, AddNumbers),
}


def consume(
    servers: str, partitions: list[int], records: int, spans: Queue[tuple[float, float]]
) -> None:
    """Consume so many records with commits; put when it began and ended (Unix time)."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"plain-{time.time_ns()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in partitions])
    read = total = 0
    began = 0.0
    while read < records:
        messages = consumer.consume(min(10_000, records - read), 1.0)
        if not messages:
            continue
        began = began or time.time()
        for message in messages:
            total += work(message.value() or b"")
        read += len(messages)
        consumer.commit(asynchronous=False)
    assert total == records * BYTES
    spans.put((began, time.time()))
    consumer.close()


def plain(servers: str, records: int) -> float:
    """Seconds that two plain consumers take."""
    context = multiprocessing.get_context("spawn")
    spans = context.Queue()
    consumers = [
        context.Process(
            target=consume,
            args=(servers, part, records // PARTITIONS * len(part), spans),
        )
        for part in PROCESSES
    ]
    for each in consumers:
        each.start()
    began, ended = zip(*(spans.get(timeout=600) for _ in consumers), strict=True)
    for each in consumers:
        each.join()
    return float(max(ended) - min(began))


def topology(spark: SparkSession, servers: str, name: str) -> float:
    """Seconds that a topology takes, until all offsets are stored."""
    spout = KafkaSpout(SpoutConfig(hosts=BrokerHosts(servers), topic=TOPIC, id=name))
    builder = TopologyBuilder(name)
    builder.set_spout("spout", spout, PARTITIONS)
    last = "spout"
    for number, bolt in enumerate(TOPOLOGIES[name]):
        bolts = builder.set_bolt(f"bolt-{number}", bolt, PARTITIONS)
        bolts.shuffle_grouping(last)
        last = f"bolt-{number}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as store:
        began = time.monotonic()
        handle = builder.build().start(
            spark, {"tx.store": f"sqlite:///{store}/offsets.db"}
        )
        assert handle.process_all_available(600)
        took_s = time.monotonic() - began
        handle.stop()
    return took_s


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks at_least_once")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--runs", type=int, default=3, help="runs of each system")
    parser.add_argument("--records", type=int, default=3_000_000, help="in the topic")
    parser.add_argument(
        "--only", choices=TOPOLOGIES, action="append", help="only these topologies"
    )
    given = parser.parse_args(arguments)
    names = given.only or list(TOPOLOGIES)
    records = given.records // PARTITIONS * PARTITIONS
    taken: dict[str, list[float]] = defaultdict(list)
    with broker() as cluster, session() as spark:
        servers = cluster.bootstrap_servers
        fill(cluster, TOPIC, records, BYTES)
        topology(spark, servers, names[0])  # starts the workers
        for run in range(given.runs):
            for name in ["plain", *names][:: 1 if run % 2 else -1]:
                taken[name].append(
                    plain(servers, records)
                    if name == "plain"
                    else topology(spark, servers, name)
                )
    rates = {name: records / median(seconds) for name, seconds in taken.items()}
    cases = [
        Case(name, rates[name], rates["plain"], "records/s", less_is_better=False)
        for name in names
    ]
    print_report("at_least_once", "two plain consumers", cases, as_json=given.json)
