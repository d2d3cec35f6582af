"""What a job that is killed is made on, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from integration.cluster.interface import KafkaCluster, ZooKeeperServer
from integration.cluster.postgresql import PostgresServer
from integration.cluster.records import Produce
from integration.cluster.topics import fresh_name
from integration.pausing import Life

BETWEEN_DATABASES = ("between-databases",)
"""One database has the batch, the other one has not: elsewhere both are as one of them.
The simulator, ``tests/properties/test_maps.py``, dies in the middle of batches."""


@dataclass(frozen=True)
class World:
    """Servers, and directories, of which each job has one."""

    kafka: KafkaCluster
    produce: Produce
    zookeeper: ZooKeeperServer
    postgresql: PostgresServer
    directories: pytest.TempPathFactory

    def topic(self, partitions: int) -> str:
        name = fresh_name("topic")
        self.kafka.create_topic(name, partitions)
        return name

    def place(self, name: str) -> Path:
        """A new directory; a store in ZooKeeper has its name."""
        return self.directories.mktemp(name.replace(" ", "-"))


class Job(Protocol):
    """A job that drivers take up one after the other."""

    def to(self, point: str) -> Life:
        """The next driver's part, which ends at that point."""

    def finish(self, spark: Any) -> None:
        """The last driver's part: whatever is left."""

    def check(self) -> None:
        """Assert that each record counts once; the job is finished."""


@dataclass(frozen=True)
class Case:
    """A job yet to be made, and the points at which its drivers die, in this order.

    Attributes:
        make: Makes the job, in a directory of its own.
    """

    name: str
    points: Sequence[str]
    make: Callable[[World, Path], Job]

    def on(self, world: World) -> Job:
        return self.make(world, world.place(self.name))


def in_each_mode(
    name: str, make: Callable[..., Job], points: Sequence[str]
) -> tuple[Case, ...]:
    """A case for each mode, which ``make`` takes by name."""
    return tuple(
        Case(f"{name} {mode}", points, partial(make, mode=mode))
        for mode in ("transactional", "opaque")
    )
