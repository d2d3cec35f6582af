"""Faults of a job: its workers, daemon, planner, its driver, and what Spark wrote."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from integration.chaos.drivers import Driver, command_of, signal_all
from integration.chaos.scene import Fault, Scene, prove
from integration.cluster.child import state_of
from integration.cluster.waiting import wait_until
from kafka_tx.testing.process_tree import session_members


def worker_kill(scene: Scene, target: str) -> Fault:
    return (yield from _killed_part(scene.drivers[target], "worker", _is_worker))


def daemon_kill(scene: Scene, target: str) -> Fault:
    return (yield from _killed_part(scene.drivers[target], "daemon", _is_daemon))


def planner_kill(scene: Scene, target: str) -> Fault:
    return (yield from _killed_part(scene.drivers[target], "planner", _is_planner))


def _killed_part(driver: Driver, what: str, is_it: Callable[[int], bool]) -> Fault:
    found: list[int] = []

    def poll() -> bool:
        found[:] = [pid for pid in session_members(driver.pid) if is_it(pid)]
        return bool(found)

    wait_until(f"'{driver.kind}' has a {what}", poll)
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


def driver_kill(scene: Scene, target: str) -> Fault:
    pid = scene.drivers[target].kill()
    proof = prove(not session_members(pid), f"pid {pid} with all it had started gone")
    yield
    return proof


def driver_freeze(scene: Scene, target: str) -> Fault:
    """Frozen, overtaken by another, and woken: it must end by itself."""
    driver = scene.drivers[target]
    mark = scene.numbers.newest
    frozen = driver.freeze()
    try:
        wait_until("it is stopped", lambda: state_of(frozen.pid) == "T")
        wait_until(
            f"another '{target}' overtook the frozen one",
            lambda: max(scene.sinks.read(target), default=-1) > mark + 1,
            timeout_s=240,
        )
        yield
        signal_all(frozen, signal.SIGCONT)
        wait_until(
            f"the woken '{target}' has ended by itself",
            lambda: not frozen.is_running,
            timeout_s=240,
        )
    finally:
        signal_all(frozen, signal.SIGKILL)
        frozen.kill()
    return f"pid {frozen.pid} stopped, overtaken by {driver.pid}, ended when woken"


def commit_entry_lost(scene: Scene, target: str) -> Fault:
    """The last batch is replayed: its txid is begun again, as a newer attempt."""
    driver = scene.drivers[target]
    wait_until(f"'{target}' was between two batches", driver.lose_commit_entry)
    before = driver.tried()
    txid = before[-1][0]
    yield
    wait_until(
        f"txid {txid} of '{target}' was begun again",
        lambda: txid in {again for again, _ in driver.tried()[len(before) :]},
        timeout_s=240,
    )
    attempts = [attempt for again, attempt in driver.tried() if again == txid]
    return prove(
        attempts == sorted(set(attempts)),
        f"newest entry of the commit log deleted, txid {txid} tried as {attempts}",
    )
