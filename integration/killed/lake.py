"""A query from Kafka into two Delta tables: an append and a MERGE."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from integration.cluster.spark_local import delta_session
from integration.cluster.versions import DELTA
from integration.killed.interface import Case, World
from integration.killed.rows import RowsJob
from integration.sinks.lake_job import POINTS, tables
from integration.sizes import size

RECORDS, KEYS = size(180, 420), 17


class LakeJob(RowsJob):
    """The work directory has both tables."""

    program = "integration.sinks.lake_job"

    def __init__(self, world: World, work: Path, *, keeps: bool) -> None:
        keys = [f"k{n % KEYS}" for n in range(RECORDS)]
        super().__init__(world, work, keys, keeps=keeps)

    def rows(self) -> list[Any]:
        return self._collect(tables(self.work)[0])

    def check(self) -> None:
        super().check()
        counts = self._collect(tables(self.work)[1])
        expected = Counter(key for _, _, key in self.kept)
        assert {row["key"]: row["count"] for row in counts} == expected

    def _collect(self, table: str) -> list[Any]:
        lake = delta_session(self.spark)
        return list(lake.read.format("delta").load(table).collect())


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
