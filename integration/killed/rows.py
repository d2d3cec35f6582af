"""A query from Kafka that keeps each record's place and key; a subclass says where."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from integration.cluster.records import Record
from integration.killed.interface import World
from integration.pausing import Life, run_to_end

PARTITIONS = 3


class RowsJob(ABC):
    """The query over a topic of its own.

    Args:
        world: Servers.
        work: Its directory, which has what is kept.
        keys: Of the records.
        given: More options of the program.
        keeps: Whether drivers share a checkpoint; else each has a new one.
    """

    program: ClassVar[str]

    def __init__(
        self, world: World, work: Path, keys: Sequence[str], *given: str, keeps: bool
    ) -> None:
        self.work, self.keeps = work, keeps
        name = world.topic(PARTITIONS)
        places = world.produce(name, [Record("", key=key) for key in keys])
        self.kept = sorted((p, o, k) for (p, o), k in zip(places, keys, strict=True))
        servers = world.kafka.bootstrap_servers
        self.given = ["--servers", servers, "--topic", name, *given]
        self.txid = 1
        self.spark: Any = None

    @abstractmethod
    def rows(self) -> Iterable[Any]:
        """What is kept: partition, offset and key of each record."""

    def to(self, point: str) -> Life:
        self.txid += 1
        place = ("--point", point, "--txid", str(self.txid))
        return Life(self.program, self.work, [*self._given(), *place])

    def finish(self, spark: Any) -> None:
        self.spark = spark
        run_to_end(self.program, spark, self.work, *self._given())

    def check(self) -> None:
        found = sorted((row.partition, row.offset, row.key) for row in self.rows())
        assert found == self.kept

    def _given(self) -> list[str]:
        name = "kept" if self.keeps else f"run{self.txid}"
        return [*self.given, "--checkpoint", str(self.work / f"checkpoint-{name}")]
