"""Jobs in processes of their own that pause at a named point, to be killed there."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from pyspark.sql import SparkSession

from integration.cluster.child import Child
from integration.cluster.waiting import wait_until

REPOSITORY = Path(__file__).parents[1]
WITHIN_S = 240


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


def run_to_end(module: str, spark: SparkSession, work: Path, *arguments: str) -> None:
    """Run a job in this process to its end: the life that nothing kills.

    Args:
        module: Of the job, whose ``run`` takes the session and what ``arguments`` made.
        spark: The session that there is.
        work: As for ``run_to_pause``.
        arguments: All others, but for the point and the txid of a pause.
    """
    job = import_module(module)
    words = ("--work", str(work), *arguments, "--point", "none", "--txid", "0")
    job.run(spark, job.arguments(words))
