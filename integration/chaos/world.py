"""The servers of a run: brokers, PostgreSQL and ZooKeeper, all behind proxies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from integration.chaos.job import COPY, TOPIC
from integration.chaos.lake import Lake
from integration.cluster.postgresql import PostgresServer
from integration.cluster.processes.zookeeper import ProcessZooKeeper
from integration.cluster.proxied import ProxiedKafka, proxies_to
from integration.cluster.proxy import Proxy
from integration.cluster.running import running

PARTITIONS = 4
QUICKLY = "silence_ms=4000&connect_timeout=4"
"""The defaults give up within 30 s; a short run has no time for that."""

_LEADS = re.compile(r"Completed transition to Leader")


class World:
    """What jobs use and faults break.

    Attributes:
        kafka: Three brokers.
        postgresql: The database server.
        lines: The proxies by what is behind them.
        lake: The tables.
    """

    def __init__(
        self,
        kafka: ProxiedKafka,
        postgresql: PostgresServer,
        zookeeper: ProcessZooKeeper,
        lines: Mapping[str, list[Proxy]],
        lake: Lake,
    ) -> None:
        self.kafka = kafka
        self.postgresql = postgresql
        self.zookeeper = zookeeper
        self.lines = lines
        self.lake = lake

    def addresses(self) -> dict[str, str]:
        """Where jobs find everything, as their command line takes it."""
        url = self.postgresql.url(proxy=self.lines["postgresql"][0])
        return {
            "servers": self.kafka.bootstrap_servers,
            "database": f"{url}?{QUICKLY}",
            "zookeeper": self.lines["zookeeper"][0].address,
            **self.lake.addresses(),
        }

    def controller(self) -> int:
        """The node that leads the controllers, as the nodes' logs tell it."""
        newest = max(
            (line[:24], number)
            for number, node in self.kafka.nodes.items()
            for line in _lines(node.place / "output.log")
            if _LEADS.search(line)
        )
        return newest[1]


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()


@contextmanager
def servers(jobs: tuple[str, ...]) -> Iterator[World]:
    """All that these jobs need, for the time of a block."""
    settings = {"min.insync.replicas": "2"}
    with (
        TemporaryDirectory(prefix="chaos-lake-") as place,
        running(Lake(jobs, Path(place))) as lake,
        running(ProxiedKafka(brokers=3, settings=settings)) as kafka,
        running(PostgresServer()) as postgresql,
        running(ProcessZooKeeper()) as zookeeper,
    ):
        port = int(zookeeper.hosts.rpartition(":")[2])
        with proxies_to(postgresql.port, port) as (database, keeper):
            for topic in (TOPIC, COPY):
                kafka.cluster.create_topic(topic, PARTITIONS)
            yield World(
                kafka,
                postgresql,
                zookeeper,
                {
                    "brokers": list(kafka.proxies.values()),
                    "postgresql": [database],
                    "zookeeper": [keeper],
                },
                lake,
            )
