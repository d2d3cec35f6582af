"""Servers whose clients come through proxies, so that the network can fail too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import cast

from integration.cluster.nodes import KafkaOfNodes
from integration.cluster.processes.java_server import JavaServer
from integration.cluster.processes.kafka import kraft_cluster
from integration.cluster.proxy import Proxy
from integration.cluster.running import running
from integration.cluster.waiting import free_port


class ProxiedKafka:
    """A KRaft cluster (of processes) with a proxy in front of each broker.

    Attributes:
        cluster: To make topics and to look past the proxies; brokers talk to each
            other past them too.
        proxies: By broker.
    """

    def __init__(
        self, brokers: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        numbers = range(1, brokers + 1)
        self.proxies = {number: Proxy(free_port()) for number in numbers}
        self.cluster: KafkaOfNodes = kraft_cluster(
            brokers, settings or {}, {}, self.proxies
        )

    @property
    def nodes(self) -> Mapping[int, JavaServer]:
        """The servers of the cluster by number."""
        return cast("Mapping[int, JavaServer]", self.cluster.nodes)

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the proxies; clients that begin there stay there."""
        return ",".join(proxy.address for proxy in self.proxies.values())

    def start(self) -> None:
        """Return when all brokers know all."""
        for proxy in self.proxies.values():
            proxy.start()
        self.cluster.start()

    def stop(self) -> None:
        """End everything. Harmless when repeated."""
        self.cluster.stop()
        for proxy in self.proxies.values():
            proxy.stop()

    def cut(self) -> None:
        """Reset all connections of clients until ``heal``."""
        for proxy in self.proxies.values():
            proxy.cut()

    def half_open(self) -> None:
        """Swallow what clients and brokers tell each other until ``heal``."""
        for proxy in self.proxies.values():
            proxy.half_open()

    def heal(self) -> None:
        """Let clients through again."""
        for proxy in self.proxies.values():
            proxy.heal()


@contextmanager
def proxies_to(*targets: int) -> Iterator[list[Proxy]]:
    """Proxies to ports of this machine, for the time of a block."""
    with ExitStack() as stack:
        yield [stack.enter_context(running(Proxy(target))) for target in targets]
