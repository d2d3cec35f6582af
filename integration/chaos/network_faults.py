"""Faults of the network: connections are reset, or fall silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from integration.chaos.scene import Fault, Scene, prove
from integration.chaos.sockets import client_ports
from integration.cluster.proxy import Proxy
from integration.cluster.waiting import wait_until


def cut(scene: Scene, target: str) -> Fault:
    lines = scene.world.lines[target]
    of_jobs = _connections(scene, lines)
    for line in lines:
        line.cut()
    try:
        yield
    finally:
        for line in lines:
            line.heal()
    return _victims(of_jobs, lines, "reset")


def half_open(scene: Scene, target: str) -> Fault:
    lines = scene.world.lines[target]
    before = sum(line.swallowed for line in lines)
    of_jobs = _connections(scene, lines)
    for line in lines:
        line.half_open()
    try:
        yield
        wait_until(
            "a connection of a job lost what it sent",
            lambda: _hit(of_jobs, lines),
        )
    finally:
        for line in lines:
            line.heal()
    swallowed = sum(line.swallowed for line in lines) - before
    return _victims(of_jobs, lines, f"silent, {swallowed} bytes swallowed")


def _connections(scene: Scene, lines: Sequence[Proxy]) -> dict[str, set[int]]:
    """Of each job, those that go over these lines, by the job's own ports."""
    ports = [line.port for line in lines]
    return {
        kind: client_ports(driver.pid, ports) for kind, driver in scene.drivers.items()
    }


def _hit(of_jobs: Mapping[str, set[int]], lines: Sequence[Proxy]) -> dict[str, int]:
    """How many of them a fault has hit; jobs without one are left out."""
    victims = set().union(*(line.victims for line in lines))
    hits = {kind: len(ports & victims) for kind, ports in of_jobs.items()}
    return {kind: count for kind, count in hits.items() if count}


def _victims(of_jobs: Mapping[str, set[int]], lines: Sequence[Proxy], how: str) -> str:
    hits = _hit(of_jobs, lines)
    counted = ", ".join(f"{count} of {kind}" for kind, count in hits.items())
    return prove(hits, f"connections {how}: {counted}")
