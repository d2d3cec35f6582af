"""An at-least-once topology that writes down every try, and can be killed.

Each try of a record is one line ``word partition offset milliseconds`` in a file of its
process, written before the try ends: ``done`` or ``failed``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import kafka_tx


class Try(NamedTuple):
    """One line."""

    word: str
    partition: int
    offset: int
    at_ms: int


class Work(kafka_tx.BasicBolt):
    """Fails some records at random, and the poisonous ones while it is told to.

    Args:
        place: Where the files go; a file named ``healed`` ends the poison.
        failing: The chance that a try fails.
        poison: (partition, offset) of records that fail always.
        holds_at: Offset from which on it waits to be killed.
    """

    def __init__(
        self,
        place: str,
        failing: float = 0.0,
        poison: tuple[tuple[int, int], ...] = (),
        holds_at: int | None = None,
    ) -> None:
        self.place, self.failing, self.poison = place, failing, set(poison)
        self.holds_at = holds_at

    def prepare(self, context: kafka_tx.TaskContext) -> None:
        path = Path(self.place) / f"tries-{os.getpid()}-{time.monotonic_ns()}"
        self.file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self.is_healed = (Path(self.place) / "healed").exists()

    def execute(self, row: Any, collector: Any) -> None:
        if self.holds_at is not None and row.offset >= self.holds_at:
            (Path(self.place) / "reached").touch()
            time.sleep(600)  # until it is killed
        is_poison = (row.partition, row.offset) in self.poison and not self.is_healed
        fails = is_poison or random.random() < self.failing
        word = "failed" if fails else "done"
        now_ms = time.time_ns() // 1_000_000
        line = f"{word} {row.partition} {row.offset} {now_ms}\n"
        os.write(self.file, line.encode())
        if fails:
            raise kafka_tx.FailedException("poison" if is_poison else "bad luck")

    def cleanup(self) -> None:
        os.close(self.file)


def tries(place: Path) -> list[Try]:
    """Everything that was tried so far, in order of time."""
    found = []
    for path in place.glob("tries-*"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                word, *numbers = line.split()
                found.append(Try(word, *map(int, numbers)))
    return sorted(found, key=lambda each: each.at_ms)


def done(place: Path) -> set[tuple[int, int]]:
    """The records that were completed at least once."""
    return {(t.partition, t.offset) for t in tries(place) if t.word == "done"}


def failures(place: Path) -> Counter[tuple[int, int]]:
    """How often records failed."""
    return Counter((t.partition, t.offset) for t in tries(place) if t.word == "failed")


def topology(config: kafka_tx.SpoutConfig, work: Work) -> Any:
    """Spout and bolt."""
    builder = kafka_tx.TopologyBuilder("spout-job")
    builder.set_spout("spout", kafka_tx.KafkaSpout(config), 2)
    builder.set_bolt("work", work, 2).shuffle_grouping("spout")
    return builder.build()


def hosts_of(given: Mapping[str, str]) -> Any:
    """Brokers, or ZooKeeper."""
    if "zookeeper" in given:
        return kafka_tx.ZkHosts(given["zookeeper"], refresh_freq_secs=2)
    return kafka_tx.BrokerHosts(given["servers"], refresh_freq_secs=2)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--given", required=True, help="JSON")
    return parser.parse_args(words)


def run(spark: Any, named: argparse.Namespace) -> None:
    """Work on what is there, or up to the hold."""
    given = json.loads(named.given)
    handle = start(spark, Path(named.work), given)
    assert handle.process_all_available(given["within_s"])
    print(handle.status, flush=True)
    handle.stop()


def start(spark: Any, place: Path, given: dict[str, Any]) -> Any:
    """Start the topology; its handle."""
    config = kafka_tx.SpoutConfig(
        hosts=hosts_of(given),
        topic=given["topic"],
        scheme=kafka_tx.MetadataScheme(),
        store=given["store"],
        state_update_interval_ms=500,
        socket_timeout_ms=5_000,
        retry_initial_delay_ms=100,
        retry_delay_multiplier=2.0,
    )
    holds_at = given.get("holds_at")
    work = Work(str(place), failing=given["failing"], holds_at=holds_at)
    settings = {"tx.chunkRecords": given["chunk"]}
    if holds_at is not None:
        settings["tx.timeoutMs"] = 600_000
    return topology(config, work).start(spark, settings)


def main() -> None:
    named = arguments()

    from integration.cluster.spark_local import local_session

    spark = local_session(Path(named.work, "spark"))
    run(spark, named)
    spark.stop()
    Path(named.work, "finished").touch()


if __name__ == "__main__":
    main()
