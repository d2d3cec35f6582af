"""One job, one checkpoint, one store, and another version of Spark each time."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from integration.cluster.jars import REPOSITORY
from integration.cluster.records import Record
from integration.operations.moving_job import DIED

ENVIRONMENTS = "KAFKA_TX_SPARKS"
"""A directory with an environment for each version, in place of nox's."""


def python_of(line: str) -> Path:
    """The Python of the environment that ``make matrix`` made for a line of Spark."""
    place = Path(os.environ.get(ENVIRONMENTS, REPOSITORY / ".nox"))
    wanted = (f"*{line}.*/bin/python", f"*{line.replace('.', '-')}-*/bin/python")
    for found in (path for each in wanted for path in sorted(place.glob(each))):
        return found
    pytest.skip(f"no environment with Spark {line} in {place}: make matrix makes them")


@pytest.mark.all
@pytest.mark.parametrize("door", [[], ["--connect"]], ids=["classic", "connect"])
def test_a_job_moves_to_a_newer_spark_and_back(kafka, topic, produce, tmp_path, door):
    old, new = python_of("4.0"), python_of("4.3")
    name = topic(2)

    def run(python: Path, die_at: int = 0) -> None:
        done = subprocess.run(
            [
                *(python, "-m", "integration.operations.moving_job"),
                *("--work", tmp_path),
                *("--servers", kafka.bootstrap_servers, "--topic", name),
                *("--die-at", str(die_at), *door),
            ],
            env=os.environ
            | {"PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": str(python)},
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        wanted = DIED if die_at else 0
        assert done.returncode == wanted, done.stdout[-3000:] + done.stderr[-5000:]

    written = 0
    for python, die_at in ((old, 2), (new, 5), (old, 8), (new, 0), (old, 0)):
        records = range(written, written + 25)
        produce(name, [Record(str(n), key=f"k{n % 5}") for n in records])
        written += 25
        run(python, die_at)

    with closing(sqlite3.connect(tmp_path / "sink.db")) as db:
        rows = sorted(value for (value,) in db.execute("SELECT value FROM rows"))
    assert rows == list(range(written))
