"""What tests may ask of a cluster, whichever provider runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ZooKeeperServer(Protocol):
    """One ZooKeeper server. ``start`` returns when it serves."""

    @property
    def hosts(self) -> str:
        """``host:port``, as a client on this machine reaches it; the same for ever."""
        ...

    def start(self) -> None: ...

    def stop(self) -> None:
        """End it and delete its data. Harmless when repeated."""
        ...

    def kill(self) -> None:
        """SIGKILL; the data stays."""
        ...

    def restart(self) -> None:
        """Start it again with its data after ``kill``, or end and start it."""
        ...

    def pause(self) -> None:
        """Freeze it: connections stay open and silent."""
        ...

    def unpause(self) -> None: ...

    def heal(self) -> None:
        """Bring it back when it is down, wake it when it is frozen."""
        ...


class KafkaCluster(Protocol):
    """Some brokers, numbered from 1. ``start`` returns when all of them know all.

    Calls that change something return when the change is seen by every broker that
    runs. All of them raise ``NotReadyError`` when that takes too long.
    """

    @property
    def brokers(self) -> tuple[int, ...]:
        """Ids of all brokers, also of those that are down."""
        ...

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, for clients on this machine; the same for ever."""
        ...

    @property
    def login_servers(self) -> str:
        """Addresses of the brokers' second listener; empty without one."""
        ...

    def address(self, broker: int) -> str:
        """``host:port`` of one broker; the same for ever."""
        ...

    def start(self) -> None: ...

    def stop(self) -> None:
        """End all brokers and delete their data. Harmless when repeated."""
        ...

    # --- faults

    def kill(self, broker: int) -> None:
        """SIGKILL one broker; its data stays."""
        ...

    def shut_down(self, broker: int) -> None:
        """SIGTERM one broker and wait until it is gone, its leaderships handed over.

        Unless it led the cluster, too: then they follow when another one does.
        """
        ...

    def restart(self, broker: int | None = None) -> None:
        """Bring a broker, or all, back with its data, ending what still runs."""
        ...

    def pause(self, broker: int) -> None:
        """Freeze a broker: connections stay open and silent."""
        ...

    def unpause(self, broker: int) -> None: ...

    def heal(self) -> None:
        """Bring back what is down, wake what is frozen; what runs is left alone."""
        ...

    # --- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic; replicated to at most three brokers unless told otherwise.

        When it returns, all replicas on brokers that run are in sync.
        """
        ...

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        ...

    def alter_topic(self, name: str, config: Mapping[str, str]) -> None:
        """Set values of a topic; returns when each broker says that it has them."""
        ...

    def delete_topic(self, name: str) -> None: ...

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Move the log start of partitions to an offset, as retention would."""
        ...

    def leader(self, name: str, partition: int) -> int | None:
        """Id of the broker that leads a partition; None while nobody does."""
        ...

    def in_sync(self, name: str, partition: int) -> frozenset[int]:
        """Ids of the brokers that have all of a partition."""
        ...


class Provider(Protocol):
    """Makes clusters and servers; none of them is started yet."""

    name: str

    def kafka(
        self,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        login: Mapping[str, str] | None = None,
    ) -> KafkaCluster:
        """Kafka 4 in KRaft mode; ``settings`` go over the usual ones of a broker.

        ``login`` has the settings of one more listener, by their names without its own,
        and ``security.protocol``; its addresses are the cluster's ``login_servers``.
        """
        ...

    def zookeeper(self) -> ZooKeeperServer: ...

    def kafka_on_zookeeper(
        self, zookeeper: ZooKeeperServer, brokers: int = 1, chroot: str = ""
    ) -> KafkaCluster:
        """Kafka 3 whose brokers register in a running ZooKeeper, under ``chroot``."""
        ...
