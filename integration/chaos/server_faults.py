"""Faults of servers: brokers, controllers, PostgreSQL, ZooKeeper, tables."""

from __future__ import annotations

from integration.chaos.job import TOPIC
from integration.chaos.scene import Fault, Scene, prove
from integration.chaos.world import PARTITIONS
from integration.cluster.child import state_of
from integration.cluster.postgresql import PostgresServer
from integration.cluster.processes.zookeeper import ProcessZooKeeper
from integration.cluster.waiting import is_listening, wait_until


def broker_kill(scene: Scene, target: str) -> Fault:
    return (yield from _killed_node(scene, int(target)))


def controller_kill(scene: Scene, _target: str) -> Fault:
    old = scene.world.controller()
    proof = yield from _killed_node(scene, old)
    new = scene.world.controller()
    return prove(new != old, f"{proof}, controller moved from {old} to {new}")


def _killed_node(scene: Scene, number: int) -> Fault:
    kafka = scene.world.kafka
    pid = kafka.nodes[number].pid
    kafka.cluster.kill(number)
    proof = prove(not state_of(pid), f"pid {pid} of broker {number} gone")
    yield
    kafka.cluster.restart(number)
    return proof


def broker_pause(scene: Scene, target: str) -> Fault:
    kafka, number = scene.world.kafka, int(target)
    pid = kafka.nodes[number].pid
    kafka.cluster.pause(number)
    try:
        wait_until("the broker is stopped", lambda: state_of(pid) == "T")
        yield
    finally:
        kafka.cluster.unpause(number)
    return f"pid {pid} of broker {number} was stopped"


def leader_move(scene: Scene, target: str) -> Fault:
    cluster, number = scene.world.kafka.cluster, int(target)
    leaders = [cluster.leader(TOPIC, n) for n in range(PARTITIONS)]
    if number not in leaders:  # it led none since it was hurt last
        number = next(filter(None, leaders))
    led = [n for n, leader in enumerate(leaders) if leader == number]
    cluster.shut_down(number)
    yield
    now = [cluster.leader(TOPIC, n) for n in range(PARTITIONS)]
    cluster.restart(number)
    return prove(number not in now, f"leaders of {led} moved from {number}: {now}")


def postgresql_kill(scene: Scene, _target: str) -> Fault:
    server = scene.world.postgresql
    pid = server.pid
    server.kill()
    proof = prove(
        not state_of(pid) and not is_listening(server.port),
        f"pid {pid} gone, nobody listened on its port",
    )
    try:
        yield
    finally:
        server.start()
    return proof


def postgresql_pause(scene: Scene, _target: str) -> Fault:
    return (yield from _pause(scene.world.postgresql, "PostgreSQL"))


def zookeeper_kill(scene: Scene, _target: str) -> Fault:
    server = scene.world.zookeeper
    pid = server.pid
    server.kill()
    proof = prove(not state_of(pid), f"pid {pid} gone")
    try:
        yield
    finally:
        server.start()
    return proof


def zookeeper_pause(scene: Scene, _target: str) -> Fault:
    return (yield from _pause(scene.world.zookeeper, "ZooKeeper"))


def _pause(server: PostgresServer | ProcessZooKeeper, name: str) -> Fault:
    server.pause()
    try:
        wait_until(f"{name} is stopped", lambda: state_of(server.pid) == "T")
        yield
    finally:
        server.unpause()
    return f"pid {server.pid} was stopped"


def table_append(scene: Scene, target: str) -> Fault:
    appended, _ = scene.world.lake.of(target)
    proof = appended.append()
    yield
    return proof


def table_compact(scene: Scene, target: str) -> Fault:
    proof = ", ".join(table.compact() for table in scene.world.lake.of(target))
    yield
    return proof


def table_expire(scene: Scene, target: str) -> Fault:
    proof = ", ".join(table.expire() for table in scene.world.lake.of(target))
    yield
    return proof
