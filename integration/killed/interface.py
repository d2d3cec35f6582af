"""What a job that is killed is made on, and what is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from integration.cluster.interface import KafkaCluster
from integration.cluster.postgresql import PostgresServer
from integration.cluster.records import Produce
from integration.cluster.topics import fresh_name
from integration.pausing import Life


@dataclass(frozen=True)
class World:
    """Servers, and a directory.

    Attributes:
        request: For servers that only some jobs need.
        work: Each job makes itself a directory in it.
    """

    kafka: KafkaCluster
    produce: Produce
    postgresql: PostgresServer
    request: pytest.FixtureRequest
    work: Path

    def topic(self, partitions: int) -> str:
        name = fresh_name("topic")
        self.kafka.create_topic(name, partitions)
        return name

    def place(self, name: str) -> Path:
        found = self.work / name
        found.mkdir()
        return found


class Job(Protocol):
    """A job that drivers take up one after the other."""

    def to(self, point: str) -> Life:
        """The next driver's part, which ends at that point."""

    def finish(self, spark: Any) -> None:
        """The last driver's part: whatever is left."""

    def check(self) -> None:
        """Assert that each record counts once; the job is finished."""


class Case(Protocol):
    """A job yet to be made, and where its drivers die."""

    @property
    def name(self) -> str: ...

    @property
    def points(self) -> Sequence[str]: ...

    def on(self, world: World) -> Job: ...
