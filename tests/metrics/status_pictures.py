"""The pictures of the status page in the docs: ``make pictures`` runs this.

Made-up jobs, so that every run shows the same things: a query that is behind on some
partitions, and a topology with two batches at a time and one that failed and was
replayed.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

from kafka_tx.metrics import BatchCommitted, MetricsRegistry, serve
from kafka_tx.metrics.activity import BatchEnded
from kafka_tx.metrics.events import InFlight
from kafka_tx.model import LogBounds, TopicPartition, located
from kafka_tx.transactions.layout.commit_stats import TaskSums
from tests.chromium import chromium

QUERY, TOPOLOGY = "order-counts", "invoice-totals"
BATCHES, EVERY_MS, FAILED = 40, 400, 31
VIEWS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1200, "height": 860}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1200, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
STORE = "postgresql+psycopg://app:***@db/kafka_tx"


class Scene:
    """Jobs whose last batch ends now."""

    def __init__(self) -> None:
        self._chance = random.Random(7)  # the same picture each time
        self._now_ms = self._end_ms = time.time_ns() // 1_000_000
        self.registry = MetricsRegistry(
            spark_version="4.2.0",
            monotonic_ms=lambda: self._now_ms,
            now_ms=lambda: self._now_ms,
        )
        self._job(QUERY, "source", 24, (30, 250, 0, 20))
        self._job(TOPOLOGY, "transactional topology", 8, (30, 520, 90, 70))

    def _job(
        self, id_: str, door: str, partitions: int, phases: tuple[int, ...]
    ) -> None:
        topic = id_.partition("-")[0] + "s"
        all_of_it = [TopicPartition(topic, number) for number in range(partitions)]
        given = {"subscribe": topic, "tx.id": id_, "tx.store": STORE}
        self._now_ms = self._end_ms - BATCHES * EVERY_MS
        self.registry.record_start(id_, door, given)
        for txid in range(1, BATCHES + 1):
            self._now_ms = self._end_ms - (BATCHES - txid) * EVERY_MS - 100
            self._batch(id_, txid, all_of_it, phases)
        self._now_ms = self._end_ms
        in_flight = [self._in_flight_of(BATCHES + 1, "processing", 380, 330)]
        if id_ == TOPOLOGY:  # a window of two, without a gap
            in_flight = [
                self._in_flight_of(BATCHES + 1, "committing", 700, 60),
                self._in_flight_of(BATCHES + 2, "processing", 380, 330),
            ]
        self.registry.record_in_flight(id_, in_flight)

    def _in_flight_of(
        self, txid: int, phase: str, age_ms: int, phase_ms: int
    ) -> InFlight:
        return InFlight(
            number=txid,
            phase=phase,
            since_ms=self._end_ms - age_ms,
            phase_since_ms=self._end_ms - phase_ms,
        )

    def _batch(
        self,
        id_: str,
        txid: int,
        partitions: list[TopicPartition],
        phases: tuple[int, ...],
    ) -> None:
        names = ("planning", "processing", "waiting", "committing")
        took = {
            n: self._chance.uniform(0.7, 1.3) * p
            for n, p in zip(names, phases, strict=True)
        }
        is_replay = id_ == TOPOLOGY and txid == FAILED
        if is_replay:
            failed = BatchEnded(
                number=txid,
                ended_ms=self._now_ms - 800,
                duration_ms=400,
                outcome="failed",
                phases_ms={"planning": 30, "processing": 370},
            )
            self.registry.record_attempt(id_, failed)
        committed = dict.fromkeys(partitions, 60_000 + 400 * txid)
        self.registry.record_commit(
            BatchCommitted(
                id=id_,
                txid=txid,
                starts=dict.fromkeys(partitions, 60_000 + 400 * txid - 400),
                committed=located(committed, {}, {}),
                bounds={p: self._log(id_, p, at) for p, at in committed.items()},
                committed_at_ms=self._now_ms,
                commit_ms=took["committing"],
                duration_ms=sum(took.values()),
                from_tasks=TaskSums(
                    records=self._chance.randrange(8_000, 10_000), phases_ms=took
                ),
                replays=int(is_replay),
            )
        )

    def _log(self, id_: str, partition: TopicPartition, committed: int) -> LogBounds:
        number = partition.partition
        is_behind = id_ == QUERY and number % 5 == 2
        more = (
            self._chance.randrange(900, 6_000) * (1 + number // 5) if is_behind else 0
        )
        start = committed - 700 if number == 22 else 20_000
        return LogBounds(start, committed + more)


def main(place: Path) -> None:
    """Write one picture for each of ``VIEWS``."""
    place.mkdir(exist_ok=True)
    with serve(Scene().registry, port=0) as endpoint, chromium() as browser:
        for name, view in VIEWS.items():
            tab = browser.new_page(**view)
            tab.goto(f"http://127.0.0.1:{endpoint.port}/")
            tab.locator(".job >> nth=1").wait_for()
            tab.locator(".cells").last.wait_for()
            tab.screenshot(path=place / f"status-{name}.png", full_page=True)
            tab.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
