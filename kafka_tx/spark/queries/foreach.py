"""``foreachBatch`` that knows which transaction it processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from kafka_tx.clock import SystemClock
from kafka_tx.config import check_function
from kafka_tx.errors import ConfigError, ReplayDiffersError
from kafka_tx.errors_first import raises_own_error_first
from kafka_tx.model import JointBatch, JointPart, TransactionAttempt, short_digest
from kafka_tx.schemas.planned import in_words
from kafka_tx.source.questions import Answer, Question
from kafka_tx.spark.connect.meeting import ConnectRun
from kafka_tx.spark.default_store import refuse_default_store
from kafka_tx.spark.versions import jvm
from kafka_tx.spark.versions.names import QUERY_ID
from kafka_tx.stored import VERSION, check_same_version
from kafka_tx.transactions.ownership.retry_policy import RetryPolicy


def for_each_transaction(
    function: Callable[[DataFrame, TransactionAttempt], None], tx_id: str | None = None
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
    also runs batches without new records of the source: to emit late state, or because
    another source has some. Each of them is a transaction with a txid of its own.

    Where a query has several sources, each one with a ``tx.id`` numbers every batch and
    keeps what goes with it: a new checkpoint brings the same batch again. Beside a
    source without ``tx.id`` a new checkpoint is refused while a batch is unfinished.

    Args:
        function: Handles one batch; may be called again with the same txid, at once
            (for two minutes at most) where it raised a StateUnavailableError.
        tx_id: Which source's transaction, where the query reads several.

    Under Spark Connect it runs in a process of the server: ``function`` is pickled, and
    ``tx_id`` must be given.

    Raises:
        ConfigError: ``function`` is none, or has ``yield`` or ``async``; or a session
            of Spark Connect and no ``tx_id``. From the query: no source of it has
            ``tx.id``, or several and ``tx_id`` was not given; or they have different
            ``tx.mode``.
        CheckpointDisagreesError: From the query: with this checkpoint, or these
            sources, an unfinished transaction would come with other records.
        FencedError: From the query: another one has taken over a ``tx.id`` of it.
    """
    check_function("function", function, "a function (df, attempt)")
    if tx_id is None and is_remote():
        raise ConfigError(
            "with Spark Connect for_each_transaction needs the tx.id of the source:"
            " for_each_transaction(function, tx_id='...')",
            option="tx_id",
        )
    with suppress(PySparkRuntimeError):  # there is no session yet
        spark = SparkSession.active()
        jvm.hide_secrets(spark)
        if not is_remote():
            jvm.let_queries_start_together(spark)
    return _ForEach(function, tx_id)


@raises_own_error_first("__call__")
class _ForEach:
    """The function that Spark calls with each batch. Only Spark Connect pickles it."""

    def __init__(
        self,
        function: Callable[[DataFrame, TransactionAttempt], None],
        tx_id: str | None,
    ) -> None:
        self._function = function
        self._tx_id = tx_id
        self._runs: dict[str, tuple[object, _Run]] = {}
        """The last run of each query, with the context in which it runs."""
        self._beside: _Tries | None = None

    def __getstate__(self) -> dict[str, object]:
        known = {"function": self._function, "tx_id": self._tx_id}
        return {"version": VERSION, **known}

    def __setstate__(self, state: dict[str, Any]) -> None:
        check_same_version(state.get("version"), "for_each_transaction")
        self.__init__(state["function"], state["tx_id"])  # type: ignore[misc]
        if self._tx_id is not None and is_remote():
            self._beside = _Tries(ConnectRun(self._tx_id).ask, self._tx_id)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        RetryPolicy(SystemClock())(lambda: self._try(df, batch_id))

    def _try(self, df: DataFrame, batch_id: int) -> None:
        tries = self._numbers(df)
        attempt = tries.attempt(batch_id)
        try:
            self._function(df, attempt)
        except ReplayDiffersError as error:
            if not tries.schemas:
                raise
            why = f"{error.message} A cause may be that {in_words(tries.schemas)}"
            raise ReplayDiffersError(why, **error.fields) from error

    def _numbers(self, df: DataFrame) -> _Tries:
        if self._beside is not None:
            return self._beside
        spark = df.sparkSession
        context = spark.sparkContext
        query_id = context.getLocalProperty(QUERY_ID)
        known, run = self._runs.get(query_id, (None, None))
        # the run of a session that was stopped may not have ended
        if run is None or known is not context or not run.query.is_running:
            for options in jvm.source_options(spark, query_id).values():
                refuse_default_store(spark, options)
            run = _Run(jvm.RunningQuery(spark, query_id), self._tx_id)
            self._runs[query_id] = context, run
        return run.tries


