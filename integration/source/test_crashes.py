"""SIGKILL at each named point of a batch's life: nothing lost, nothing twice.

Queries and topologies, with and without state, die together: in one driver. The first
driver is of a later version, which stores more, and the last one of this version. In
``make test-all`` drivers of both die in turn.
"""

from __future__ import annotations

from contextlib import closing
from itertools import cycle, zip_longest

import pytest

from integration.cluster.running import running
from integration.cluster.warm_python import WarmPython
from integration.killed import (
    files,
    lake,
    source,
    spout,
    state,
    state_topology,
    topology,
)
from integration.killed.interface import World
from integration.killed.source import QueryJob
from integration.pausing import kill_when_paused
from integration.sizes import EVERYTHING, size
from integration.stored import builds
from kafka_tx.sql.store import SqlStore

KINDS = (source, state, lake, files, topology, state_topology, spout)
CASES = [case for kind in KINDS for case in (kind.EVERY if EVERYTHING else kind.USUAL)]


@pytest.fixture(scope="module")
def world(kafka, produce, zookeeper, postgresql_server, tmp_path_factory):
    return World(kafka, produce, zookeeper, postgresql_server, tmp_path_factory)


@pytest.fixture(scope="module")
def versions(python, tmp_path_factory):
    """Folder and Python of a later version, and of this one."""
    later = builds.build(tmp_path_factory.mktemp("builds") / "later", builds.MORE)
    with running(WarmPython(later)) as warm:
        yield (later, str(warm.launcher)), (builds.REPOSITORY, python)


@pytest.fixture(scope="module")
def killed(world, versions):
    """Jobs by name; the drivers of all have died at their points, the last is due."""
    jobs = {case.name: case.on(world) for case in CASES}

    rounds = zip_longest(*(case.points for case in CASES))
    for points, (build, python) in zip(rounds, cycle(versions), strict=False):
        together = zip(jobs.values(), points, strict=True)
        lives = [job.to(point) for job, point in together if point]
        kill_when_paused(lives, python, build)
    return jobs


@pytest.mark.timeout(size(900, 3_000))
def test_the_first_drivers_were_of_a_later_version(killed):
    for job in killed.values():
        if isinstance(job, QueryJob):
            with closing(SqlStore(job.store, job.topic)) as store:
                assert "later" in str(store.read())


@pytest.mark.timeout(size(900, 3_000))
@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_a_kill_at_every_point_loses_and_repeats_nothing(spark, killed, name):
    job = killed[name]
    job.finish(spark)
    job.check()
