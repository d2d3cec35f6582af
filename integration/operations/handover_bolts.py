"""The sink of a topology that is given back: it writes down each record's place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kafka_tx


class Places(kafka_tx.Committer, kafka_tx.BatchBolt):
    """Writes the places of a batch, and dies behind it while ``dies`` exists."""

    def __init__(self, work: str) -> None:
        self.work = work

    def prepare(self, context: Any, collector: Any) -> None:
        self.attempt = context.attempt
        self.places: list[tuple[str, int, int]] = []

    def execute(self, row: Any) -> None:
        self.places.append((row.topic, row.partition, row.offset))

    def finish_batch(self) -> None:
        file = Path(self.work) / f"batch-{self.attempt.txid}.json"
        file.write_text(json.dumps(self.places))
        if (Path(self.work) / "dies").exists():
            raise RuntimeError("the driver died here")


def places(work: Path) -> set[tuple[str, int, int]]:
    """What the sink holds."""
    files = work.glob("batch-*.json")
    return {tuple(at) for file in files for at in json.loads(file.read_text())}