class _Tries:
    """How often one run of a query tried each batch."""

    def __init__(self, ask: Callable[[int], Answer], tx_id: str) -> None:
        self._ask, self._tx_id = ask, tx_id
        self._newest, self._tries = 0, 0
        self.schemas: Mapping[str, tuple[str, str]] = {}
        """Of the last attempt, as of ``Answer``."""

    def attempt(self, batch_id: int) -> TransactionAttempt:
        """The attempt that begins now, if its owner was not fenced."""
        answer = self._ask(batch_id)
        self._tries = self._tries + 1 if answer.txid == self._newest else 1
        self._newest, self.schemas = answer.txid, answer.schemas
        return replace(
            TransactionAttempt.of(answer.txid, epoch=answer.epoch, number=self._tries),
            source=self._tx_id,
            plan=answer.plan,
            numbering=answer.numbering,
            mode=answer.mode,
        )


class _Run:
    """One run of a query in a classic session."""

    def __init__(self, query: jvm.RunningQuery, tx_id: str | None) -> None:
        self.query = query
        self._tx_id = _chosen(query.tx_ids, tx_id)
        self._shape = query.shape()
        self.tries = _Tries(self._ask, self._tx_id)

    def _ask(self, batch_id: int) -> Answer:
        """The answer for a batch, after each source has stored the others' parts.

        Sources that refuse the batch are asked first, so that no other source has
        stored anything by then. The numbering source follows: once its part is bound to
        the others, it cannot be finished without them, even if the driver dies before
        they know.
        """
        ids = self._shape.numbered
        questions = {id_: self.query.question(id_, batch_id) for id_ in ids}
        if len(ids) == 1 and not self._shape.others:
            question = replace(questions[self._tx_id], shape=self._shape)
            return self.query.ask(self._tx_id, question)
        answers = {
            id_: self.query.ask(id_, question) for id_, question in questions.items()
        }
        _check_modes(answers)
        joint = JointBatch(self._tx_id, self._parts(questions, answers))
        agree = {
            i: (answer.joint or joint).is_same(joint) for i, answer in answers.items()
        }
        for id_ in sorted(ids, key=lambda i: (agree[i], i != self._tx_id)):
            question = replace(questions[id_], shape=self._shape, joint=joint)
            answers[id_] = self.query.ask(id_, question)
        return replace(answers[self._tx_id], plan=self._plan(answers))

    def _plan(self, answers: Mapping[str, Answer]) -> str:
        """A digest of the records of all sources; empty if a replay may hold others."""
        plans = {id_: answer.plan for id_, answer in answers.items()}
        if "" in plans.values():
            return ""
        return short_digest(str(sorted({**self.query.other_ends(), **plans}.items())))

    def _parts(
        self, questions: Mapping[str, Question], answers: Mapping[str, Answer]
    ) -> dict[str, JointPart]:
        ends = self.query.other_ends().items()
        others = {name: JointPart(0, end) for name, end in ends}
        return others | {
            id_: JointPart(
                answers[id_].txid, question.end.digest(), answers[id_].numbering
            )
            for id_, question in questions.items()
        }


def _check_modes(answers: Mapping[str, Answer]) -> None:
    modes = {id_: answer.mode for id_, answer in answers.items()}
    if len(set(modes.values())) > 1:
        raise ConfigError(
            f"the sources of this query have different tx.mode: {modes}. A sink has one"
            " rule for all of their records. Nothing was written. Give all the same",
            option="tx.mode",
            value=modes,
        )


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
