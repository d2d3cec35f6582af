"""Closing a client of the extension, whatever librdkafka does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parent.parent / "kafka_tx/native/src"
PARTS = ("client", "watch", "failure")


def test_nobody_waits_for_ever_and_the_last_one_frees(tmp_path):
    """``make sanitize`` runs it, too, and sees what is freed."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    program = tmp_path / "closing"
    sources = [HERE / "closing_driver.c", *(SOURCES / f"{part}.c" for part in PARTS)]
    flags = ("-std=c11", "-O1", "-D_GNU_SOURCE", f"-I{SOURCES}", "-pthread")
    subprocess.run([compiler, *flags, *sources, "-o", program], check=True)

    told = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True)

    ended, in_place, threads_left, longest_s = map(int, told.stdout.split())
    assert (ended, in_place, threads_left) == (147, 3, 0)
    assert 4 < longest_s < 15
