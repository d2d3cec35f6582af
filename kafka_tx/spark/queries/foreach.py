"""``foreachBatch`` that knows which transaction it processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import DataFrame

from kafka_tx.clock import SystemClock
from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.queries import jvm
from kafka_tx.transactions.patience import Patience

QUERY_ID = "sql.streaming.queryId"


def for_each_transaction(
    function: Callable[[DataFrame, TransactionAttempt], None],
    tx_id: str | None = None,
) -> Callable[[DataFrame, int], None]:
    """Wrap ``function(df, attempt)`` for ``writeStream.foreachBatch``.

    ``attempt.txid`` is the same on every replay of the batch, also from a new
    checkpoint (Spark's batch id starts again there). ``attempt.attempt_id`` is greater
    on every later try, also of a later run of the query, whatever the clocks say: its
    ``epoch`` is that of the run. Store both with the result; skip a txid that is not
    above the stored one, and refuse an attempt whose epoch is below the stored one.
    Maps and tables of kafka_tx do.

    Runs in the user's process. Before each call it asks the query's own planner which
    transaction this is, and that no other query has taken the ``tx.id`` over. Spark
    also runs batches without new records of the source: to emit late state, or since
    another source has some. Each of them is a transaction with a txid of its own.

    Args:
        function: Handles one batch; may be called again with the same txid, at once
            (for two minutes at most) where it raised a StateUnavailableError.
        tx_id: Which source's transaction, where the query reads several.

    Raises:
        ConfigError: From the query: no source of it has ``tx.id``, or several and
            ``tx_id`` was not given.
        FencedError: From the query: another one has taken over a ``tx.id`` of it.
    """
    if not callable(function):
        raise ConfigError.illegal("function", function, "a function (df, attempt)")
    runs: dict[str, _Run] = {}

    def handle(df: DataFrame, batch_id: int) -> None:
        spark = df.sparkSession
        query_id = spark.sparkContext.getLocalProperty(QUERY_ID)
        run = runs.get(query_id)
        if run is None or not run.query.is_running:
            run = runs[query_id] = _Run(jvm.RunningQuery(spark, query_id), tx_id)
        Patience(SystemClock())(lambda: function(df, run.attempt(batch_id)))

    return handle


class _Run:
    """One run of a query, and how often it tried each batch."""

    def __init__(self, query: jvm.RunningQuery, tx_id: str | None) -> None:
        self.query = query
        self._tx_id = _chosen(query.tx_ids, tx_id)
        self._newest, self._tries = 0, 0

    def attempt(self, batch_id: int) -> TransactionAttempt:
        """The attempt that begins now, if its owner is still the owner."""
        for other in set(self.query.tx_ids) - {self._tx_id}:
            question = self.query.question(other, batch_id)
            if question.has_records:  # its id must be ours too
                self.query.ask(other, question)
        question = self.query.question(self._tx_id, batch_id)
        answer = self.query.ask(self._tx_id, question)
        self._tries = self._tries + 1 if answer.txid == self._newest else 1
        self._newest = answer.txid
        attempt = TransactionAttempt.of(
            answer.txid, epoch=answer.epoch, number=self._tries
        )
        return replace(attempt, source=self._tx_id, plan=answer.plan)


def _chosen(tx_ids: list[str], tx_id: str | None) -> str:
    if tx_id is None and len(tx_ids) == 1:
        return tx_ids[0]
    if tx_id is None or tx_id not in tx_ids:
        raise ConfigError(
            f"which transaction? tx_id is {tx_id!r} and the sources of this query have"
            f" {tx_ids or 'no tx.id'}. Set the option tx.id on the source and,"
            " where there are several, give its value to for_each_transaction.",
            option="tx_id",
            value=tx_id,
        )
    return tx_id
