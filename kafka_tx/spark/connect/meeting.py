"""How planner and ``foreachBatch`` of a run find each other under Spark Connect."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingMixIn, UnixStreamServer
from typing import Any

from pyspark.sql.datasource import InputPartition

from kafka_tx.errors import ConfigError, KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.running.connect_meeting import meeting_place, new_socket, sockets_since
from kafka_tx.running.heartbeat import end_with_session
from kafka_tx.source.agreement import logged_as
from kafka_tx.source.microbatches import MicroBatches
from kafka_tx.source.questions import Answer, Question, moves
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.spark.source.stream import KafkaTxStreamReader
from kafka_tx.spark.versions.jvm import error_of
from kafka_tx.spark.versions.streams import ReadLimit
from kafka_tx.spark.versions.workers import SessionFolder, is_for_one_query

logger = event_log(__name__)

_NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_LONGEST = 1 << 16


class ServedStreamReader(KafkaTxStreamReader):
    """A reader that a ``foreachBatch`` beside it may ask, under Spark Connect.

    Spark's thread waits while ``foreachBatch`` runs, so a question is about the batch
    that Spark was given last. A batch without new records has a txid only if it is the
    first of a checkpoint: its replay, too, begins with a question to the planner. A
    later one is refused, because the planner of another run would never know of it.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._turn = threading.RLock()
        self._under_way: tuple[dict[str, Any], dict[str, Any]] | None = None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """As of the reader; the returned batch is now in progress."""
        with self._turn:
            end = super().latestOffset(start, limit)
            if not self.is_question(start):
                self._under_way = start, end
            return end

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[InputPartition]:
        """As of the reader; after a restart the first call for a batch."""
        with self._turn:
            found = super().partitions(start, end)
            self._under_way = start, end
            return found

    def commit(self, end: dict[str, Any]) -> None:
        """As of the reader."""
        with self._turn:
            super().commit(end)

    def _open(self) -> MicroBatches:
        batches = super()._open()
        place = meeting_place(make=False) if self._config.transactions else None
        if place is not None and self._config.transactions is not None:
            serve(new_socket(place, self._config.transactions.id), self._answer)
        return batches

    def _answer(self, batch_id: int) -> Answer:
        with self._turn:
            planner = self._planner()
            assert isinstance(planner, TransactionalMicroBatches)
            assert self._under_way is not None, "Spark was given no batch"
            start, end = map(SourceOffset.from_json, self._under_way)
            is_first = batch_id == 0  # only there does Spark ask again at a replay
            has_records = moves(start, end)
            if not is_first and not has_records:
                raise _no_records(batch_id)
            name = f"connect:{logged_as(end)}"
            before = None if is_first else start  # a replay has another start to tell
            answer = planner.number(Question(name, batch_id, before, end))
            # without, they are of another source, of which nothing is known here
            return answer if has_records else replace(answer, plan="")


def _no_records(batch_id: int) -> ConfigError:
    return ConfigError(
        f"batch {batch_id} holds no new records of this source, and under Spark Connect"
        " such a batch has no txid. Nothing was written. Run the query in a classic"
        f" session, which can finish it; or set {_NO_DATA_BATCHES}=false before a query"
        " is started, and give each query one source",
        option=_NO_DATA_BATCHES,
    )


def serve(socket: Path, answer: Callable[[int], Answer]) -> None:
    """Answer, on threads of this process, for as long as it lives.

    The socket's name tells other processes that a planner listens. An error of
    ``answer`` is part of the reply.
    """

    class Handler(StreamRequestHandler):
        timeout = 5  # seconds for a client that connects and sends nothing

        def handle(self) -> None:
            question = json.loads(self.rfile.readline(_LONGEST))
            reply = json.dumps(_reply(answer, question["batch"]))
            self.wfile.write(reply.encode() + b"\n")

    class Server(ThreadingMixIn, UnixStreamServer):
        daemon_threads = True

    server = Server(str(socket), Handler)
    threading.Thread(
        target=server.serve_forever, name="kafka_tx-connect", daemon=True
    ).start()


def _reply(answer: Callable[[int], Answer], batch_id: int) -> dict[str, Any]:
    try:
        return {"answer": answer(batch_id).to_json()}
    except KafkaTxError as error:
        return {"error": str(error)}
    except Exception as error:
        logger.exception("batch %d cannot be numbered", batch_id)
        return {"error": str(KafkaTxError(f"the planner failed: {error!r}"))}


_ANSWER_WITHIN_S = 180.0
"""Longer than the planner's retries of a store without an answer."""


class ConnectRun:
    """One run of a query, as the process of its ``foreachBatch`` knows it.

    Made when that process starts, which is before the planner does.

    Raises:
        KafkaTxError: No JVM has started this process, or it has no temporary directory.
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
        if is_for_one_query():
            end_with_session(SessionFolder().is_gone)
        self._place = place
        self._planner: Path | None = None

    def ask(self, batch_id: int) -> Answer:
        """The transaction of a batch, from the planner of this very run.

        Raises:
            KafkaTxError: The planner raised an error, or cannot be asked.
        """
        if self._planner is None:
            self._planner = self._own_planner()
        try:
            reply = _request(self._planner, {"batch": batch_id})
        except (OSError, ValueError) as error:
            raise KafkaTxError(
                f"the planner of '{self._tx_id}' cannot be asked which transaction"
                f" batch {batch_id} is ({error}). Nothing was written; the query can be"
                " started again"
            ) from error
        if "error" in reply:
            raise error_of(reply["error"])
        return Answer.from_json(reply["answer"])

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
            f" session, which can finish it, and set {_NO_DATA_BATCHES}=false before it"
            " is started here again",
            option="tx_id",
            value=self._tx_id,
        )


def _request(planner: Path, question: dict[str, Any]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_WITHIN_S)
        connection.connect(str(planner))
        connection.sendall(json.dumps(question).encode() + b"\n")
        with connection.makefile("rb") as answer:
            reply: dict[str, Any] = json.loads(answer.readline())
    return reply
