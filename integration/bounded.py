"""Queries that read what is there, batch by batch, and end; on every line of Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from integration.capabilities import CAPABILITIES, LIMITED_BOUNDED_RUNS
from integration.cluster.waiting import PATIENT_S, wait_until

T = TypeVar("T")

PLANNERS = 5
LATE = "failed to connect back"


class DeadError(Exception):
    """The driver died here."""


def with_a_planner(run: Callable[[], T]) -> T:
    """Run a query; again where Spark gave its planner up before it had started.

    Spark gives it ten seconds, also where the machine is busy. A Connect server gives
    as long to the worker that calls the function of ``foreachBatch``.
    """
    for _ in range(PLANNERS - 1):
        try:
            return run()
        except PySparkException as error:
            if LATE not in str(error):
                raise
    return run()


def read_out(
    writer: Any, within_s: float = PATIENT_S, done: Callable[[], bool] = lambda: True
) -> StreamingQuery:
    """Start a writer of a stream and give its query, which has ended.

    Bounded runs have one batch where Spark takes no limits from a source; there the
    query runs on until there is nothing left to read, and ``done``, as a bounded run
    does by itself before it ends. It raises what the query raised.
    """
    return with_a_planner(lambda: _read_out(writer, within_s, done))


def _read_out(writer: Any, within_s: float, done: Callable[[], bool]) -> StreamingQuery:
    if CAPABILITIES[LIMITED_BOUNDED_RUNS]:
        query: StreamingQuery = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(within_s), "the query did not end"
        finally:
            query.stop()
        return query
    query = writer.start()
    try:
        query.processAllAvailable()
        wait_until("the query is done", done)
    finally:
        query.stop()
    return query
