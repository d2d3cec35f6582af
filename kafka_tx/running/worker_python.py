"""Spark's Python workers: which Python they run, and how they collect garbage."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import count
from typing import Any

from kafka_tx.logs import event_log

logger = event_log(__name__)

_ANSWER_S = 60
_ASK = """
import pkgutil
from importlib.util import find_spec
print(find_spec("kafka_tx") is not None, end=" ")
print(any(m.name == "pyspark_kafka_tx" for m in pkgutil.iter_modules()))
"""


@dataclass(frozen=True, slots=True)
class WorkerPython:
    """The Python of the workers on this machine.

    Attributes:
        command: Its path, or the configured word if there is no such command.
        exists: Whether it can be started.
        has_package: Whether it can import ``kafka_tx``.
        finds_format: Whether Spark finds ``format("kafka_tx")`` without a register
            call. Spark does not find it in an editable installation.
    """

    command: str
    exists: bool = True
    has_package: bool = False
    finds_format: bool = False

    @property
    def advice(self) -> str:
        """The next step if the package is missing."""
        return (
            f"set PYSPARK_PYTHON={sys.executable} before the session is made, or"
            " install kafka-tx there too"
        )


def inspect_python(chosen: str | None = None) -> WorkerPython:
    """Start the workers' Python on this machine, and check its packages.

    By default it is Spark's choice: ``PYSPARK_PYTHON``, or ``python3`` from the path.
    """
    chosen_name = chosen or os.environ.get("PYSPARK_PYTHON") or "python3"
    command = shutil.which(chosen_name)
    if command is None:
        return WorkerPython(chosen_name, exists=False)
    try:
        answer = subprocess.run(  # noqa: S603 - Spark starts it, too
            [command, "-c", _ASK],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_ANSWER_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return WorkerPython(command, exists=False)
    has_package, _, finds_format = answer.stdout.strip().partition(" ")
    return WorkerPython(
        command,
        has_package=has_package == "True",
        finds_format=finds_format == "True",
    )


def warn_without_package(context: Any) -> None:  # noqa: ANN401 - Spark's
    """Warn early of a missing package, which would end the first job.

    Needs a session, because the session decides which Python its workers run. Checks
    only workers on this machine; others cannot be checked.
    """
    python = str(context.pythonExec)
    if shutil.which(python) == sys.executable or context._python_includes:
        return
    if not str(context.master).startswith("local"):
        return
    found = inspect_python(python)
    if not found.has_package:
        logger.warning(
            "Spark's workers run %s, which has no kafka_tx: neither format('kafka_tx')"
            " nor bolts will be found. To mend it, %s",
            found.command,
            found.advice,
        )


_FREEZE_AFTER = (1, 2, 8, 64)
"""The heap is frozen after these tasks of a process; the first ones load modules."""

_tasks = count(1)


def task_done() -> None:
    """Exempt live objects from garbage collection, after a process's first tasks.

    A worker calls it when a task has released everything. A frozen object is still
    freed with its last reference. Only cycles of frozen objects are never found, so
    garbage is collected before.
    """
    if next(_tasks) in _FREEZE_AFTER:
        gc.collect()
        gc.freeze()
