"""A query from Kafka into files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import kafka_tx
from integration.cluster.records import Record
from integration.killed.interface import Case, World, in_each_mode
from integration.pausing import Life, run_to_end
from integration.sinks.files_job import POINTS
from integration.sizes import size

RECORDS, PARTITIONS = size(180, 420), 3
JOB = "integration.sinks.files_job"


class FilesJob:
    """The query over a topic of its own.

    Args:
        world: Servers.
        work: Its directory, which has the files.
        mode: Of the source.
        keeps: Whether drivers share a checkpoint; else each has a new one.
    """

    def __init__(
        self, world: World, work: Path, *, mode: str, keeps: bool = True
    ) -> None:
        self.work, self.keeps = work, keeps
        name = world.topic(PARTITIONS)
        keys = [f"k{n}" for n in range(RECORDS)]
        places = world.produce(name, [Record("", key=key) for key in keys])
        self.kept = sorted((p, o, k) for (p, o), k in zip(places, keys, strict=True))
        servers = world.kafka.bootstrap_servers
        self.given = ["--servers", servers, "--topic", name, "--mode", mode]
        self.txid = 1
        self.spark: Any = None

    def to(self, point: str) -> Life:
        self.txid += 1
        place = ("--point", point, "--txid", str(self.txid))
        return Life(JOB, self.work, [*self._given(), *place])

    def finish(self, spark: Any) -> None:
        self.spark = spark
        run_to_end(JOB, spark, self.work, *self._given())

    def check(self) -> None:
        rows = kafka_tx.read_files(self.spark, f"{self.work}/kept").collect()
        assert sorted((row.partition, row.offset, row.key) for row in rows) == self.kept

    def _given(self) -> list[str]:
        name = "kept" if self.keeps else f"run{self.txid}"
        return [*self.given, "--checkpoint", str(self.work / f"checkpoint-{name}")]


USUAL = (
    Case("files", POINTS[1:], partial(FilesJob, mode="transactional", keeps=False)),
)
EVERY = (*in_each_mode("files", FilesJob, POINTS), *USUAL)
