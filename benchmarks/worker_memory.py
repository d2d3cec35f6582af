"""Memory of Spark's Python workers above one that has only imported the source."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

LIMIT_MB = 200.0
"""What a worker may take above idle at records of 1 KB."""

IDLE = (
    "import kafka_tx.spark.source.stream, kafka_tx.native as n; n.status();"
    "print(open('/proc/self/status').read())"
)
RESET_PEAK = "5"  # to Linux: proc(5), clear_refs


class WorkerMemory:
    """The workers below this process, from its making to ``peak_mb``."""

    def __init__(self) -> None:
        for worker in _workers():
            Path(worker, "clear_refs").write_text(RESET_PEAK)

    def peak_mb(self) -> float:
        """The largest worker's peak since then, above an idle one."""
        idle = subprocess.run(
            [sys.executable, "-c", IDLE], capture_output=True, text=True, check=True
        )
        peaks = [_mb(Path(worker, "status").read_text()) for worker in _workers()]
        return max(peaks) - _mb(idle.stdout)


def _mb(status: str) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def _workers() -> list[Path]:
    return [
        process
        for process in _below(os.getpid())
        if b"pyspark.daemon" in (process / "cmdline").read_bytes()
    ]


def _below(parent: int) -> list[Path]:
    found: list[Path] = []
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [Path(f"/proc/{child}"), *_below(child)]
    return found
