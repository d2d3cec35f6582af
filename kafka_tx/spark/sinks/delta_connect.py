"""Appends to a Delta table in a session of Spark Connect, which shows no JVM.

The write carries the identity as options, and Delta looks for the txid itself.
``DESCRIBE HISTORY`` tells of the attempt; where the log was cleaned up, the table's
checkpoints tell of the txid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.sinks.delta import FARTHEST, RETENTION, DeltaSink, Found
from kafka_tx.spark.sinks.formats import Batch, is_path

_NAMES = ("operation", "operationParameters", "operationMetrics", "userMetadata")
_SHORT = 10
"""Commits of a first question: mostly the last batch is among them."""


class DeltaConnectAppend(DeltaSink):
    """Appends the batch (the process of ``foreachBatch``, or a client)."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._commits: dict[int, Mapping[str, Any]] = {}
        self._is_first_look = True

    def write(self, attempt: TransactionAttempt) -> bool:
        """As of ``SinkTable``; the first rows of a batch are computed twice."""
        self._is_first_look = False
        if self._df.isEmpty():
            return False
        if not self._commits and not is_path(self._table):
            self._append(self._df.limit(0), "ignore", {})  # such a commit has no names
        self._append(self._df, "append", self._identity(attempt))
        return True

    def _append(self, df: Any, mode: str, identity: Mapping[str, str]) -> None:  # noqa: ANN401
        writer = df.write.format("delta").mode(mode).options(**self._batch.options)
        writer = writer.options(**identity)
        if self._batch.partition_by:
            writer = writer.partitionBy(*self._batch.partition_by)
        if is_path(self._table):
            writer.save(self._table)
        else:
            writer.saveAsTable(self._table)

    # --- reading the table's log ----------------------------------------------------

    def _last(self, given: TransactionAttempt) -> Found | None:
        kept: list[Found] = []

        def named() -> Found | None:
            asked = given.numbering
            mine = (c for c in kept if asked in {"", c.attempt.numbering})
            return next(mine, None)

        for at_most in (_SHORT, FARTHEST):
            self._commits = self._described(at_most)
            found = (self._commit(info, v) for v, info in self._commits.items())
            kept = [one for one in found if one is not None]
            if named() or len(self._commits) < at_most:
                break
        if not named() and self._commits and min(self._commits) > 0:
            kept += self._checkpoints()
        return named() or next(iter(kept), None)

    def _described(self, at_most: int) -> dict[int, Mapping[str, Any]]:
        """The newest commits, the newest first; empty where there is no table."""
        try:
            rows = self._sql(f"DESCRIBE HISTORY {self._target} LIMIT {at_most}")
            properties = self._sql(f"SHOW TBLPROPERTIES {self._target}")
        except AnalysisException as error:
            condition = error.getCondition() or ""
            is_path_without = condition == "DELTA_TABLE_ONLY_OPERATION"
            if is_path_without or "NOT_FOUND" in condition:
                return {}
            if condition != "DELTA_ONLY_OPERATION":
                raise
            legal = "a Delta table, or a name or path without a table"
            raise ConfigError.illegal("table", self._table, legal) from None
        for row in properties:
            if row.key == RETENTION:
                raise self._forgets(row.value)
        return {row.version: {name: row[name] for name in _NAMES} for row in rows}

    def _checkpoints(self) -> list[Found]:
        """Txids that the table has kept, of commits whose log is gone."""
        (detail,) = self._sql(f"DESCRIBE DETAIL {self._target}")
        pattern = f"{detail.location}/_delta_log/*.checkpoint*.parquet"
        found = self._spark.read.parquet(pattern).select("txn.*")
        mine = found.where(F.startswith("appId", F.lit(self._prefix)))
        last = mine.groupBy("appId").agg(F.max("version"), F.max("lastUpdated"))
        rows = last.orderBy(F.desc("max(lastUpdated)")).collect()
        names = ((row[0].removeprefix(self._prefix), row[1]) for row in rows)
        return [
            Found(TransactionAttempt(txid, 0, numbering=numbering))
            for numbering, txid in names
            if "." not in numbering
        ]

    def _history(self) -> tuple[int, Callable[[int], Mapping[str, Any]]]:
        return max(self._commits), lambda version: self._commits.get(version, {})

    def _sql(self, statement: str) -> list[Row]:
        rows: list[Row] = self._spark.sql(statement).collect()
        return rows
