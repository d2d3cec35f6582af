"""Queries that have nothing to read: what they hold and use, in one driver.

So many queries of one session, each with a trigger a second, have read all there is.
Four sources run in turn: kafka_tx with a ``tx.id`` on PostgreSQL and without one, a
source in Python that does nothing (``empty``), and Spark's connector.

* ``first``: seconds from the start of the first query to the end of the last first
  batch; ``started``: processor time of all processes until then, in seconds. Where
  others use the machine, compare this.
* ``processes``, ``threads``, ``memory``: of Spark's JVM and all below it; shared pages
  count in parts.
* ``private``, ``cpu``: of a planner, in the median: memory that it shares with nobody,
  and percent of a core.
* ``all cpu``: percent of a core of all processes.
* ``writes``, ``wal``: rows that were written and bytes of the log, in a minute, in the
  store. PostgreSQL's own analysis of tables is switched off: it writes log, too.

The cases compare with the goals: see ``GOALS``. ``--draw FOLDER`` writes an SVG file
for each of ``DRAWN``; that needs matplotlib.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median

import psycopg
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.empty_source import EmptySource
from benchmarks.report import Case, Figures, Growth, drawn_to, print_report
from benchmarks.servers import broker, fill, session
from integration.cluster.interface import KafkaCluster
from integration.cluster.postgresql import PostgresServer
from integration.cluster.running import running
from integration.cluster.waiting import wait_until

TOPIC = "idle"
SOURCES = ("tx.id", "kafka_tx", "empty", "kafka")
GOALS = {"tx.id": 30.0, "kafka_tx": 20.0}
"""Most private memory of a planner above an empty source's, in MB."""
GOAL_CPU = 0.25
"""Most percent of a core for a planner."""
SETTLED_S, MEASURED_S = 12, 30
_TICKS = os.sysconf("SC_CLK_TCK")
_PLANNER = "python_streaming_source_runner"
_WRITTEN = (
    "SELECT pg_current_wal_lsn() - '0/0', (SELECT"
    " sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables)"
)

_WITHOUT_OWN_WORK = ("ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()")
"""A new server analyses its own catalogue for minutes: 47 KB of log, without a user."""

DRAWN = {"first": "queries-first", "memory": "queries-memory", "all cpu": "queries-cpu"}
"""What is drawn, and in which file: seconds, MB, and percent of a core."""


def main(arguments: list[str]) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks idle")
    parser.add_argument("--json", action="store_true", help="one object as last line")
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 10, 50])
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=SOURCES)
    parser.add_argument("--seconds", type=int, default=MEASURED_S)
    parser.add_argument("--draw", type=drawn_to, metavar="FOLDER", help="SVG files")
    given = parser.parse_args(arguments)
    measured: dict[int, dict[str, Figures]] = {}
    with ExitStack() as stack:
        cluster, spark = stack.enter_context(broker()), stack.enter_context(session())
        database = stack.enter_context(running(PostgresServer()))
        for statement in _WITHOUT_OWN_WORK:
            database.execute(statement)
        spark.dataSource.register(EmptySource)
        fill(cluster, TOPIC, 100, 100)
        for source in SOURCES:  # so that no source pays for the session's first steps
            with Reads(spark, cluster, database, source).waiting(1):
                pass
        for number in given.queries:
            found = measured[number] = {}
            for source in given.sources:
                reads = Reads(spark, cluster, database, source)
                found[source] = reads.measured(number, given.seconds)
                print(f"{number} of {source}: {shown(found[source])}", flush=True)
    if given.draw:
        for figure, name in DRAWN.items():
            lines = {
                n: {s: f[figure] for s, f in measured[n].items()} for n in measured
            }
            Growth(name, "queries", lines).draw(given.draw)
    cases = [case for n, found in measured.items() for case in compared(n, found)]
    print_report("idle", "its goal", cases, as_json=given.json)


def shown(figures: Figures) -> str:
    """All figures in a line."""
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def compared(number: int, found: Mapping[str, Figures]) -> list[Case]:
    """The goals, as far as their sources were measured."""
    cases = []
    for source, goal in GOALS.items():
        if source not in found:
            continue
        ours, name = found[source], f"{number} queries, {source}"
        if "empty" in found:
            above = ours["private"] - found["empty"]["private"]
            cases.append(Case(f"{name}, a planner above empty", above, goal, "MB"))
        cpu = max(ours["cpu"], 0.001)
        cases.append(Case(f"{name}, a planner", cpu, GOAL_CPU, "% of a core"))
        if "kafka" in found:
            twice = 2 * found["kafka"]["first"]
            cases.append(Case(f"{name}, first batch of all", ours["first"], twice, "s"))
    return cases


