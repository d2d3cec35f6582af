"""The demo as a user runs it: as a command, with nothing but its options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.cluster.spark_local import quick_environment

COMMAND = Path(sys.executable).with_name("kafka-tx")
RECORDS = 2_000
TIMEOUT_S = 600


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["produced"] == told["counted"] == RECORDS
    assert (told["lost"], told["duplicated"], told["crashes"]) == (0, 0, 3)
    assert told["seconds"] > 0
    assert told["records_per_second"] > 0
    assert "was counted before: skipped" in done.stderr
    assert "WARN" not in done.stderr


def demo(*more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "demo", "--records", str(RECORDS), "--json", *more],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.timeout(TIMEOUT_S)
def test_the_demo_counts_every_record_once_through_three_kills():
    """Its JVMs and Pythons start as those of the tests do: in half the time."""
    check(demo(**quick_environment()))


@pytest.mark.all
@pytest.mark.timeout(TIMEOUT_S)
def test_the_demo_runs_on_a_real_cluster_too_and_cleans_up(kafka):
    check(demo("--bootstrap-servers", kafka.bootstrap_servers))
