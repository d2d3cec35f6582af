"""The demo counts right: here without a kill, as users run it in `make test-all`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.cluster.spark_local import quick_environment
from kafka_tx.cli import demo, demo_command

COMMAND = Path(sys.executable).with_name("kafka-tx")
RECORDS = 2_000
TIMEOUT_S = 600


def check(out: str, err: str, crashes: int) -> None:
    told = json.loads(out.splitlines()[-1])
    assert told["produced"] == told["counted"] == RECORDS
    assert (told["lost"], told["duplicated"], told["crashes"]) == (0, 0, crashes)
    assert told["seconds"] > 0
    assert told["records_per_second"] > 0
    assert ("was counted before: skipped" in err) == bool(crashes)
    assert "WARN" not in err


@pytest.mark.timeout(TIMEOUT_S)
def test_it_counts_every_record(monkeypatch, capfd):
    """Its JVM starts as those of the tests do: in half the time.

    Real drivers die at the same points in ``test_crashes``.
    """
    monkeypatch.setattr(demo, "CRASHES", ())
    monkeypatch.setattr(demo, "_PRODUCING_S", 3.0)
    for name, value in quick_environment().items():
        monkeypatch.setenv(name, value)

    demo_command.demo(records=RECORDS, as_json=True)

    shown = capfd.readouterr()
    check(shown.out, shown.err, crashes=0)


def run_demo(*more: str, **environment: str) -> None:
    done = subprocess.run(
        [COMMAND, "demo", "--records", str(RECORDS), "--json", *more],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check(done.stdout, done.stderr, crashes=3)


@pytest.mark.all
@pytest.mark.timeout(TIMEOUT_S)
def test_the_demo_counts_every_record_once_through_three_kills():
    run_demo(**quick_environment())


@pytest.mark.all
@pytest.mark.timeout(TIMEOUT_S)
def test_the_demo_runs_on_a_real_cluster_too_and_cleans_up(kafka):
    run_demo("--bootstrap-servers", kafka.bootstrap_servers)