class Reads:
    """Queries that read the topic by one source."""

    def __init__(
        self,
        spark: SparkSession,
        cluster: KafkaCluster,
        database: PostgresServer,
        source: str,
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._database = database
        self._source = source
        self._is_durable = source == "tx.id"

    def measured(self, number: int, seconds: float) -> Figures:
        """What a session holds while its queries wait."""
        jvm = self._spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
        began, used = time.monotonic(), sum(map(whole_s, tree(int(jvm))))
        with self.waiting(number):
            first_s = time.monotonic() - began
            used = sum(map(whole_s, tree(int(jvm)))) - used
            time.sleep(SETTLED_S)
            processes = tree(int(jvm))
            planners = [p for p in processes if is_planner(p)]
            since, written = time.monotonic(), self._written()
            before = {process: used_s(process) for process in processes}
            time.sleep(seconds)
            passed = time.monotonic() - since
            cpu = {p: 100 * max(used_s(p) - at, 0) / passed for p, at in before.items()}
            now = self._written()
            figures = {
                "first": first_s,
                "started": used,
                "processes": float(len(processes)),
                "threads": float(sum(map(threads, processes))),
                "memory": sum(memory(p)["Pss"] for p in processes),
                "all cpu": sum(cpu.values()),
            }
            if planners:
                private = [memory(p)["Private"] for p in planners]
                figures |= {
                    "private": median(private),
                    "planner threads": median(map(threads, planners)),
                    "cpu": median(cpu[p] for p in planners),
                }
            if self._is_durable:
                wal, rows = (
                    60 * (b - a) / passed for a, b in zip(written, now, strict=True)
                )
                figures |= {"writes": rows, "wal": wal}
            return figures

    def _written(self) -> tuple[float, float]:
        if not self._is_durable:
            return 0.0, 0.0
        url = self._database.url().replace("+psycopg", "")
        with psycopg.connect(url) as connection:
            found = connection.execute(_WRITTEN).fetchone()
        assert found is not None
        return float(found[0]), float(found[1] or 0)

    @contextmanager
    def waiting(self, number: int) -> Iterator[None]:
        """So many queries that have read everything."""
        queries: list[StreamingQuery] = []
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
            try:
                for n in range(number):
                    queries.append(self._start(n, work))
                wait_until(
                    "all have read",
                    lambda: all(has_read(query) for query in queries),
                    timeout_s=900,
                )
                yield
            finally:
                for query in queries:
                    query.stop()

    def _start(self, n: int, work: str) -> StreamingQuery:
        options = {
            "kafka.bootstrap.servers": self._cluster.bootstrap_servers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }
        if self._is_durable:
            options |= {
                "tx.id": f"idle-{Path(work).name}-{n}",
                "tx.store": self._database.url(),
            }
        source = "kafka_tx" if self._is_durable else self._source
        df = self._spark.readStream.format(source).options(**options).load()
        writer = df.writeStream.foreachBatch(lambda _df, _id: None)
        writer = writer.option("checkpointLocation", f"{work}/{n}")
        return writer.trigger(processingTime="1 second").start()


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


def is_planner(process: int) -> bool:
    """Whether Spark has started it for a streaming source in Python."""
    with suppress(OSError):
        return _PLANNER in Path(f"/proc/{process}/cmdline").read_text()
    return False


def used_s(process: int) -> float:
    """Processor time of a process so far; 0 if it has ended."""
    return ticks(process, 11, 13)


def whole_s(process: int) -> float:
    """As ``used_s``, with the children that have ended."""
    return ticks(process, 11, 15)


def ticks(process: int, first: int, end: int) -> float:
    """Seconds in these fields of a process's statistics; 0 if it has ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
        return sum(map(int, fields.split()[first:end])) / _TICKS
    return 0.0


def threads(process: int) -> int:
    """Number of threads of a process."""
    with suppress(OSError):
        return len(list(Path(f"/proc/{process}/task").iterdir()))
    return 0


def memory(process: int) -> Figures:
    """MB of a process: ``Pss`` counts shared pages in parts, ``Private`` does not."""
    found = {"Pss": 0.0, "Private": 0.0}
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]:
            name, _, size = line.partition(":")
            name = (
                "Private"
                if name.startswith("Private_") and "Huge" not in name
                else name
            )
            if name in found:
                found[name] += int(size.split()[0]) / 1024
    return found
