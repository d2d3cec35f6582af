"""The provider that runs brokers and ZooKeepers in containers.

Any engine with Docker's API will do: a daemon that is there already, or Podman, which
is then started for the run and whose images are built from the cached jars. The same
code fits the official images of Kafka and ZooKeeper, which a Docker daemon pulls.
"""

from __future__ import annotations

from collections.abc import Mapping

from integration.cluster.containers.engine import connect, uses_podman
from integration.cluster.containers.kafka import kraft_cluster, zookeeper_cluster
from integration.cluster.containers.zookeeper import ContainerZooKeeper
from integration.cluster.interface import KafkaCluster, ZooKeeperServer
from integration.containers.build_images import build_missing


class Containers:
    """The ``Provider`` of containers, through testcontainers."""

    name = "containers"

    def __init__(self) -> None:
        connect()
        if uses_podman():
            build_missing()

    def kafka(
        self,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        login: Mapping[str, str] | None = None,
    ) -> KafkaCluster:
        return kraft_cluster(brokers, settings or {}, login or {})

    def zookeeper(self) -> ZooKeeperServer:
        return ContainerZooKeeper()

    def kafka_on_zookeeper(
        self, zookeeper: ZooKeeperServer, brokers: int = 1, chroot: str = ""
    ) -> KafkaCluster:
        assert isinstance(zookeeper, ContainerZooKeeper)
        return zookeeper_cluster(zookeeper, brokers, chroot)
