"""``kafka-tx demo``: a job that is killed three times, and counts right."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kafka_tx import assembly
from kafka_tx.cli.demo_job import (
    AFTER_SINK,
    BEFORE_SINK,
    READING,
    TX_ID,
    Comparison,
    Orders,
    compare,
)
from kafka_tx.cli.demo_screen import Scene, Screen
from kafka_tx.cli.java import find_java
from kafka_tx.errors import KafkaTxError
from kafka_tx.testing import quick_spark
from kafka_tx.testing.mock import Feed, MockCluster
from kafka_tx.testing.process_tree import ProcessTree
from kafka_tx.transactions.ledger.ledger import Ledger

DEFAULT_RECORDS = 200_000
FEWEST_RECORDS = 200
MOST_EMBEDDED = 2_000_000
_PER_PARTITION = 50_000  # the embedded broker forgets beyond 5 MB or 100,000 records
_FEWEST_PARTITIONS = 4
_KEPT_RATE = 10
_KEPT_WORDS = 50

_STORY = """
A Spark job counted words in numbered batches (txids). SIGKILL hit it{killed}
A spare process, whose Spark had started meanwhile, took over each time. It got the same
records under the same txid. It counted them where the result lacked that txid, and
skipped them where the result had it.
Within batches the job counted {rate:,.0f} records/s. Waiting for Spark to start took
{starts:.0f} of the {seconds:.0f} s.

Next: `kafka-tx demo --keep` keeps the broker for a job of your own, and README.md shows
how to change one word of a job that you have."""

SNIPPET = """\
import os, sys

