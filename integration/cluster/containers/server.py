"""A container that serves, whose client port keeps its number for ever."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from docker.errors import APIError, NotFound
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from integration.cluster.child import TAIL_LINES
from integration.cluster.waiting import wait_until

GRACE_S = 20


class ContainerServer:
    """A ``Node`` as a container; its data lives as long as the container does.

    ``ports`` leads from ports inside to ports of this machine. On a network it is known
    to other containers as ``alias``.
    """

    def __init__(
        self,
        image: str,
        *,
        ports: Mapping[int, int],
        environment: Mapping[str, str],
        network: Network | None = None,
        alias: str = "",
        command: list[str] | None = None,
    ) -> None:
        self.is_running = False
        self.is_paused = False
        self._exists = False
        self._container = DockerContainer(image)
        self._container.env.update(environment)
        for inner_port, port in ports.items():
            self._container.with_bind_ports(inner_port, port)
        if network is not None:
            self._container.with_network(network).with_network_aliases(alias)
        if command is not None:
            self._container.with_command(command)

    def prepare(self) -> None:
        """Nothing: the image formats its storage itself."""

    def start(self) -> None:
        if self._exists:
            self._container.get_wrapped_container().start()
        else:
            self._container.start()
            self._exists = True
        self.is_running = True
        self.is_paused = False

    def kill(self) -> None:
        if self.is_running:
            self._container.get_wrapped_container().kill()
            self._container.get_wrapped_container().wait()
            self.is_running = False

    def terminate(self) -> None:
        if self.is_running:
            self.unpause()
            self._container.get_wrapped_container().stop(timeout=GRACE_S)
            self.is_running = False

    def delete(self) -> None:
        if self._exists:
            self.unpause()
            wait_until("the container is gone", self._is_removed)
            self._exists = self.is_running = False

    def _is_removed(self) -> bool:
        """Remove it; an engine gives up where processes take seconds to die."""
        with contextlib.suppress(NotFound):  # given up on, and gone since
            self._container.stop()
        return True

    def pause(self) -> None:
        self._container.get_wrapped_container().pause()
        self.is_paused = True

    def unpause(self) -> None:
        if self.is_paused:
            self._container.get_wrapped_container().unpause()
            self.is_paused = False

    def complaint(self) -> str | None:
        if not self.is_running:
            return None
        container = self._container.get_wrapped_container()
        try:
            container.reload()
        except APIError as error:
            return str(error)
        if container.status not in ("exited", "dead"):
            return None
        lines = container.logs(tail=TAIL_LINES).decode(errors="replace")
        return f"the container has ended\n{lines}"
