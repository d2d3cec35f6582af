"""A Kafka cluster of nodes that are ended, hurt and started again one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from integration.cluster.topics import TopicCalls, wait_until_joined
from integration.cluster.waiting import HOST


class Node(Protocol):
    """One server, whichever provider runs it; its data stays until ``delete``."""

    @property
    def is_running(self) -> bool:
        """Also true while it is paused."""
        ...

    @property
    def is_paused(self) -> bool: ...

    def prepare(self) -> None:
        """Begin what must be done once before the first start, beside other nodes."""
        ...

    def start(self) -> None:
        """Start it, without waiting until it serves."""
        ...

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        ...

    def terminate(self) -> None:
        """SIGTERM, and wait until it is gone. Harmless when repeated."""
        ...

    def delete(self) -> None:
        """End it at once and for ever. Harmless when repeated."""
        ...

    def pause(self) -> None: ...

    def unpause(self) -> None: ...

    def complaint(self) -> str | None:
        """Why waiting for it is useless: it has ended by itself."""
        ...


class KafkaOfNodes(TopicCalls):
    """A ``KafkaCluster`` made of nodes.

    ``nodes`` holds every broker and, under higher numbers, nodes that are controllers
    only; ``ports`` and ``login_ports`` have the brokers alone. ``clean_up`` runs when
    all nodes are gone.
    """

    def __init__(
        self,
        nodes: Mapping[int, Node],
        ports: Mapping[int, int],
        clean_up: Callable[[], None],
        login_ports: Mapping[int, int] | None = None,
    ) -> None:
        self.nodes = nodes
        self._ports = ports
        self._clean_up = clean_up
        self._login_ports = login_ports or {}

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(self._ports)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(map(self.address, self.brokers))

    @property
    def login_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._login_ports.values())

    def address(self, broker: int) -> str:
        return f"{HOST}:{self._ports[broker]}"

    def answering(self) -> Mapping[int, str]:
        return {
            broker: self.address(broker)
            for broker in self.brokers
            if self.nodes[broker].is_running and not self.nodes[broker].is_paused
        }

    def start(self) -> None:
        self._start(self.nodes)

    def stop(self) -> None:
        for node in self.nodes.values():
            node.delete()
        self._clean_up()

    def kill(self, broker: int) -> None:
        self.nodes[broker].kill()

    def shut_down(self, broker: int) -> None:
        self.nodes[broker].terminate()

    def restart(self, broker: int | None = None) -> None:
        numbers = tuple(self.nodes) if broker is None else (broker,)
        for number in numbers:
            self.nodes[number].terminate()
        self._start(numbers)

    def pause(self, broker: int) -> None:
        self.nodes[broker].pause()

    def unpause(self, broker: int) -> None:
        self.nodes[broker].unpause()

    def heal(self) -> None:
        for node in self.nodes.values():
            if node.is_paused:
                node.unpause()
        if down := [n for n, node in self.nodes.items() if not node.is_running]:
            self._start(down)

    def _start(self, numbers: Iterable[int]) -> None:
        nodes = [self.nodes[number] for number in numbers]
        for node in nodes:
            node.prepare()
        for node in nodes:
            node.start()
        wait_until_joined(self.answering(), self._complaint)

    def _complaint(self) -> str | None:
        complaints = (node.complaint() for node in self.nodes.values())
        return next(filter(None, complaints), None)
