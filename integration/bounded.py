"""Queries that read what is there, batch by batch, and end; on every line of Spark."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from kafka_tx.spark.versions.reading import TAKES_LIMITS


def read_out(writer: Any, within_s: int = 120) -> StreamingQuery:
    """Start a writer of a stream and give its query, which has ended.

    Bounded runs have one batch where Spark takes no limits from a source; there the
    query runs on until there is nothing left to read. It raises what the query raised.
    """
    if TAKES_LIMITS:
        query: StreamingQuery = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(within_s), "the query did not end"
        finally:
            query.stop()
        return query
    query = writer.start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return query
