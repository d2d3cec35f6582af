"""A query from Kafka into files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import kafka_tx
from integration.killed.interface import Case, World, in_each_mode
from integration.killed.rows import RowsJob
from integration.sinks.files_job import POINTS
from integration.sizes import size

RECORDS = size(180, 420)


class FilesJob(RowsJob):
    """``mode`` is the source's."""

    program = "integration.sinks.files_job"

    def __init__(
        self, world: World, work: Path, *, mode: str, keeps: bool = True
    ) -> None:
        keys = [f"k{n}" for n in range(RECORDS)]
        super().__init__(world, work, keys, "--mode", mode, keeps=keeps)

    def rows(self) -> list[Any]:
        return list(kafka_tx.read_files(self.spark, f"{self.work}/kept").collect())


LOST = partial(FilesJob, mode="transactional", keeps=False)
USUAL = ()
"""The simulator, ``tests/properties/simulated_files.py``, dies at every step, and
``test_files`` freezes drivers at real folders."""
EVERY = (
    *in_each_mode("files", FilesJob, POINTS),
    Case("files written", POINTS[1:2], LOST),
    Case("files published", POINTS[2:], LOST),
)
