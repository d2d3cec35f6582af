"""Jobs in processes of their own that pause at a named point, to be killed there."""

from __future__ import annotations

import sys
from pathlib import Path

from integration.cluster.child import Child
from integration.cluster.waiting import wait_until

REPOSITORY = Path(__file__).parents[1]
WITHIN_S = 180


def run_to_pause(module: str, work: Path, *arguments: str) -> bool:
    """Run a job until it pauses, and kill it there, or has finished; whether it has.

    Args:
        module: Of the job; it makes the file ``reached`` or ``finished`` in ``work``.
        work: Given to it as ``--work``; its output goes to the file ``log`` there.
        arguments: All others, the point where it is to pause among them.
    """
    reached, finished = work / "reached", work / "finished"
    reached.unlink(missing_ok=True)
    child = Child(
        [sys.executable, "-m", module, "--work", work, *arguments],
        work / "log",
        directory=REPOSITORY,
        environment={"PYSPARK_PYTHON": sys.executable},
    )
    try:
        wait_until(
            f"{module} pauses or has finished",
            lambda: reached.exists() or finished.exists(),
            timeout_s=WITHIN_S,
            complain=lambda: (
                None if child.is_running or finished.exists() else child.tail()
            ),
        )
    finally:
        child.kill()
    return finished.exists()
