"""The provider that runs brokers and ZooKeepers as processes of this machine."""

from __future__ import annotations

from collections.abc import Mapping

from integration.cluster.interface import KafkaCluster, ZooKeeperServer
from integration.cluster.processes.kafka import kraft_cluster, zookeeper_cluster
from integration.cluster.processes.zookeeper import ProcessZooKeeper


class Processes:
    """The ``Provider`` of Java processes, from the cached jars."""

    name = "processes"

    def kafka(
        self,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        login: Mapping[str, str] | None = None,
    ) -> KafkaCluster:
        return kraft_cluster(brokers, settings or {}, login or {})

    def zookeeper(self) -> ZooKeeperServer:
        return ProcessZooKeeper()

    def kafka_on_zookeeper(
        self, zookeeper: ZooKeeperServer, brokers: int = 1, chroot: str = ""
    ) -> KafkaCluster:
        return zookeeper_cluster(zookeeper.hosts + chroot, brokers)