from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable  # which has kafka_tx
spark = SparkSession.builder.getOrCreate()
words = (
    spark.readStream.format("kafka_tx")
    .option("kafka.bootstrap.servers", "{servers}")
    .option("subscribe", "{topic}")
    .option("startingOffsets", "earliest")
    .load()
    .selectExpr("string(value) AS word")
)
counts = words.groupBy("word").count()
query = counts.writeStream.outputMode("complete").format("console").start()
query.awaitTermination()
"""
"""A job on the broker that ``--keep`` keeps."""

_BATCHES = 6
_PRODUCING_S = 12.0
_POLL_EVERY_S = 0.1
_SILENCE_S = 180.0
_WORDS = 500


CRASHES = (READING, BEFORE_SINK, AFTER_SINK)
"""Where the job is killed in a batch; after the last, its checkpoint is deleted."""


def _produce(feed: Feed, records: int, stop: threading.Event) -> int:
    """Write words into the feed, evenly over some seconds; returns their number."""
    chance = random.Random(records)  # noqa: S311 - words, no secrets
    weights = [1 / rank for rank in range(1, _WORDS + 1)]
    words = chance.choices([f"word-{n:03}" for n in range(_WORDS)], weights, k=records)
    began = time.monotonic()
    sent = 0
    while sent < records and not stop.is_set():
        share = min(1.0, (time.monotonic() - began + 0.05) / _PRODUCING_S)
        due = max(sent, int(share * records))
        for word in words[sent:due]:
            feed.send(word)
        sent = due
        feed.poll(0.05)
    feed.flush()
    return sent


class Demo:
    """One whole demonstration.

    1. A thread produces words; the job (a process with its JVM and Python workers)
       counts them into a SQLite file. Meanwhile a spare process starts its Spark.
    2. For each of ``CRASHES`` the job halts at that point of a batch and is killed,
       with everything it started. The spare takes over, and the next one starts.
    3. The last run goes on until everything is counted. Counts are then compared, word
       by word, with what the brokers confirmed.
    """

    def __init__(
        self,
        kafka: dict[str, str],
        feed: Feed,
        records: int,
        work: Path,
        scene: Scene,
        screen: Screen,
    ) -> None:
        self._kafka = kafka
        self._feed = feed
        self._records = records
        self._work = work
        self._scene = scene
        self._screen = screen
        orders = self._orders(None, -1)
        self._checkpoint, self._halted = orders.checkpoint, orders.halted
        self._environment = {
            **quick_spark(work / "spark"),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        self._counts = orders.counts()
        self._started: list[ProcessTree] = []
        self._ledger = Ledger(assembly.open_store(orders.store, TX_ID))

    def run(self) -> Comparison:
        """Kill and restart the job, then compare.

        Raises:
            KafkaTxError: The job ended by itself, or nothing moves any more.
        """
        self._screen.say(
            f"producing {self._records:,} records into {self._scene.broker}"
        )
        stop = threading.Event()
        with ThreadPoolExecutor(1, "producer") as pool:
            produced = pool.submit(_produce, self._feed, self._records, stop)
            try:
                spare = self._start(0)
                for number, crash in enumerate(CRASHES, 1):
                    job, spare = spare, self._start(number)
                    self._run_until_killed(job, crash)
                self._run_to_the_end(spare, produced)
            finally:
                for started in self._started:
                    started.kill()
                stop.set()
                self._ledger.close()
        counted = self._counts.to_arrow().to_pydict().values()
        self._counts.close()
        return compare(self._feed.counts(), dict(zip(*counted, strict=True)))

    def _start(self, number: int) -> ProcessTree:
        """Start the process of a run; it waits until ``_count``."""
        halt_at = CRASHES[number] if number < len(CRASHES) else None
        job = ProcessTree(
            "kafka_tx.cli.demo_job",
            lambda events: self._orders(halt_at, events).to_json(),
            self._work / "log",
            self._environment,
        )
        self._started.append(job)
        return job

    def _count(self, job: ProcessTree) -> None:
        self._scene.begin_run()
        self._screen.say(f"run {self._scene.run} starts")
        job.say("count")

    def _run_until_killed(self, job: ProcessTree, crash: str) -> None:
        self._halted.unlink(missing_ok=True)
        self._count(job)
        self._watch(job, self._halted.exists)
        txid = self._scene.committed + 1
        job.kill()
        what = f"{crash} (txid {txid})"
        if crash == AFTER_SINK:
            shutil.rmtree(self._checkpoint)
            what += ", checkpoint deleted"
        self._scene.crashes.append(what)
        self._screen.say(f"SIGKILL {what}")

    def _run_to_the_end(self, job: ProcessTree, produced: Future[int]) -> None:
        def is_counted() -> bool:
            # what the brokers refused is raised here
            return (
                produced.done() and bool(produced.result()) and self._scene.is_counted
            )

        self._count(job)
        self._watch(job, is_counted)
        self._scene.phase = "stopping"
        self._screen.show(self._scene)
        job.say("finish")
        self._watch(job, lambda: job.code == 0)

    def _watch(self, job: ProcessTree, is_reached: Callable[[], bool]) -> None:
        moved_at, before = time.monotonic(), None
        while not is_reached():
            if job.code:
                raise KafkaTxError(
                    f"the job ended by itself (exit code {job.code}):\n{job.tail()}"
                )
            self._poll(job)
            now = (self._scene.phase, self._scene.counted, self._scene.committed)
            if now != before:
                moved_at, before = time.monotonic(), now
            if time.monotonic() - moved_at > _SILENCE_S:
                raise KafkaTxError(
                    f"nothing moved for {_SILENCE_S:.0f} s while the job was"
                    f" '{self._scene.phase}':\n{job.tail()}"
                )
            time.sleep(_POLL_EVERY_S)

    def _poll(self, job: ProcessTree) -> None:
        scene = self._scene
        for event in job.events():
            scene.phase = event["phase"]
            scene.is_working = event["txid"] is not None
            if event.get("skipped"):
                self._screen.say(f"txid {event['txid']} was counted before: skipped")
        state = self._ledger.load()
        scene.committed, scene.unfinished = state.txid, list(state.unfinished)
        scene.produced = self._feed.confirmed
        done = sum(state.committed.offsets.values()) if state.committed else 0
        scene.lag = scene.produced - done
        scene.counted = sum(self._counts.to_arrow()["value"].to_pylist())
        scene.sample()
        self._screen.show(scene)

    def _orders(self, halt_at: str | None, events: int) -> Orders:
        return Orders(
            kafka=self._kafka,
            topic=self._feed.topic,
            work=str(self._work),
            # rounded up for each partition, or a last batch has a record of each
            batch_records=-(-self._records // _BATCHES) + self._feed.partitions,
            halt_at=halt_at,
            events=events,
        )


def demo(
    records: Annotated[
        int, typer.Option(min=FEWEST_RECORDS, help="Records to produce.")
    ] = DEFAULT_RECORDS,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(help="Use this cluster instead of the embedded broker."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
    keep: Annotated[
        bool,
        typer.Option(
            help="Afterwards keep the broker, fill its topic, print a job to paste."
        ),
    ] = False,
) -> None:
    """Count words exactly once while a job is killed three times within a batch.

    The demo starts an embedded broker, a producer and a Spark job. It kills the job
    with SIGKILL while its tasks read, before the sink commits, and after the sink has
    committed. The third time, it also deletes the job's checkpoint. The exit code is 1
    if a count is wrong.
    """
    find_java()
    if bootstrap_servers is None and records > MOST_EMBEDDED:
        raise typer.BadParameter(
            f"the embedded broker holds {MOST_EMBEDDED:,} records at most; give a"
            " cluster with --bootstrap-servers",
            param_hint="--records",
        )
    console = Console(stderr=as_json)
    work = Path(tempfile.mkdtemp(prefix="kafka-tx-"))
    try:
        with _topic(bootstrap_servers, _partitions(records)) as (kafka, feed, broker):
            scene, result = _play(console, kafka, feed, Scene(broker, records), work)
            _report(console, result, scene, as_json=as_json)
            if keep:
                _keep(console, kafka, feed)
    except KafkaTxError as error:
        error.message += f"\nEverything of this run is kept in {work}"
        raise
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    shutil.rmtree(work, ignore_errors=True)
    if not result.is_exact or result.produced != records:
        raise typer.Exit(1)


def _partitions(records: int) -> int:
    return max(_FEWEST_PARTITIONS, -(-records // _PER_PARTITION))


def _play(
    console: Console, kafka: dict[str, str], feed: Feed, scene: Scene, work: Path
) -> tuple[Scene, Comparison]:
    with Screen(console) as screen:
        result = Demo(kafka, feed, scene.records, work, scene, screen).run()
        scene.phase = "done"
        screen.show(scene)
    return scene, result


@contextmanager
def _topic(
    bootstrap_servers: str | None, partitions: int
) -> Iterator[tuple[dict[str, str], Feed, str]]:
    """A new topic; on a real cluster it is deleted in the end."""
    name = f"kafka-tx-demo-{uuid.uuid4().hex[:8]}"
    if bootstrap_servers is None:
        with MockCluster() as cluster:
            cluster.create_topic(name, partitions)
            kafka = {"bootstrap.servers": cluster.bootstrap_servers}
            where = f"embedded, topic of {partitions} partitions"
            yield kafka, Feed(kafka, name, partitions), where
        return
    kafka = {"bootstrap.servers": bootstrap_servers}
    feed = Feed(kafka, name, partitions)
    feed.create_topic()
    try:
        yield kafka, feed, f"{bootstrap_servers}, topic {name}"
    finally:
        feed.delete_topic()


def _report(
    console: Console, result: Comparison, scene: Scene, *, as_json: bool
) -> None:
    crashes, seconds = len(scene.crashes), scene.seconds
    rate = result.counted / max(scene.working_s, 0.1)
    if as_json:
        report = {
            "produced": result.produced,
            "counted": result.counted,
            "lost": result.lost,
            "duplicated": result.duplicated,
            "crashes": crashes,
            "seconds": round(seconds, 1),
            "records_per_second": round(rate),
        }
        typer.echo(json.dumps(report))
        return
    style = "bold green" if result.is_exact else "bold red"
    console.print(
        f"produced {result.produced} · counted {result.counted} · lost {result.lost}"
        f" · duplicated {result.duplicated} · crashes {crashes}",
        style=style,
        highlight=False,
        soft_wrap=True,
    )
    killed = "".join(f"\n  - {crash}" for crash in scene.crashes)
    starts = seconds - scene.working_s
    console.print(
        _STORY.format(killed=killed, rate=rate, seconds=seconds, starts=starts),
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _keep(console: Console, kafka: dict[str, str], feed: Feed) -> None:
    snippet = SNIPPET.format(servers=kafka["bootstrap.servers"], topic=feed.topic)
    console.print(
        f"\nThe broker keeps running, and its topic gets {_KEPT_RATE} words a second."
        f" Paste this into {sys.executable}:\n\n{snippet}\nCtrl-C ends the broker.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    with contextlib.suppress(KeyboardInterrupt):
        for number in itertools.count():
            feed.send(f"word-{number % _KEPT_WORDS}")
            feed.poll(0)
            time.sleep(1 / _KEPT_RATE)
