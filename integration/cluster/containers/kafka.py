"""Kafka clusters in containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from testcontainers.core.network import Network

from integration.cluster import settings, versions
from integration.cluster.containers.server import ContainerServer
from integration.cluster.containers.zookeeper import ContainerZooKeeper
from integration.cluster.nodes import KafkaOfNodes
from integration.cluster.waiting import HOST, free_port

DATA = "/var/lib/kafka/data"
START = """printf %s "$PROPERTIES" >/tmp/server.properties &&
exec /opt/kafka/bin/kafka-server-start.sh /tmp/server.properties"""
CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
INTERNAL_PORT = 19092
LOGIN_PORT = 9094
PROTOCOLS = "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT"

JVM = {
    "KAFKA_HEAP_OPTS": "-Xms64m -Xmx256m",
    "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # a container that comes back may have another address
    "KAFKA_OPTS": "-Dsun.net.inetaddr.ttl=1 -Dsun.net.inetaddr.negative.ttl=0",
}


def kraft_cluster(
    brokers: int, more: Mapping[str, str], login: Mapping[str, str]
) -> KafkaOfNodes:
    """Prepare a KRaft cluster; ``more`` settings go over the usual ones."""
    numbers = settings.nodes_of_quorum(brokers)
    voters = {number: f"{_alias(number)}:{CONTROLLER_PORT}" for number in numbers}
    ports = {number: free_port() for number in range(1, brokers + 1)}
    login_ports = {number: free_port() for number in ports if login}
    if login:
        more = {**settings.login_listener(login, PROTOCOLS), **more}
    network = Network().create()
    nodes = {}
    for number in numbers:
        usual = settings.kraft(number, brokers=brokers, voters=voters, directory=DATA)
        port, login_port = ports.get(number), login_ports.get(number)
        controller = {"CONTROLLER": CONTROLLER_PORT}
        listeners = _listeners(number, port, controller, login_port)
        properties = {**usual, **listeners, **more}
        nodes[number] = ContainerServer(
            versions.KAFKA_IMAGE,
            ports=_bound(port, login_port),
            environment={
                **JVM,
                "CLUSTER_ID": settings.CLUSTER_ID,
                **{
                    _variable(name): settings.one_line(text)
                    for name, text in properties.items()
                },
            },
            network=network,
            alias=_alias(number),
        )
    return KafkaOfNodes(nodes, ports, once(network.remove), login_ports)


def zookeeper_cluster(
    zookeeper: ContainerZooKeeper, brokers: int, chroot: str
) -> KafkaOfNodes:
    """Prepare a cluster whose brokers register in a running ZooKeeper.

    The image can only format for KRaft, so its way to start is not used.
    """
    connect = zookeeper.inner_hosts + chroot
    ports = {number: free_port() for number in range(1, brokers + 1)}
    nodes = {}
    for number, port in ports.items():
        usual = settings.on_zookeeper(
            number, brokers=brokers, connect=connect, directory=DATA
        )
        properties = {**usual, **_listeners(number, port, {})}
        nodes[number] = ContainerServer(
            versions.KAFKA_WITH_ZOOKEEPER_IMAGE,
            ports=_bound(port),
            environment={**JVM, "PROPERTIES": settings.as_properties(properties)},
            network=zookeeper.network,
            alias=_alias(number),
            command=["sh", "-c", START],
        )
    return KafkaOfNodes(nodes, ports, lambda: None)


def once(act: Callable[[], None]) -> Callable[[], None]:
    """Let a clean-up that may not be repeated be asked for again."""
    left = [act]

    def act_once() -> None:
        if left:
            left.pop()()

    return act_once


def _alias(number: int) -> str:
    return f"kafka{number}"


def _bound(port: int | None, login_port: int | None = None) -> dict[int, int]:
    wanted = {CLIENT_PORT: port, LOGIN_PORT: login_port}
    return {inner: outer for inner, outer in wanted.items() if outer is not None}


def _listeners(
    number: int,
    port: int | None,
    more: Mapping[str, int],
    login_port: int | None = None,
) -> dict[str, str]:
    """Listeners of a node; a broker has a ``port`` of this machine for its clients."""
    inner = dict(more)
    wanted = {}
    if port is not None:
        inner |= {"INTERNAL": INTERNAL_PORT, "CLIENT": CLIENT_PORT}
        wanted["advertised.listeners"] = (
            f"INTERNAL://{_alias(number)}:{INTERNAL_PORT},CLIENT://{HOST}:{port}"
        )
        wanted["inter.broker.listener.name"] = "INTERNAL"
    if login_port is not None:
        inner[settings.LOGIN] = LOGIN_PORT
        wanted["advertised.listeners"] += f",{settings.LOGIN}://{HOST}:{login_port}"
    return {
        **wanted,
        "listeners": ",".join(f"{name}://0.0.0.0:{at}" for name, at in inner.items()),
        "listener.security.protocol.map": PROTOCOLS,
    }


def _variable(setting: str) -> str:
    """Name the variable from which the image takes a broker setting."""
    words = setting.replace("_", "__").replace("-", "___").replace(".", "_")
    return f"KAFKA_{words.upper()}"
