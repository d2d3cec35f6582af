"""Where the files of a run lie: ``python -m integration.cluster.memory`` prints it.

SQLite, PostgreSQL and ZooKeeper wait for the disk at each commit. Tests kill processes
and never the machine, so memory serves them as well, where enough of it is free.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
NEEDED_BYTES = 4 << 30
"""A run leaves some hundred megabytes there."""


def place() -> Path:
    """Linux's folder in memory if programs may lie there, else the usual one."""
    usual = Path(tempfile.gettempdir())
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return usual
    about = os.statvfs(MEMORY)
    is_roomy = about.f_bavail * about.f_frsize >= NEEDED_BYTES
    return MEMORY if is_roomy and not about.f_flag & os.ST_NOEXEC else usual


if __name__ == "__main__":
    print(place())
