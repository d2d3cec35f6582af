"""What Spark knows and Python's API does not tell, asked of the JVM.

Everything here is a convenience: where an answer cannot be had (Spark Connect, another
version) it is None or empty, said once in the log, and the caller does without.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from kafka_tx import errors
from kafka_tx.errors import KafkaTxError

logger = logging.getLogger(__name__)

_FAILURES = (Py4JError, AttributeError, TypeError)


def source_options(spark: SparkSession, query_id: str) -> dict[str, dict[str, str]]:
    """The options of each ``kafka_tx`` source of a running query, by its ``tx.id``."""
    found: dict[str, dict[str, str]] = {}
    try:
        for leaf in _leaves(_query(spark, query_id).logicalPlan()):
            if (
                not leaf.getClass()
                .getName()
                .endswith("StreamingDataSourceV2ScanRelation")
            ):
                continue
            options = dict(leaf.relation().options().asCaseSensitiveMap())
            given = {name.lower(): value for name, value in options.items()}
            if "tx.id" in given:
                found[given["tx.id"].strip()] = given
    except _FAILURES as error:
        logger.debug("options of query %s cannot be read: %s", query_id, error)
    return found


def logged_offsets(
    spark: SparkSession, query_id: str, batch_id: int
) -> list[dict[str, Any] | None]:
    """End offsets of one batch from Spark's offset log, one for each source.

    Raises:
        KafkaTxError: The log cannot be asked, or does not know the batch.
    """
    try:
        logged = _query(spark, query_id).offsetLog().get(batch_id)
        offsets = logged.get().offsets()
        texts = [offsets.apply(i) for i in range(offsets.size())]
        return [
            json.loads(text.get().json()) if text.isDefined() else None
            for text in texts
        ]
    except _FAILURES as error:
        raise KafkaTxError(
            f"batch {batch_id} cannot be read from Spark's offset log: {error}"
        ) from error


def run_id(spark: SparkSession, query_id: str) -> str:
    """The id of this run of the query; another one after each restart."""
    return str(_query(spark, query_id).runId())


def error_of(text: str) -> KafkaTxError:
    """An error of ours as good as it can be told from a query's exception text."""
    for kind in _kinds(KafkaTxError):
        if f"[{kind.error_class}" in text:
            error = kind.__new__(kind)
            KafkaTxError.__init__(error, text)
            return error
    name = re.search(r"\[([A-Z_]+)\]", text)
    return KafkaTxError(name.group(1) if name else "the query failed")


def _kinds(kind: type[errors.KafkaTxError]) -> list[type[errors.KafkaTxError]]:
    below = [found for sub in kind.__subclasses__() for found in _kinds(sub)]
    return [*below, kind]


def _query(spark: SparkSession, query_id: str) -> Any:  # noqa: ANN401 - a JVM object
    """The running query, from whichever session it was started.

    ``foreachBatch`` gets a clone of the session, whose own list of queries is empty.
    """
    running = spark._jsparkSession.sharedState().activeStreamingQueries()
    query = running.get(spark._jvm.java.util.UUID.fromString(query_id))
    if query is None:
        raise AttributeError(f"no running query {query_id}")
    return query


def _leaves(plan: Any) -> list[Any]:  # noqa: ANN401 - JVM objects
    leaves = plan.collectLeaves()
    return [leaves.apply(i) for i in range(leaves.size())]
