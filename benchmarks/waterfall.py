"""Where the time of a micro-batch goes: Spark's phases, the user's function, its job.

Medians over the micro-batches with records that a query reports. A row that is indented
is part of the row above it. Two rows are measured nowhere, and are what is left.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from statistics import median
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

_PHASES = {
    "plan": ("latestOffset",),
    "offset log": ("walCommit",),
    "query planning": ("getBatch", "queryPlanning"),
    "addBatch": ("addBatch",),
    "commit log": ("commitOffsets",),
}
ROWS = (
    "trigger",
    "  plan",
    "  offset log",
    "  query planning",
    "  addBatch",
    "    to the function and back",
    "    the question for the txid",
    "    the job",
    "      its stage",
    "        each of its tasks in Python",
    "    the sink",
    "  commit log",
    "  the rest of the trigger",
    "until the next trigger",
)

Steps = dict[str, float]
"""By name, milliseconds of one micro-batch."""


class Watch:
    """Times what happens inside ``foreachBatch``, batch after batch."""

    def __init__(self) -> None:
        self.batches: dict[int, Steps] = defaultdict(dict)
        self._batch = -1

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step of the batch whose function runs."""
        began = time.perf_counter()
        yield
        self.batches[self._batch][name] = (time.perf_counter() - began) * 1000

    def around(
        self, sink: Callable[[DataFrame, int], None]
    ) -> Callable[[DataFrame, int], None]:
        """The function for ``foreachBatch``. What is no step of it is the question."""

        def call(df: DataFrame, batch_id: int) -> None:
            self._batch = batch_id
            with self.step("function"):
                sink(df, batch_id)

        return call


def watched(query: StreamingQuery, watch: Watch) -> list[Steps]:
    """The micro-batches with records of a query that runs; not its first ones."""
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    found = [
        of_trigger(p["durationMs"], watch.batches.get(p["batchId"], {}))
        for p in progress
    ]
    stages = stages_of(query)
    for steps, each in zip(reversed(found), reversed(stages), strict=False):
        steps |= each
    for steps, now, after in zip(found, progress, progress[1:], strict=False):
        steps["until the next trigger"] = _began_ms(after) - (
            _began_ms(now) + now["durationMs"]["triggerExecution"]
        )
    return found[len(found) // 3 :]


def _began_ms(progress: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000


def of_trigger(durations: Mapping[str, int], inside: Steps) -> Steps:
    whole = durations["triggerExecution"]
    steps = {
        row: float(sum(durations.get(name, 0) for name in names))
        for row, names in _PHASES.items()
    }
    rest = whole - sum(steps.values())
    job, sink = inside.get("job", 0.0), inside.get("sink", 0.0)
    function = inside.get("function", 0.0)
    return {
        **steps,
        "trigger": float(whole),
        "the rest of the trigger": rest,
        "to the function and back": steps["addBatch"] - function,
        "the question for the txid": function - job - sink,
        "the job": job,
        "the sink": sink,
    }


def stages_of(query: StreamingQuery) -> list[Steps]:
    """The stages that a query has run, as far as Spark still knows them."""
    context = SparkContext.getOrCreate()
    tracker = context.statusTracker()
    store = context._jsc.sc().statusStore()
    found = []
    for job in sorted(tracker.getJobIdsForGroup(str(query.runId))):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            data = store.lastStageAttempt(stage)
            if data.completionTime().isEmpty():
                continue
            took = (
                data.completionTime().get().getTime()
                - data.submissionTime().get().getTime()
            )
            run = data.executorRunTime() / max(data.numTasks(), 1)
            found.append(
                {"its stage": float(took), "each of its tasks in Python": float(run)}
            )
    return found


def table(of_systems: Mapping[str, Sequence[Steps]]) -> list[str]:
    """Lines of a table: a row for each step, a column for each system."""
    width = max(map(len, ROWS))
    lines = [
        f"{'ms, medians':<{width}}" + "".join(f"  {name:>14}" for name in of_systems)
    ]
    for row in ROWS:
        cells = ""
        for batches in of_systems.values():
            known = [b[row.strip()] for b in batches if row.strip() in b]
            cells += f"  {median(known):>14.1f}" if known else f"  {'':>14}"
        lines.append(f"{row:<{width}}{cells}")
    return lines
