"""The side of ``foreachBatch``: asks the planner of its own run."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

from kafka_tx.errors import ConfigError, KafkaTxError
from kafka_tx.running.connect_meeting import meeting_place, sockets_since
from kafka_tx.source.questions import Answer
from kafka_tx.spark.connect import NO_DATA_BATCHES
from kafka_tx.spark.queries.jvm import error_of

_ANSWER_WITHIN_S = 180.0
"""Longer than the planner tries a store that does not answer."""


class ConnectRun:
    """One run of a query, as the process of its ``foreachBatch`` knows it.

    Made when that process starts, which is before the planner does.

    Args:
        tx_id: Of the source.

    Raises:
        KafkaTxError: No JVM has started this process.
    """

    def __init__(self, tx_id: str) -> None:
        self._tx_id = tx_id
        self._since_ns = time.monotonic_ns()
        place = meeting_place(make=True)
        if place is None:
            raise KafkaTxError(
                "for_each_transaction was unpickled in a process that Spark's Connect"
                " server has not started; give it to foreachBatch as it is"
            )
        self._place = place
        self._planner: Path | None = None

    def ask(self, batch_id: int) -> Answer:
        """Which transaction this is, of the planner of this very run.

        Raises:
            KafkaTxError: What the planner raised; or it cannot be asked.
        """
        if self._planner is None:
            self._planner = self._own_planner()
        try:
            told = _asked(self._planner, {"batch": batch_id})
        except (OSError, ValueError) as error:
            raise KafkaTxError(
                f"the planner of '{self._tx_id}' cannot be asked which transaction"
                f" batch {batch_id} is ({error}). Nothing was written; the query can be"
                " started again"
            ) from error
        if "error" in told:
            raise error_of(told["error"])
        return Answer.from_json(told["answer"])

    def _own_planner(self) -> Path:
        found = sockets_since(self._place, self._tx_id, self._since_ns)
        if len(found) == 1:
            return found[0]
        if found:
            raise KafkaTxError(
                f"{len(found)} queries with tx.id '{self._tx_id}' were started on this"
                " server at once, and nobody can tell which planner is whose. Nothing"
                " was written. Stop all of them but one, and start that one again"
            )
        raise ConfigError(
            f"no source with tx.id '{self._tx_id}' has planned anything in this run"
            " of the query. Nothing was written. If the query has no such source, give"
            " for_each_transaction its tx.id; if it reads several, or keeps state, the"
            " batch holds no new records of this one: run the query in a classic"
            f" session, which can finish it, and set {NO_DATA_BATCHES}=false before it"
            " is started here again",
            option="tx_id",
            value=self._tx_id,
        )


def _asked(planner: Path, question: dict[str, Any]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_WITHIN_S)
        connection.connect(str(planner))
        connection.sendall(json.dumps(question).encode() + b"\n")
        with connection.makefile("rb") as answer:
            told: dict[str, Any] = json.loads(answer.readline())
    return told
