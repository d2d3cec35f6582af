"""Jobs that pause at a named point, side by side in a driver that is killed there.

A job is a module with ``arguments(words)`` and ``run(spark, arguments)``; it makes the
file ``reached`` in its ``--work`` when it has come to its ``--point``. Run as a program
by ``kill_when_paused``: the driver.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from pyspark.sql import SparkSession

import kafka_tx
from integration.cluster.child import Child
from integration.cluster.waiting import PATIENT_S, NotReadyError, wait_until

REPOSITORY = Path(__file__).parents[1]
LASTS_S = PATIENT_S + 100
"""How long a query may last: beside others that pause, until all are killed."""


@dataclass(frozen=True)
class Life:
    """What a job does while a driver lives.

    Attributes:
        module: Of the job.
        work: A directory of its own.
        words: All other arguments, the point where it pauses among them.
    """

    module: str
    work: Path
    words: Sequence[str]

    @property
    def reached(self) -> Path:
        return self.work / "reached"

    def run(self, spark: SparkSession) -> None:
        job = import_module(self.module)
        job.run(spark, job.arguments(("--work", str(self.work), *self.words)))


def kill_when_paused(
    lives: Sequence[Life],
    python: str = sys.executable,
    build: Path = REPOSITORY,
) -> None:
    """Run jobs in one driver until each of them pauses, and kill it there.

    They have nothing in common but its processes: for each of them it is a driver that
    dies at its own point, and one start of Spark serves all.

    Args:
        lives: What runs until the kill.
        python: What Spark starts its Python processes with.
        build: Folder of the build of kafka_tx that runs; see ``stored.builds``.
    """
    for life in lives:
        life.work.mkdir(exist_ok=True)
        life.reached.unlink(missing_ok=True)
    text = json.dumps([(one.module, str(one.work), one.words) for one in lives])
    child = Child(
        [sys.executable, "-m", "integration.pausing", text],
        lives[0].work / "log",
        directory=build,
        environment={"PYSPARK_PYTHON": python},
    )
    try:
        wait_until(
            "all jobs pause",
            lambda: not missing(lives),
            complain=lambda: None if child.is_running else _last_words(lives, child),
        )
    except NotReadyError as error:
        raise NotReadyError(f"{error}; not there: {missing(lives)}") from None
    finally:
        child.kill()


def _last_words(lives: Sequence[Life], child: Child) -> str:
    """Which job ended the driver, as ``live`` prints it; Java writes behind it."""
    names = {life.work.name for life in lives}
    lines = child.log.read_text(errors="replace").splitlines()
    return "\n".join(x for x in lines if x.split(" ")[0] in names) or child.tail()


def missing(lives: Sequence[Life]) -> list[str]:
    """Whose pause is still awaited, by the directory."""
    return [life.work.name for life in lives if not life.reached.exists()]


def run_to_end(module: str, spark: SparkSession, work: Path, *words: str) -> None:
    """Run a job in this process to its end: the life that nothing kills.

    Args:
        module: Of the job.
        spark: The session that there is.
        work: Its directory.
        words: All other arguments, but for the point and the txid of a pause.
    """
    Life(module, work, (*words, "--point", "none", "--txid", "0")).run(spark)


def main() -> None:
    lives = [Life(name, Path(work), words) for name, work, words in lives_to_kill()]

    from integration.cluster.spark_local import local_session

    # tasks that pause keep their cores, up to six of a job; what has no number of
    # partitions of its own has two, as with two cores
    more = {"spark.default.parallelism": "2"}
    spark = local_session(lives[0].work, more, cores=4 * len(lives))
    kafka_tx.for_each_transaction(print)  # streams that start together: docs/errors.md
    threads = [
        threading.Thread(target=live, args=(life, spark.newSession())) for life in lives
    ]
    for thread in threads:
        thread.start()
    for thread in threads:  # nothing can be imported once this one has ended
        thread.join()


def lives_to_kill() -> list[tuple[str, str, list[str]]]:
    found: list[tuple[str, str, list[str]]] = json.loads(sys.argv[1])
    return found


def live(life: Life, spark: SparkSession) -> None:
    """Come to the pause; whatever else happens ends the driver."""
    try:
        life.run(spark)
        print(life.work.name, "never paused:", *life.words, flush=True)
    except BaseException as error:  # noqa: BLE001 - the log has it
        traceback.print_exc()
        print(life.work.name, "failed:", f"{error!r:.2000}", flush=True)
    os._exit(1)


if __name__ == "__main__":
    main()
