"""A ZooKeeper server as a process."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from integration.cluster import versions
from integration.cluster.child import WorkDirectory
from integration.cluster.processes.java_server import JavaServer
from integration.cluster.waiting import HOST, free_port, wait_until, zookeeper_serves

SERVER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"


class ProcessZooKeeper:
    """A ``ZooKeeperServer`` as a process; its shortest session is one second.

    Args:
        tls: Further settings (``ssl.…``) with which it has a secure port, too.
    """

    def __init__(self, tls: Mapping[str, str] | None = None) -> None:
        self._port = free_port()
        self._secure_port = free_port()
        self._work = WorkDirectory("zookeeper")
        self._server = JavaServer(
            self._work.path / "server",
            versions.KAFKA_WITH_ZOOKEEPER_JARS,
            [SERVER, "zoo.cfg"],
        )
        self._server.place.joinpath("zoo.cfg").write_text(
            f"dataDir={self._data}\n"
            f"clientPort={self._port}\n"
            f"clientPortAddress={HOST}\n"
            "tickTime=500\n"
            "maxClientCnxns=0\n"
            "forceSync=no\n"  # its process dies here, not the machine
            "admin.enableServer=false\n" + self._secured(tls or {})
        )

    @property
    def _data(self) -> Path:
        return self._server.place / "data"

    def _secured(self, tls: Mapping[str, str]) -> str:
        lines = [f"{name}={value}\n" for name, value in tls.items()]
        if lines:
            lines += [
                f"secureClientPort={self._secure_port}\n",
                f"secureClientPortAddress={HOST}\n",
                f"serverCnxnFactory={NETTY}\n",
            ]
        return "".join(lines)

    @property
    def hosts(self) -> str:
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """Of the server that runs now."""
        return self._server.pid

    @property
    def secure_hosts(self) -> str:
        """``host:port`` of the secure port."""
        return f"{HOST}:{self._secure_port}"

    def start(self) -> None:
        self._server.start()
        wait_until(
            "ZooKeeper serves",
            lambda: zookeeper_serves(self._port),
            complain=self._server.complaint,
        )

    def stop(self) -> None:
        self._server.delete()
        self._work.delete()

    def kill(self) -> None:
        self._server.kill()

    def restart(self) -> None:
        self._server.terminate()
        self.start()

    def come_back_with(self, data: Path | None) -> None:
        """Kill it, and start it with what ``keep_data`` has kept, or with nothing."""
        self.kill()
        shutil.rmtree(self._data)
        if data is not None:
            shutil.copytree(data, self._data)
        self.start()

    def keep_data(self, place: Path) -> None:
        """Copy what it has committed; it is killed and started for that."""
        self.kill()
        shutil.copytree(self._data, place)
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
