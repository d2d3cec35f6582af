"""How the user's process reaches the planner of a running query.

Through the query's own stream in the JVM: where Spark hands a start over, as a call of
``latestOffset``; else as one of ``planInputPartitions``.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

from kafka_tx.spark.versions.reading import TAKES_LIMITS, AnswerPartition


def answer_of(stream: Any, asked: Any, limit: Any) -> dict[str, Any]:  # noqa: ANN401
    """What the planner answers.

    Args:
        stream: Of the query, a JVM object.
        asked: The question as one of its offsets.
        limit: Any of Spark's read limits; a question does not look at it.

    Raises:
        Py4JError: The planner raised, or cannot be reached.
    """
    told: dict[str, Any]
    if TAKES_LIMITS:
        told = json.loads(stream.latestOffset(asked, limit).json())
        return told
    (partition,) = stream.planInputPartitions(asked, asked)
    pickled = bytes(partition.pickedPartition())
    answer = pickle.loads(pickled)  # noqa: S301 - by a process of this query
    assert isinstance(answer, AnswerPartition)
    told = answer.value
    return told
