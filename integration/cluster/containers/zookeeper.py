"""A ZooKeeper server in a container."""

from __future__ import annotations

from testcontainers.core.network import Network

from integration.cluster.containers.server import ContainerServer
from integration.cluster.versions import ZOOKEEPER_IMAGE
from integration.cluster.waiting import HOST, free_port, wait_until, zookeeper_serves

ALIAS = "zookeeper"
PORT = 2181


class ContainerZooKeeper:
    """A ``ZooKeeperServer`` in a container, on a network that brokers may join."""

    def __init__(self) -> None:
        self.network = Network()
        self.inner_hosts = f"{ALIAS}:{PORT}"
        self._port = free_port()
        self._server = ContainerServer(
            ZOOKEEPER_IMAGE,
            ports={PORT: self._port},
            environment={
                "ZOO_TICK_TIME": "500",
                "ZOO_MAX_CLIENT_CNXNS": "0",
                "ZOO_ADMINSERVER_ENABLED": "false",
            },
            network=self.network,
            alias=ALIAS,
        )
        self._has_network = False

    @property
    def hosts(self) -> str:
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        if not self._has_network:
            self.network.create()
            self._has_network = True
        self._server.start()
        wait_until(
            "ZooKeeper serves",
            lambda: zookeeper_serves(self._port),
            complain=self._server.complaint,
        )

    def stop(self) -> None:
        self._server.delete()
        if self._has_network:
            self.network.remove()
            self._has_network = False

    def kill(self) -> None:
        self._server.kill()

    def restart(self) -> None:
        self._server.terminate()
        self.start()

    def pause(self) -> None:
        self._server.pause()

    def unpause(self) -> None:
        self._server.unpause()

    def heal(self) -> None:
        if self._server.is_paused:
            self._server.unpause()
        if not self._server.is_running:
            self.start()
