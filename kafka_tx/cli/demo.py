"""``kafka-tx demo``: a job that is killed three times in mid-batch and counts right."""

from __future__ import annotations

import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_tx import assembly
from kafka_tx.cli.demo_job import AFTER_SINK, BEFORE_SINK, READING, TX_ID, Orders
from kafka_tx.cli.demo_screen import Scene, Screen
from kafka_tx.cli.process_tree import ProcessTree
from kafka_tx.cli.word_count import Comparison, WordTable, compare
from kafka_tx.errors import KafkaTxError
from kafka_tx.kafka.feed import Feed
from kafka_tx.transactions.ledger import Ledger

_BATCHES = 12
_PRODUCING_S = 20.0
_LOOK_EVERY_S = 0.1
_SILENCE_S = 180.0
_WORDS = 500


@dataclass(frozen=True, slots=True)
class KillPoint:
    """A point of a batch's life where the job is killed."""

    point: str
    keeps_checkpoint: bool = True


CRASHES = (
    KillPoint(READING),
    KillPoint(BEFORE_SINK),
    KillPoint(AFTER_SINK, keeps_checkpoint=False),
)


class Producer:
    """Writes words into the feed from a thread, evenly over some seconds."""

    def __init__(self, feed: Feed, records: int, seconds: float) -> None:
        self._feed = feed
        self._records = records
        self._seconds = seconds
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether every record is confirmed.

        Raises:
            KafkaTxError: What the brokers refused.
        """
        if self._failure is not None:
            raise self._failure
        return self._feed.confirmed == self._records

    def stop(self) -> None:
        """Send no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._send()
        except KafkaTxError as error:
            self._failure = error

    def _send(self) -> None:
        chance = random.Random(self._records)  # noqa: S311 - words, no secrets
        weights = [1 / rank for rank in range(1, _WORDS + 1)]
        words = chance.choices(
            [f"word-{n:03}" for n in range(_WORDS)], weights, k=self._records
        )
        began = time.monotonic()
        sent = 0
        while sent < self._records and not self._stop.is_set():
            share = min(1.0, (time.monotonic() - began + 0.05) / self._seconds)
            due = max(sent, int(share * self._records))
            for word in words[sent:due]:
                self._feed.send(word)
            sent = due
            self._feed.poll(0.05)
        self._feed.flush()


class Demo:
    """One whole demonstration.

    1. A thread produces words; the job (a process with its JVM and Python workers)
       counts them into a SQLite file.
    2. For each of ``CRASHES`` the job stops dead at that point of a batch and is
       killed, with everything it started; then it is started again.
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
        self._table = WordTable(orders.result)
        self._ledger = Ledger(assembly.open_store(orders.store, TX_ID))

    def run(self) -> Comparison:
        """Kill and restart the job, then compare.

        Raises:
            KafkaTxError: The job ended by itself, or nothing moves any more.
        """
        self._screen.say(
            f"producing {self._records:,} records into {self._scene.broker}"
        )
        producer = Producer(self._feed, self._records, _PRODUCING_S)
        try:
            for crash in CRASHES:
                self._run_until_killed(crash)
            self._run_to_the_end(producer)
        finally:
            producer.stop()
            self._ledger.close()
        return compare(self._feed.counts(), self._table.counts())

    def _run_until_killed(self, crash: KillPoint) -> None:
        self._halted.unlink(missing_ok=True)
        with self._job(crash.point) as job:
            self._watch(job, self._halted.exists)
            txid = self._scene.committed + 1
            job.kill()
        told = f"{crash.point} (txid {txid})"
        if not crash.keeps_checkpoint:
            shutil.rmtree(self._checkpoint)
            told += ", checkpoint deleted"
        self._scene.crashes.append(told)
        self._screen.say(f"SIGKILL {told}")

    def _run_to_the_end(self, producer: Producer) -> None:
        with self._job(None) as job:
            self._watch(job, lambda: producer.is_done and self._scene.is_counted)
            self._scene.phase = "stopping"
            self._screen.show(self._scene)
            job.say("finish")
            self._watch(job, lambda: job.code == 0)

    @contextmanager
    def _job(self, halt_at: str | None) -> Iterator[ProcessTree]:
        self._scene.run += 1
        self._scene.phase = "starting Spark"
        self._screen.say(f"run {self._scene.run} starts")
        job = ProcessTree(
            "kafka_tx.cli.demo_job",
            lambda events: self._orders(halt_at, events).to_json(),
            self._work / "log",
            {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        )
        try:
            yield job
        finally:
            job.kill()

    def _watch(self, job: ProcessTree, is_reached: Callable[[], bool]) -> None:
        """Show what happens until it is reached."""
        moved_at, before = time.monotonic(), None
        while not is_reached():
            if job.code:
                raise KafkaTxError(
                    f"the job ended by itself (exit code {job.code}):\n{job.tail()}"
                )
            self._look(job)
            now = (self._scene.phase, self._scene.counted, self._scene.committed)
            if now != before:
                moved_at, before = time.monotonic(), now
            if time.monotonic() - moved_at > _SILENCE_S:
                raise KafkaTxError(
                    f"nothing moved for {_SILENCE_S:.0f} s while the job was"
                    f" '{self._scene.phase}':\n{job.tail()}"
                )
            time.sleep(_LOOK_EVERY_S)

    def _look(self, job: ProcessTree) -> None:
        scene = self._scene
        for event in job.events():
            scene.phase = event["phase"]
            if event.get("skipped"):
                self._screen.say(f"txid {event['txid']} was counted before: skipped")
        state = self._ledger.load()
        scene.committed, scene.unfinished = state.txid, list(state.unfinished)
        scene.produced = self._feed.confirmed
        done = sum(state.committed.offsets.values()) if state.committed else 0
        scene.lag = scene.produced - done
        scene.counted = self._table.total()
        scene.sample()
        self._screen.show(scene)

    def _orders(self, halt_at: str | None, events: int) -> Orders:
        return Orders(
            kafka=self._kafka,
            topic=self._feed.topic,
            work=str(self._work),
            batch_records=-(-self._records // _BATCHES),
            halt_at=halt_at,
            events=events,
        )
