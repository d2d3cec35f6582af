"""Queries that have nothing to read: what they hold and use, against Spark's connector.

So many queries of one session, each with a trigger a second, have read all there is.
Those of kafka_tx have a ``tx.id`` on SQLite. Counted are Spark's JVM and the processes
below it: their number, memory (shared pages in parts) and processor time.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.microbatch import SOURCES
from benchmarks.report import Case, print_report
from benchmarks.servers import broker, fill, session
from integration.cluster.interface import KafkaCluster
from integration.cluster.waiting import wait_until

TOPIC = "idle"
SETTLED_S, MEASURED_S = 5, 30
_TICKS = os.sysconf("SC_CLK_TCK")


def main(arguments: list[str]) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks idle")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 10, 50])
    given = parser.parse_args(arguments)
    cases = []
    with broker() as cluster, session() as spark:
        fill(cluster, TOPIC, 100, 100)
        for number in given.queries:
            found = {s: measured(spark, cluster, s, number) for s in SOURCES}
            for what, unit in {"processes": "", "memory": "MB", "cpu": "%"}.items():
                ours, theirs = (found[source][what] for source in SOURCES)
                cases.append(Case(f"{number} queries, {what}", ours, theirs, unit))
    print_report("idle", "Spark's connector", cases, as_json=given.json)


def measured(
    spark: SparkSession, cluster: KafkaCluster, source: str, number: int
) -> dict[str, float]:
    """What a session holds while its queries wait; processor time of one core."""
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    with waiting(spark, cluster, source, number):
        time.sleep(SETTLED_S)
        began, before = time.monotonic(), used_s(tree(jvm))
        time.sleep(MEASURED_S)
        used = (used_s(tree(jvm)) - before) / (time.monotonic() - began)
        processes = tree(jvm)
        return {
            "processes": float(len(processes)),
            "memory": sum(map(megabytes, processes)),
            "cpu": max(100 * used, 0.01),
        }


@contextmanager
def waiting(
    spark: SparkSession, cluster: KafkaCluster, source: str, number: int
) -> Iterator[None]:
    """So many queries that have read everything."""
    queries: list[StreamingQuery] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        try:
            for n in range(number):
                reader = spark.readStream.format(source).options(
                    **{
                        "kafka.bootstrap.servers": cluster.bootstrap_servers,
                        "subscribe": TOPIC,
                        "startingOffsets": "earliest",
                    }
                )
                if source == "kafka_tx":
                    store = f"sqlite:///{work}/store.db"
                    reader = reader.options(**{"tx.id": f"idle-{n}", "tx.store": store})
                writer = reader.load().writeStream.foreachBatch(lambda _df, _id: None)
                writer = writer.option("checkpointLocation", f"{work}/{n}")
                queries.append(writer.trigger(processingTime="1 second").start())
            wait_until(
                "all have read",
                lambda: all(has_read(query) for query in queries),
                timeout_s=900,
            )
            yield
        finally:
            for query in queries:
                query.stop()


def has_read(query: StreamingQuery) -> bool:
    """Whether its first batch is done; raises what has ended it."""
    error = query.exception()
    if error is not None:
        raise SystemExit(f"a query ended: {error}")
    return query.lastProgress is not None


def tree(root: int) -> list[int]:
    """A process and those below it."""
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            below.setdefault(parent, []).append(int(path.parent.name))
    found = [root]
    for process in found:
        found += below.get(process, [])
    return found


def used_s(processes: list[int]) -> float:
    """Processor time so far; of processes that are there now."""
    total = 0
    for process in processes:
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
            total += sum(map(int, fields.split()[11:13]))
    return total / _TICKS


def megabytes(process: int) -> float:
    """The resident memory of a process, with its part of shared pages."""
    with suppress(OSError):
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        return int(rollup.partition("Pss:")[2].split()[0]) / 1024
    return 0.0
