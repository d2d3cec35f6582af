"""Planning and recording one batch of a topology, without processing it.

A real spout asks a real broker for 1,000 partitions, and the transaction coordinator
writes to a real store: metadata before the batch, a record after it. The topic holds a
backlog, so brokers are asked once in several batches; with ``…-asking`` they are asked
for topics and bounds each time, as when a stream is up to date. The baseline does
it the plain way, as Storm did: it asks for the bounds of one partition after the other,
and keeps a row or node of JSON for each of them.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient

from benchmarks.report import Case
from integration.cluster import provider
from integration.cluster.interface import KafkaCluster
from kafka_tx import TransactionalKafkaSpout, assembly
from kafka_tx.protocols import Store
from kafka_tx.transactions.coordinator.actions import (
    Action,
    Initialize,
    StartBatch,
    StartCommit,
    Write,
)
from kafka_tx.transactions.coordinator.coordinator import TransactionCoordinator
from kafka_tx.transactions.coordinator.pacing import Pacing
from kafka_tx.transactions.layout.txid_layout import Door
from kafka_tx.transactions.ledger.ledger_reading import LedgerReader

WIDTH = 1_000
TOPIC = "topology-planning"
BATCHES = 20
WARM_UP = 4


def cases(cluster: KafkaCluster, runs: int) -> list[Case]:
    """One case for each kind of store."""
    _fill(cluster)
    found = []
    with _zookeeper() as zookeeper, tempfile.TemporaryDirectory() as work:
        for kind in ("sqlite", "zookeeper"):
            ours: list[float] = []
            asking: list[float] = []
            plain: list[float] = []
            for run in range(runs):
                place = f"{kind}{run}"
                if kind == "sqlite":
                    url, keep = _sqlite(Path(work) / f"{place}.db")
                else:
                    url, keep = _nodes(zookeeper, place)
                servers = cluster.bootstrap_servers
                ours += _batches(servers, url, "planning", asks=False)
                asking += _batches(servers, url, "asking", asks=True)
                plain += _plain(servers, keep)
            name = f"planning-{WIDTH}-{kind}"
            found += [
                Case(name, median(ours), median(plain), "ms"),
                Case(f"{name}-asking", median(asking), median(plain), "ms"),
            ]
    return found


def _fill(cluster: KafkaCluster) -> None:
    """As many records in each partition as there are batches."""
    cluster.create_topic(TOPIC, WIDTH)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for _ in range(BATCHES):
        for partition in range(WIDTH):
            producer.produce(TOPIC, b"v", partition=partition)
        producer.poll(0)
    producer.flush()


# --- as a topology --------------------------------------------------------------------


def _batches(servers: str, url: str, name: str, *, asks: bool) -> list[float]:
    """Milliseconds of each batch, from the question whether to plan it."""
    spout = TransactionalKafkaSpout(
        {
            "kafka.bootstrap.servers": servers,
            "subscribe": TOPIC,
            "maxRecordsPerPartition": 1,
        }
    )
    store = assembly.open_store(url, name)
    epoch = store.acquire()
    reader = LedgerReader(store.url, store.id, Door.TRANSACTIONAL)
    coordinator = TransactionCoordinator[Any](
        "transactional", Pacing(), reader, reader.read(store.read(), epoch)
    )
    spout.open()
    took = []
    for txid in range(1, BATCHES + 1):
        if asks:
            spout.open()  # it forgets what it saw
        began = time.perf_counter()
        metadata = _run_batch(spout, store, coordinator)
        took.append((time.perf_counter() - began) * 1000)
        assert len(metadata.ranges) == WIDTH
        assert coordinator.committed_txid == txid
    spout.close()
    store.close()
    return took[WARM_UP:]


def _run_batch(
    spout: Any, store: Store, coordinator: TransactionCoordinator[Any]
) -> Any:
    """Everything that happens to a batch but its processing and its committers."""
    metadata = None
    current = coordinator.committed_txid
    assert spout.is_ready()
    while coordinator.committed_txid == current:
        todo: list[Action[Any]] = coordinator.tick(0, is_ready=True)
        assert todo, "nothing more to do"
        while todo:
            match todo.pop(0):
                case Initialize(attempt=attempt, previous=previous):
                    metadata = spout.initialize_transaction(attempt.txid, previous)
                    is_empty = spout.is_empty(metadata)
                    todo += coordinator.initialized(
                        attempt, metadata, is_empty=is_empty
                    )
                case Write() as write:
                    store.write(write.epoch, write.put, write.delete)
                    todo += coordinator.stored(write.write_id)
                case StartBatch(attempt=attempt):
                    spout.batch(attempt, metadata)
                    todo += coordinator.processed(attempt)
                case StartCommit(attempt=attempt):
                    todo += coordinator.committed(attempt)
    return metadata


# --- the plain way --------------------------------------------------------------------

Keep = Callable[[int, dict[int, str]], None]


def _plain(servers: str, keep: Keep) -> list[float]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "planning"})
    ends = dict.fromkeys(range(WIDTH), 0)
    took = []
    for txid in range(1, 4):
        began = time.perf_counter()
        ranges = {}
        for partition, start in ends.items():
            low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition))
            ranges[partition] = (max(low, start), min(high, start + 1))
        keep(
            txid,
            {p: json.dumps({"start": s, "end": e}) for p, (s, e) in ranges.items()},
        )
        ends = {partition: end for partition, (_, end) in ranges.items()}
        took.append((time.perf_counter() - began) * 1000)
    consumer.close()
    return took[1:]


def _sqlite(path: Path) -> tuple[str, Keep]:
    def keep(txid: int, ranges: dict[int, str]) -> None:
        with closing(sqlite3.connect(f"{path}-plain")) as db:
            with db:
                db.execute("CREATE TABLE IF NOT EXISTS meta (txid, partition, text)")
                db.executemany(
                    "INSERT INTO meta VALUES (?, ?, ?)",
                    [(txid, partition, text) for partition, text in ranges.items()],
                )
            with db:
                db.execute("DELETE FROM meta WHERE txid < ?", (txid,))

    return f"sqlite:///{path}", keep


def _nodes(client: KazooClient, place: str) -> tuple[str, Keep]:
    def keep(txid: int, ranges: dict[int, str]) -> None:
        for partition, text in ranges.items():
            node = f"/plain/{place}/{partition}"
            client.create(f"{node}/{txid}", text.encode(), makepath=True)
            if txid > 1:
                client.delete(f"{node}/{txid - 1}")

    hosts = ",".join(f"{host}:{port}" for host, port in client.hosts)
    return f"zookeeper://{hosts}/ours/{place}", keep


@contextmanager
def _zookeeper() -> Iterator[KazooClient]:
    server = provider.chosen().zookeeper()
    server.start()
    client = KazooClient(server.hosts)
    try:
        client.start()
        yield client
    finally:
        client.stop()
        server.stop()
