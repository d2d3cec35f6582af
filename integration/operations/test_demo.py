"""The demo counts right: here without a kill, as users run it in `make test-all`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from integration.cluster.spark_local import quick_environment
from kafka_tx.cli import demo
from kafka_tx.testing.mock import Feed, MockCluster

COMMAND = Path(sys.executable).with_name("kafka-tx")
RECORDS = 2_000
TIMEOUT_S = 600


def check(out: str, err: str, crashes: int) -> None:
    totals = json.loads(out.splitlines()[-1])
    assert totals["produced"] == totals["counted"] == RECORDS
    assert (totals["lost"], totals["duplicated"], totals["crashes"]) == (
        0,
        0,
        crashes,
    )
    assert totals["seconds"] > 0
    assert totals["records_per_second"] > 0
    assert ("was counted before: skipped" in err) == bool(crashes)
    assert "WARN" not in err


@pytest.mark.all
def test_it_counts_every_record(monkeypatch, capfd):
    """Its JVM starts as those of the tests do: in half the time.

    Real drivers die at the same points in ``test_crashes``.
    """
    monkeypatch.setattr(demo, "CRASHES", ())
    monkeypatch.setattr(demo, "_PRODUCING_S", 3.0)
    for name, value in quick_environment().items():
        monkeypatch.setenv(name, value)

    demo.demo(records=RECORDS, as_json=True)

    shown = capfd.readouterr()
    check(shown.out, shown.err, crashes=0)


@pytest.mark.all
def test_the_job_to_paste_counts_the_words_of_the_kept_topic(
    spark, monkeypatch, replace_in
):
    """As it is printed, but that its rows go where they can be read, and it ends."""
    printed = io.StringIO()
    sent = iter(range(100))
    replace_in(demo, "time", sleep=lambda _: next(sent, None) is None and stop())
    with MockCluster() as cluster:
        kafka = {"bootstrap.servers": cluster.bootstrap_servers}
        cluster.create_topic("kept", 4)
        feed = Feed(kafka, "kept", 4)

        demo._keep(Console(file=printed, width=200), kafka, feed)
        monkeypatch.undo()
        feed.flush()

        job = printed.getvalue().partition("import os")[2].partition("Ctrl-C")[0]
        job = job.replace('format("console")', 'format("memory").queryName("kept")')
        job = job.replace("awaitTermination", "processAllAvailable")
        exec(f"import os{job}", {})

    assert spark.table("kept").groupBy().sum("count").first()[0] == feed.confirmed
    for query in spark.streams.active:
        query.stop()


def stop():
    raise KeyboardInterrupt


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
def test_the_demo_counts_every_record_once_through_three_kills():
    run_demo(**quick_environment())


@pytest.mark.all
def test_the_demo_runs_on_a_real_cluster_too_and_cleans_up(kafka):
    run_demo("--bootstrap-servers", kafka.bootstrap_servers)
