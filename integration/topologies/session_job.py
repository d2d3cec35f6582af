"""Topologies and queries, busy and idle, whose Spark session ends under them."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import kafka_tx
from integration.cluster.spark_local import local_session


class Sleep(kafka_tx.BasicBolt):
    """Works for longer than anybody waits; says that it began."""

    def __init__(self, began: str) -> None:
        self.began = Path(began)

    def execute(self, row: Any, collector: Any) -> None:
        self.began.touch()
        time.sleep(600)


def numbered(name: str, work: Path, rows: int) -> Any:
    spout = kafka_tx.MemoryTransactionalSpout([[(1,)] * rows], "n bigint", 5)
    builder = kafka_tx.TransactionalTopologyBuilder(name, "spout", spout)
    builder.set_bolt("sleep", Sleep(str(work / name))).shuffle_grouping("spout")
    return builder.build()


def records(name: str, work: Path, servers: str, topic: str) -> Any:
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(servers),
        topic=topic,
        id=name,
        scheme=kafka_tx.MetadataScheme(),
        store=f"sqlite:///{work}/offsets.db",
    )
    builder = kafka_tx.TopologyBuilder(name)
    builder.set_spout("spout", kafka_tx.KafkaSpout(config))
    builder.set_bolt("sleep", Sleep(str(work / name))).shuffle_grouping("spout")
    return builder.build()


def queries(spark: Any, given: argparse.Namespace) -> None:
    """One that has planned and one whose planner waits, with and without ``tx.id``."""
    hole = f"127.0.0.1:{given.hole}"
    store = {"tx.id": "q", "tx.store": f"sqlite:///{given.work}/queries.db"}
    silent = {"tx.id": "q", "tx.store": f"postgresql://a:b@{hole}/db"}
    started = [
        query(spark, given, "planned", given.servers, **store),
        query(spark, given, "without", given.servers),
    ]
    for each in started:
        while not each.recentProgress:
            time.sleep(0.1)
    query(spark, given, "store", given.servers, **silent)
    query(spark, given, "brokers", hole)


def query(
    spark: Any, given: argparse.Namespace, name: str, servers: str, **more: str
) -> Any:
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": given.full,
        "startingOffsets": "earliest",
        **more,
    }
    rows = spark.readStream.format("kafka_tx").options(**options).load()
    writing = rows.writeStream.format("noop").queryName(name)
    return writing.option("checkpointLocation", f"{given.work}/{name}").start()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("work", "servers", "full", "empty", "how", "hole"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    work = Path(given.work)
    spark = local_session(work / "spark", cores=4)
    gateway: Any = spark.sparkContext._gateway
    handles = topologies(spark, given, work)
    attached = kafka_tx.attach(spark, metrics_port=0)
    queries(spark, given)
    wait_for_line("go")

    if given.how in ("stop", "kill"):
        ended = time.monotonic()
        waits = [threading.Thread(target=wait, args=(h, ended)) for h in handles]
        for each in waits:
            each.start()
        if given.how == "stop":
            spark.stop()
        else:
            os.kill(gateway.proc.pid, signal.SIGKILL)
        for each in waits:
            each.join()
        check_stopped(handles)
        attached.close()
        print("threads", ours(), flush=True)
        wait_for_line("end")
    elif given.how != "end":  # a signal comes
        print("waits for a signal", flush=True)
        threading.Event().wait()
    sys.exit(3)


def topologies(spark: Any, given: argparse.Namespace, work: Path) -> list[Any]:
    config = {"tx.store": f"sqlite:///{work}/state.db", "tx.timeoutMs": 600_000}
    handles = [
        numbered("numbered-busy", work, 5).start(spark, config),
        numbered("numbered-idle", work, 0).start(spark, config),
        records("records-busy", work, given.servers, given.full).start(spark, config),
        records("records-idle", work, given.servers, given.empty).start(spark, config),
    ]
    while not all((work / name).exists() for name in ("numbered-busy", "records-busy")):
        time.sleep(0.1)
    return handles


def check_stopped(handles: list[Any]) -> None:
    for handle in handles:
        handle.stop()
        assert not handle.isActive


def ours() -> list[str]:
    """Names of the threads of kafka_tx that are left."""
    deadline = time.monotonic() + 10
    while True:
        names = [each.name for each in threading.enumerate()]
        found = [name for name in names if name.startswith(("kafka-tx", "kafka_tx"))]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def wait_for_line(word: str) -> None:
    print("waits for", word, flush=True)
    assert sys.stdin.readline().strip() == word


def wait(handle: Any, ended: float) -> None:
    for call in (handle.awaitTermination, handle.process_all_available):
        try:
            call()
        except kafka_tx.errors.KafkaTxError as error:
            after_s = time.monotonic() - ended
            print(f"{handle.id} {call.__name__} {after_s:.1f} {error}", flush=True)


if __name__ == "__main__":
    main()
