"""Topics, partitions, leaders and brokers as Kafka registers them in ZooKeeper.

For clusters in ZooKeeper mode (Kafka 3 and older). Nodes, below ``/brokers``::

    topics/<topic>                        {"topic_id": …, "partitions": {"0": [1, 2]}}
    topics/<topic>/partitions/<n>/state   {"leader": 1, …}; -1 while there is none
    ids/<broker>                          {"host": …, "port": …, "endpoints": […]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ConfigError,
    StateError,
    StateUnavailableError,
)
from kafka_tx.logs import event_log
from kafka_tx.model import (
    Assigned,
    Broker,
    Subscription,
    TopicDescription,
    TopicPattern,
    Topics,
)
from kafka_tx.zookeeper.client import ZooKeeperClient
from kafka_tx.zookeeper.session_settings import ZooKeeperSettings, check_root

logger = event_log(__name__)

DEFAULT_PATH = "/brokers"

_OF_URLS = str.maketrans("-_", "+/")
"""ZooKeeper has ids in the alphabet for URLs, librdkafka in the other one."""


class ZooKeeperTopics:
    """Describes topics from ZooKeeper: ``topics`` of a ClusterView, nothing else.

    Nothing is cached. A call takes a few requests, each for everything at once. Source:
    Storm, DynamicBrokersReader (deviates: a partition whose leader is missing or not
    registered is there without a leader; it is no error and does not vanish).

    Args:
        connect: ``h1:2181,h2:2181``, followed by the cluster's ``/chroot`` if it has
            one, as in Kafka's ``zookeeper.connect``; ``zookeeper://h1:2181/chroot?…``
            with the options of a store; or settings, whose root is the chroot.
        path: Where the brokers register, below the chroot.
        client: A session to share, which is not closed here.
    """

    def __init__(
        self,
        connect: str | ZooKeeperSettings,
        path: str = DEFAULT_PATH,
        *,
        client: ZooKeeperClient | None = None,
    ) -> None:
        if isinstance(connect, ZooKeeperSettings):
            settings, chroot = connect, connect.root
        elif connect.startswith("zookeeper://"):
            settings = ZooKeeperSettings.parse(connect, "connect", default_root=path)
            chroot = "" if settings.root == path else settings.root
        else:
            hosts, slash, rest = connect.partition("/")
            chroot = f"{slash}{rest}".rstrip("/")
            settings = ZooKeeperSettings(hosts=hosts, root=chroot or path)
        self._path = check_root(f"{chroot}{path}", "brokers path")
        self._settings = settings
        self._client = client or ZooKeeperClient(settings)
        self._owns_client = client is None

    def __repr__(self) -> str:
        return f"ZooKeeperTopics({self._settings.hosts!r}, {self._path!r})"

    def topics(self, wanted: Subscription) -> dict[str, TopicDescription]:
        """The topics that exist now; absent ones are left out.

        A pattern is read anew each time and must match the whole name. A topic without
        partitions is still being made, and is left out too.

        Raises:
            BrokerUnavailableError: ZooKeeper does not answer; names its hosts.
            AuthenticationError: ZooKeeper refuses.
            ConfigError: No brokers ever registered there: the chroot is wrong.
        """
        with self._translated():
            found = self._described(self._names(wanted))
            if not found:
                self._check_path()
            return found

    def close(self) -> None:
        """End the session, unless it is shared. Calling it twice is harmless."""
        if self._owns_client:
            self._client.close()

    def _names(self, wanted: Subscription) -> list[str]:
        match wanted:
            case Topics(names):
                return list(names)
            case TopicPattern():
                node = f"{self._path}/topics"
                existing = self._client.children([node]).get(node, [])
                return wanted.matching(existing)
            case Assigned(partitions):
                return sorted({partition.topic for partition in partitions})

    def _described(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        nodes = {f"{self._path}/topics/{name}": name for name in names}
        topics = {
            nodes[at]: _json(at, node.data)
            for at, node in self._client.nodes(nodes).items()
        }
        ids = {name: record.get("topic_id") or "" for name, record in topics.items()}
        partitions = self._partitions(topics)
        leaders = self._leaders(partitions)
        brokers = self._brokers({leader for leader in leaders.values() if leader >= 0})
        return {
            topic: TopicDescription(
                name=topic,
                leaders={n: brokers.get(leaders.get((topic, n), -1)) for n in numbers},
                topic_id=ids[topic].translate(_OF_URLS) or None,
            )
            for topic, numbers in partitions.items()
            if numbers
        }

    def _partitions(
        self, topics: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, list[int]]:
        """Numbers of each topic: as assigned, and as registered on their own."""
        nodes = {topic: f"{self._path}/topics/{topic}/partitions" for topic in topics}
        children = self._client.children(nodes.values())
        return {
            topic: sorted(
                int(number)
                for number in {
                    *record.get("partitions", {}),
                    *children.get(nodes[topic], []),
                }
                if number.isdecimal()
            )
            for topic, record in topics.items()
        }

    def _leaders(
        self, partitions: Mapping[str, Iterable[int]]
    ) -> dict[tuple[str, int], int]:
        """Broker id of every partition's leader; -1, or no entry, while it has none."""
        nodes = {
            f"{self._path}/topics/{topic}/partitions/{number}/state": (topic, number)
            for topic, numbers in partitions.items()
            for number in numbers
        }
        states = self._client.nodes(nodes)
        return {
            nodes[at]: int(_json(at, node.data).get("leader", -1))
            for at, node in states.items()
        }

    def _brokers(self, ids: Iterable[int]) -> dict[int, Broker]:
        nodes = {f"{self._path}/ids/{number}": number for number in ids}
        found = self._client.nodes(nodes)
        addresses = {nodes[at]: _address(_json(at, n.data)) for at, n in found.items()}
        return {n: Broker(*at, node_id=n) for n, at in addresses.items() if at}

    def _check_path(self) -> None:
        node = f"{self._path}/topics"
        if node not in self._client.stats([node]):
            raise ConfigError(
                f"there is no {node} in ZooKeeper {self._settings.hosts}: no broker"
                " ever registered there. Is the chroot right, and is this the ZooKeeper"
                " of a Kafka cluster in ZooKeeper mode?",
                option="brokers path",
                value=self._path,
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except StateUnavailableError as error:
            raise BrokerUnavailableError(error.message, **error.fields) from error
        except StateError as error:
            raise AuthenticationError(error.message, **error.fields) from error


def _json(node: str, data: bytes) -> dict[str, Any]:
    """Parse a registration; an unreadable one is empty until the next read."""
    try:
        record = json.loads(data)
    except ValueError as error:
        logger.warning("node %s is no JSON (%s): it counts as empty", node, error)
        return {}
    return record if isinstance(record, dict) else {}


def _address(record: Mapping[str, Any]) -> tuple[str, int] | None:
    """Host and port; a broker without a plaintext listener has them in endpoints."""
    if record.get("host"):
        return str(record["host"]), int(record["port"])
    for endpoint in record.get("endpoints", []):  # LISTENER://host:port
        host, _, port = endpoint.partition("://")[2].rpartition(":")
        if host and port.isdecimal():
            return host.strip("[]"), int(port)
    return None
