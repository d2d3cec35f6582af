"""SIGKILL at each named point of a batch's life: nothing lost, nothing twice.

Queries and topologies, with and without state, die together: in one driver.
"""

from __future__ import annotations

from itertools import zip_longest

import pytest

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
from integration.pausing import kill_when_paused
from integration.sizes import EVERYTHING, size

KINDS = (source, state, lake, files, topology, state_topology, spout)
CASES = [case for kind in KINDS for case in (kind.EVERY if EVERYTHING else kind.USUAL)]
AT_ONCE = size(20, 4)
"""Jobs of one driver. Where Python processes start as users' do, many at once take
longer than the ten seconds that Spark gives each of them."""


@pytest.fixture(scope="module")
def world(kafka, produce, mortal_kafka, zookeeper, postgresql_server, tmp_path_factory):
    return World(
        kafka, produce, mortal_kafka, zookeeper, postgresql_server, tmp_path_factory
    )


@pytest.fixture(scope="module")
def killed(world, python):
    """Jobs by name; the drivers of all have died at their points, the last is due."""
    jobs = {case.name: case.on(world) for case in CASES}

    for points in zip_longest(*(case.points for case in CASES)):
        paused = [(j, p) for j, p in zip(jobs.values(), points, strict=True) if p]
        for first in range(0, len(paused), AT_ONCE):
            together = paused[first : first + AT_ONCE]
            kill_when_paused([job.to(point) for job, point in together], python)
    return jobs


@pytest.mark.timeout(size(600, 3_000))
@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_a_kill_at_every_point_loses_and_repeats_nothing(spark, killed, name):
    job = killed[name]
    job.finish(spark)
    job.check()
