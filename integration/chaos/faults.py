"""Each fault: how it is caused, how it is seen to have hit, how it ends.

A fault is a generator: it breaks something, yields while that lasts, mends it, and
returns what proves that it hit. One that did not hit raises.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from integration.chaos.counting import Numbers, Sinks
from integration.chaos.drivers import Driver, command_of, signal_all, state_of
from integration.chaos.job import TOPIC
from integration.chaos.world import PARTITIONS, World
from integration.cluster.waiting import is_listening, wait_until
from kafka_tx.cli.process_tree import session_members

Fault = Generator[None, None, str]


class NotHitError(Exception):
    """A fault was caused, and nothing of it was to be seen."""


@dataclass(frozen=True)
class Scene:
    """Everything that a fault may break or look at."""

    world: World
    drivers: Mapping[str, Driver]
    numbers: Numbers
    sinks: Sinks


def _prove(is_so: object, what: str) -> str:
    if not is_so:
        raise NotHitError(what)
    return what


# --- brokers ------------------------------------------------------------------------


def _broker_kill(scene: Scene, target: str) -> Fault:
    return (yield from _killed_node(scene, int(target)))


def _controller_kill(scene: Scene, _target: str) -> Fault:
    old = scene.world.controller()
    proof = yield from _killed_node(scene, old)
    new = scene.world.controller()
    return _prove(new != old, f"{proof}, controller moved from {old} to {new}")


def _killed_node(scene: Scene, number: int) -> Fault:
    kafka = scene.world.kafka
    pid = kafka.nodes[number].pid
    kafka.cluster.kill(number)
    proof = _prove(not state_of(pid), f"pid {pid} of broker {number} gone")
    yield
    kafka.cluster.restart(number)
    return proof


def _broker_pause(scene: Scene, target: str) -> Fault:
    kafka, number = scene.world.kafka, int(target)
    pid = kafka.nodes[number].pid
    kafka.cluster.pause(number)
    try:
        wait_until("the broker is stopped", lambda: state_of(pid) == "T")
        yield
    finally:
        kafka.cluster.unpause(number)
    return f"pid {pid} of broker {number} was stopped"


def _leader_move(scene: Scene, target: str) -> Fault:
    cluster, number = scene.world.kafka.cluster, int(target)
    leaders = [cluster.leader(TOPIC, n) for n in range(PARTITIONS)]
    if number not in leaders:  # it led none since it was hurt last
        number = leaders[0]
    led = [n for n, leader in enumerate(leaders) if leader == number]
    cluster.shut_down(number)
    yield
    now = [cluster.leader(TOPIC, n) for n in range(PARTITIONS)]
    cluster.restart(number)
    return _prove(number not in now, f"leaders of {led} moved from {number}: {now}")


# --- the network --------------------------------------------------------------------


def _cut(scene: Scene, target: str) -> Fault:
    lines = scene.world.lines[target]
    before = sum(line.resets for line in lines)
    for line in lines:
        line.cut()
    try:
        yield
    finally:
        for line in lines:
            line.heal()
    resets = sum(line.resets for line in lines) - before
    return _prove(resets, f"{resets} connections reset")


def _half_open(scene: Scene, target: str) -> Fault:
    lines = scene.world.lines[target]
    before = sum(line.swallowed for line in lines)
    for line in lines:
        line.half_open()
    try:
        yield
        wait_until(
            "something was swallowed",
            lambda: sum(line.swallowed for line in lines) > before,
        )
    finally:
        for line in lines:
            line.heal()
    return f"{sum(line.swallowed for line in lines) - before} bytes swallowed"


# --- PostgreSQL ---------------------------------------------------------------------


def _postgresql_kill(scene: Scene, _target: str) -> Fault:
    server = scene.world.postgresql
    server.kill()
    proof = _prove(not is_listening(server.port), "nobody listened on its port")
    try:
        yield
    finally:
        server.start()
    return proof


def _postgresql_pause(scene: Scene, _target: str) -> Fault:
    server = scene.world.postgresql
    server.pause()
    try:
        wait_until("PostgreSQL is stopped", lambda: state_of(server.pid) == "T")
        yield
    finally:
        server.unpause()
    return f"pid {server.pid} was stopped"


# --- processes of a driver ----------------------------------------------------------


def _worker_kill(scene: Scene, target: str) -> Fault:
    return (yield from _killed_part(scene.drivers[target], "worker", _is_worker))


def _daemon_kill(scene: Scene, target: str) -> Fault:
    return (yield from _killed_part(scene.drivers[target], "daemon", _is_daemon))


def _planner_kill(scene: Scene, target: str) -> Fault:
    return (yield from _killed_part(scene.drivers[target], "planner", _is_planner))


def _killed_part(driver: Driver, what: str, is_it: Callable[[int], bool]) -> Fault:
    found: list[int] = []

    def look() -> bool:
        found[:] = [pid for pid in session_members(driver.pid) if is_it(pid)]
        return bool(found)

    wait_until(f"'{driver.kind}' has a {what}", look)
    os.kill(found[0], signal.SIGKILL)
    wait_until("it is gone", lambda: state_of(found[0]) in {"", "Z"})
    yield
    return f"pid {found[0]}, {what} of '{driver.kind}', gone"


def _is_daemon(pid: int) -> bool:
    return "daemon" in command_of(pid) and "daemon" not in command_of(_parent(pid))


def _is_worker(pid: int) -> bool:
    return "daemon" in command_of(pid) and "daemon" in command_of(_parent(pid))


def _is_planner(pid: int) -> bool:
    return "streaming_source_runner" in command_of(pid)


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


# --- drivers ------------------------------------------------------------------------


def _driver_kill(scene: Scene, target: str) -> Fault:
    pid = scene.drivers[target].kill()
    proof = _prove(not session_members(pid), f"pid {pid} with all it had started gone")
    yield
    return proof


def _driver_freeze(scene: Scene, target: str) -> Fault:
    """Frozen, overtaken by another, and woken: it must end by itself."""
    driver = scene.drivers[target]
    mark = scene.numbers.newest
    frozen = driver.freeze()
    try:
        wait_until("it is stopped", lambda: state_of(frozen.pid) == "T")
        wait_until(
            f"another '{target}' overtook the frozen one",
            lambda: max(scene.sinks.read(target), default=-1) > mark + 1,
            timeout_s=120,
        )
        yield
        signal_all(frozen, signal.SIGCONT)
        wait_until(
            f"the woken '{target}' has ended by itself",
            lambda: not frozen.is_running,
            timeout_s=90,
        )
    finally:
        signal_all(frozen, signal.SIGKILL)
        frozen.kill()
    return f"pid {frozen.pid} stopped, overtaken by {driver.pid}, ended when woken"


def _commit_entry_lost(scene: Scene, target: str) -> Fault:
    """The last batch is replayed: its txid is begun again, as a newer attempt."""
    driver = scene.drivers[target]
    wait_until(f"'{target}' was between two batches", driver.lose_commit_entry)
    before = driver.tried()
    txid = before[-1][0]
    yield
    wait_until(
        f"txid {txid} of '{target}' was begun again",
        lambda: txid in {again for again, _ in driver.tried()[len(before) :]},
        timeout_s=120,
    )
    attempts = [attempt for again, attempt in driver.tried() if again == txid]
    return _prove(
        attempts == sorted(set(attempts)),
        f"newest entry of the commit log deleted, txid {txid} tried as {attempts}",
    )


FAULTS: Mapping[str, Callable[[Scene, str], Fault]] = {
    "broker-kill": _broker_kill,
    "broker-pause": _broker_pause,
    "leader-move": _leader_move,
    "controller-kill": _controller_kill,
    "cut": _cut,
    "half-open": _half_open,
    "postgresql-kill": _postgresql_kill,
    "postgresql-pause": _postgresql_pause,
    "postgresql-away": _postgresql_kill,
    "worker-kill": _worker_kill,
    "daemon-kill": _daemon_kill,
    "planner-kill": _planner_kill,
    "driver-kill": _driver_kill,
    "driver-freeze": _driver_freeze,
    "commit-entry-lost": _commit_entry_lost,
}
