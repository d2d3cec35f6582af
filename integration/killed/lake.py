"""A query from Kafka into two Delta tables: an append and a MERGE."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from integration.cluster.records import Record
from integration.cluster.spark_local import delta_session
from integration.cluster.versions import DELTA
from integration.killed.interface import Case, World
from integration.pausing import Life, run_to_end
from integration.sinks.lake_job import POINTS, tables
from integration.sizes import size

RECORDS, PARTITIONS, KEYS = size(180, 420), 3, 17
JOB = "integration.sinks.lake_job"


class LakeJob:
    """The query over a topic of its own.

    Args:
        world: Servers.
        work: Its directory, which has the tables.
        keeps: Whether drivers share a checkpoint; else each has a new one.
    """

    def __init__(self, world: World, work: Path, *, keeps: bool) -> None:
        self.work, self.keeps = work, keeps
        name = world.topic(PARTITIONS)
        keys = [f"k{n % KEYS}" for n in range(RECORDS)]
        places = world.produce(name, [Record("", key=key) for key in keys])
        self.kept = sorted((p, o, k) for (p, o), k in zip(places, keys, strict=True))
        servers = world.kafka.bootstrap_servers
        self.given = ["--servers", servers, "--topic", name]
        self.txid = 1
        self.spark: Any = None

    def to(self, point: str) -> Life:
        self.txid += 1
        place = ("--point", point, "--txid", str(self.txid))
        return Life(JOB, self.work, [*self._given(), *place])

    def finish(self, spark: Any) -> None:
        self.spark = delta_session(spark)
        run_to_end(JOB, spark, self.work, *self._given())

    def check(self) -> None:
        kept, counts = (
            self.spark.read.format("delta").load(table).collect()
            for table in tables(self.work)
        )
        found = sorted((row.partition, row.offset, row.key) for row in kept)
        assert found == self.kept
        expected = Counter(key for _, _, key in self.kept)
        assert {row["key"]: row["count"] for row in counts} == expected

    def _given(self) -> list[str]:
        name = "kept" if self.keeps else f"run{self.txid}"
        return [*self.given, "--checkpoint", str(self.work / f"checkpoint-{name}")]


def _cases(**points: tuple[str, ...]) -> tuple[Case, ...]:
    """None where Delta has no jars for this line of Spark."""
    return tuple(
        Case(f"Delta {name} checkpoint", at, partial(LakeJob, keeps=name == "one"))
        for name, at in points.items()
        if DELTA
    )


USUAL = ()
"""A kill leaves in the table what an error leaves there: ``test_lakehouse`` raises one
before and after the commit, ``test_examples`` between two tables, and both go on with a
new checkpoint. The simulator, ``tests/properties/simulated_lake.py``, dies anywhere."""
EVERY = _cases(one=POINTS, new=POINTS)
