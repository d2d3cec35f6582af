"""One run: start everything, break it again and again, count."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from integration.chaos.counting import Numbers, Sinks, wait_for_all
from integration.chaos.drivers import Driver
from integration.chaos.faults import FAULTS
from integration.chaos.report import Happened, Report
from integration.chaos.scene import NotHitError, Scene
from integration.chaos.schedule import ALL_JOBS, Planned
from integration.chaos.world import servers
from integration.cluster.waiting import NotReadyError

STARTS_WITHIN_S = 240.0
WATCHED_S = 240.0
"""How long one that is late is watched, to tell slow from stuck."""

_POLL_EVERY_S = 0.3


def run(
    title: str,
    faults: Iterable[Planned],
    minutes: float | None = None,
    *,
    jobs: tuple[str, ...] = ALL_JOBS,
    within_s: float = 60.0,
    logs: Path | None = None,
    say: Callable[[str], None] = print,
) -> Report:
    """Break things for so long; what was seen.

    Args:
        title: What the report is called.
        faults: One after the other.
        minutes: How long faults are begun; None: until there are no more.
        jobs: Which run.
        within_s: How long after a fault a job may stand still; where another driver
            was begun, after Spark had a session again.
        logs: A directory that takes what the jobs printed.
        say: Told each fault as it is over, and the account before anything is taken
            down: what fails then hides no verdict.
    """
    report = Report(title, within_s)
    with ExitStack() as stack:
        world = stack.enter_context(servers(jobs))
        numbers, sinks = Numbers(world), Sinks(world)
        stack.callback(sinks.close)
        drivers = {kind: Driver(kind, world.addresses()) for kind in jobs}
        for driver in drivers.values():
            stack.callback(driver.stop)
            driver.start()
        if logs is not None:
            stack.callback(_keep_logs, drivers, logs)
        numbers.start()
        stack.callback(numbers.stop)
        scene = Scene(world, drivers, numbers, sinks)
        report.first_s = _recovered(scene, 0, STARTS_WITHIN_S)
        report.calm_s = _recovered(scene, numbers.newest, STARTS_WITHIN_S)
        say(report.start())
        until = time.monotonic() + 60 * minutes if minutes else float("inf")
        for planned in faults:
            if time.monotonic() > until:
                break
            happened = _happened(scene, planned)
            report.happened.append(happened)
            say(happened.text(within_s))
        numbers.stop()
        report.acknowledged = len(numbers.acknowledged)
        report.counts = wait_for_all(jobs, numbers.acknowledged, sinks, WATCHED_S)
        report.starts = {kind: driver.starts for kind, driver in drivers.items()}
        say(str(report))
    return report


def _happened(scene: Scene, planned: Planned) -> Happened:
    time.sleep(planned.pause_s)
    starts = {kind: driver.starts for kind, driver in scene.drivers.items()}
    began = time.strftime("%H:%M:%S")
    try:
        happened = Happened(planned, _proof(scene, planned), has_hit=True)
    except (NotHitError, NotReadyError) as error:
        happened = Happened(planned, str(error), has_hit=False)
    happened.began = began
    over = time.time()
    happened.recovered_s = _recovered(scene, scene.numbers.newest, WATCHED_S)
    happened.load = os.getloadavg()[0]
    happened.spark_s = {
        kind: max(0.0, max(driver.started(), default=over) - over)
        for kind, driver in scene.drivers.items()
        if driver.starts > starts[kind]
    }
    return happened


def _proof(scene: Scene, planned: Planned) -> str:
    """Carry the fault out; what proves that it hit."""
    fault = FAULTS[planned.name](scene, planned.target)
    try:
        next(fault)
        time.sleep(planned.lasts_s)
        next(fault)
    except StopIteration as end:
        return str(end.value)
    finally:
        fault.close()
    raise AssertionError(f"{planned} did not end")


def _recovered(scene: Scene, mark: int, within_s: float) -> dict[str, float | None]:
    """Seconds until each job has counted what was written after now."""
    began = time.monotonic()
    took: dict[str, float | None] = dict.fromkeys(scene.drivers)
    while None in took.values() and time.monotonic() < began + within_s:
        for kind in scene.drivers:
            if took[kind] is None and max(scene.sinks.read(kind), default=-1) > mark:
                took[kind] = time.monotonic() - began
        time.sleep(_POLL_EVERY_S)
    return took


def _keep_logs(drivers: Mapping[str, Driver], place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for kind, driver in drivers.items():
        shutil.copyfile(driver.log, place / f"{kind}.log")
