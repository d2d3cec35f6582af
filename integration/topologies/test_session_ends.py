"""The Spark session ends under topologies: they say so, and let their process end."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from integration.cluster.jars import REPOSITORY
from integration.cluster.waiting import wait_until

NAMES = {"numbered-busy", "numbered-idle", "records-busy", "records-idle"}
WITHIN_S = 180


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.all), "kill"])
def test_waits_raise_stop_returns_and_the_process_ends(
    kafka, topic, produce, tmp_path, python, how
):
    full, empty = topic(1), topic(1)
    produce(full, ["v"] * 5, partition=0)
    command = [
        *(sys.executable, "-m", "integration.topologies.session_job"),
        *("--work", str(tmp_path)),
        *("--servers", kafka.bootstrap_servers, "--how", how),
        *("--full", full, "--empty", empty),
    ]
    shown = tmp_path / "shown"
    with shown.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYSPARK_PYTHON": python},
        )
        try:
            wait_until(
                "the process has ended",
                lambda: process.poll() is not None,
                timeout_s=WITHIN_S,
                complain=lambda: None,
            )
        finally:
            process.kill()
            process.wait()

    text = shown.read_text(errors="replace")
    assert process.returncode == 3, text[-4000:]
    assert "stopped" in text
    reported = re.findall(
        r"^(\S+) awaitTermination (\S+) \[KAFKA_TX_SPARK_STOPPED\]", text, re.M
    )
    assert {name for name, _ in reported} == NAMES, text[-4000:]
    # 10 s on a machine that has nothing else to do
    assert all(float(after_s) < 60 for _, after_s in reported), reported
    assert len(re.findall("process_all_available", text)) == len(NAMES)
