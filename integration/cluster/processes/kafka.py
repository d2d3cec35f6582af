"""Kafka clusters as processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from integration.cluster import settings, versions
from integration.cluster.child import WorkDirectory
from integration.cluster.jars import cache_directory
from integration.cluster.nodes import KafkaOfNodes
from integration.cluster.processes.java_server import DATA, JavaServer
from integration.cluster.proxy import Proxy
from integration.cluster.waiting import HOST, free_port

SERVER = "kafka.Kafka"
STORAGE = "kafka.tools.StorageTool"
FILE = "server.properties"


def kraft_cluster(
    brokers: int,
    more: Mapping[str, str],
    login: Mapping[str, str],
    proxies: Mapping[int, Proxy] | None = None,
) -> KafkaOfNodes:
    """Prepare a KRaft cluster; ``more`` settings go over the usual ones.

    With ``proxies``, by broker, each has one more listener that is only known by the
    proxy's address; brokers talk to each other without them.
    """
    work = WorkDirectory("kafka")
    numbers = settings.nodes_of_quorum(brokers)
    voters = {number: f"{HOST}:{free_port()}" for number in numbers}
    ports = {number: free_port() for number in range(1, brokers + 1)}
    login_ports = {number: free_port() for number in ports if login}
    if login:
        more = {**settings.login_listener(login, settings.PROTOCOLS), **more}
    proxies = proxies or {}
    nodes = {}
    for number in numbers:
        listeners = [f"CONTROLLER://{voters[number]}"]
        if number in ports:
            listeners.append(f"PLAINTEXT://{HOST}:{ports[number]}")
        if number in login_ports:
            listeners.append(f"{settings.LOGIN}://{HOST}:{login_ports[number]}")
        advertised: dict[str, str] = {}
        if number in proxies:
            proxy = proxies[number]
            advertised = settings.proxied(listeners[1:], proxy.address)
            listeners.append(f"{settings.PROXIED}://{HOST}:{proxy.target}")
        place = work.path / f"node{number}"
        nodes[number] = JavaServer(
            place,
            versions.KAFKA_JARS,
            [SERVER, FILE],
            [STORAGE, "format", "-t", settings.CLUSTER_ID, "-c", FILE],
            cache_directory() / "formatted" / f"kafka-{versions.KAFKA}-node{number}",
        )
        usual = settings.kraft(
            number, brokers=brokers, voters=voters, directory=str(place / DATA)
        )
        ours = {"listeners": ",".join(listeners), **advertised}
        _write(place, {**usual, **ours, **more})
    return KafkaOfNodes(nodes, ports, work.delete, login_ports)


def zookeeper_cluster(
    connect: str,
    brokers: int,
    jars: versions.JarSet = versions.KAFKA_WITH_ZOOKEEPER_JARS,
) -> KafkaOfNodes:
    """Prepare a cluster whose brokers register in a running ZooKeeper."""
    work = WorkDirectory("kafka-zk")
    ports = {number: free_port() for number in range(1, brokers + 1)}
    nodes = {}
    for number, port in ports.items():
        place = work.path / f"broker{number}"
        nodes[number] = JavaServer(place, jars, [SERVER, FILE])
        usual = settings.on_zookeeper(
            number, brokers=brokers, connect=connect, directory=str(place / "data")
        )
        _write(place, {**usual, "listeners": f"PLAINTEXT://{HOST}:{port}"})
    return KafkaOfNodes(nodes, ports, work.delete)


def _write(place: Path, properties: Mapping[str, str]) -> None:
    place.joinpath(FILE).write_text(settings.as_properties(properties))
