"""Appends to Delta and Iceberg tables in a session of Spark Connect, without a JVM.

Delta: the write carries the identity as options, and Delta looks for the txid itself.
``DESCRIBE HISTORY`` shows the attempt. Where the log was cleaned up, the table's
checkpoints show the txid.

Iceberg: SQL shows the table's properties and its metadata tables. A write checks that
no other program has added files since the version that was read, and its snapshot holds
the attempt. SQL has no transactions: the property, which outlives the snapshot, is set
by a second commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.delta_rollbacks import Actions
from kafka_tx.sinks.table_writes import (
    KEY,
    RETENTION,
    Commit,
    Floor,
    Snapshot,
    attempt_in,
    record_in,
)
from kafka_tx.spark.sinks.conflicts import overtaken
from kafka_tx.spark.sinks.delta import FARTHEST, DeltaSink, Found
from kafka_tx.spark.sinks.formats import Batch, is_path
from kafka_tx.spark.sinks.iceberg import COULD_NOT, IcebergSink, commit_of

_NAMES = ("operation", "operationParameters", "operationMetrics", "userMetadata")
_SHORT = 10
"""Commits of a first question: mostly the last batch is among them."""


class DeltaConnectAppend(DeltaSink):
    """Appends the batch (the process of ``foreachBatch``, or a client)."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._commits: dict[int, Mapping[str, Any]] = {}
        self._is_first_read = True

    def write(self, attempt: TransactionAttempt) -> bool:
        """As of ``SinkTable``; the first rows of a batch are computed twice."""
        self._is_first_read = False
        if self._df.isEmpty():
            return False
        if not self._commits:
            self._check_default()
        if not self._commits and not is_path(self._table):
            self._append(self._df.limit(0), "ignore", {})  # such a commit has no names
        self._append(self._df, "append", self._identity(attempt))
        return True

    # --- reading the table's log ----------------------------------------------------

    def _last(self, given: TransactionAttempt) -> Found | None:
        known: list[Found] = []

        def named() -> Found | None:
            numbering = given.numbering
            mine = (c for c in known if numbering in {"", c.attempt.numbering})
            return next(mine, None)

        for at_most in (_SHORT, FARTHEST):
            self._commits = self._described(at_most)
            found = (self._commit(info, v) for v, info in self._commits.items())
            known = [one for one in found if one is not None]
            if named() or len(self._commits) < at_most:
                break
        if not named() and self._commits and min(self._commits) > 0:
            known += self._checkpoints()
        return named() or next(iter(known), None)

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
            raise self._of_another_format() from None
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

    def _history(self) -> tuple[int, Actions]:
        return max(self._commits), self._actions

    def _actions(self, version: int) -> Iterator[Mapping[str, Any]]:
        """The rest comes from the log's file, which is seldom needed."""
        if version in self._commits:
            yield {"commitInfo": self._commits[version]}
        (detail,) = self._sql(f"DESCRIBE DETAIL {self._target}")
        file = f"{detail.location}/_delta_log/{version:020}.json"
        try:
            lines = self._spark.read.text(file).collect()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return
        yield from (json.loads(line.value) for line in lines)

    def _sql(self, statement: str) -> list[Row]:
        rows: list[Row] = self._spark.sql(statement).collect()
        return rows


class IcebergConnectAppend(IcebergSink):
    """Appends the batch (the process of ``foreachBatch``, or a client)."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._at: tuple[int, dict[str, str]] | None = None

    def commit(self) -> Commit:
        """As of ``SinkTable``."""
        return Commit() if self._at is None else commit_of(*self._at)

    def write(self, attempt: TransactionAttempt) -> bool:
        """As of ``SinkTable``: rows are computed again for each try."""
        if self._df.isEmpty():
            return False
        if self._base is None and self._loaded() is None:
            self._make()
            self._check_main(self._loaded() or {})  # a catalog may set some of them
        record = self._record(attempt)
        options = {
            **self._batch.options,
            f"snapshot-property.{KEY}": record,
            "isolation-level": "serializable",
        }
        if self._base is not None:
            options["validate-from-snapshot-id"] = str(self._base)
        with overtaken(*COULD_NOT[:2]):
            self._df.writeTo(self._table).options(**options).overwrite(F.lit(False))
        self._raise_floor(attempt, record)
        return True

    def _raise_floor(self, attempt: TransactionAttempt, record: str) -> None:
        """Store the attempt where expiry does not reach it.

        Nothing where its snapshot has expired at once, or came too long ago, and where
        another driver has stored a later one: this one was frozen since its commit.
        """
        former = super()._floor(self._loaded() or {})
        numbers = self._metadata("metadata_log_entries").groupBy("latest_snapshot_id")
        number = numbers.agg(F.max("latest_sequence_number").alias("sequence"))
        mine = self._metadata("snapshots").where(F.col("summary")[KEY] == record)
        found = mine.join(
            number, F.col("snapshot_id") == F.col("latest_snapshot_id")
        ).select("snapshot_id", "sequence", "summary", _at_ms().alias("at_ms"))
        for row in found.collect():
            self._at = row.snapshot_id, row.summary
            order = row.sequence, row.at_ms
            if former is not None and former.order > order:
                continue
            floor = self._raised(attempt, row.snapshot_id, order)
            quoted = floor.replace("\\", "\\\\").replace("'", "\\'")
            self._spark.sql(
                f"ALTER TABLE {self._table}"
                f" SET TBLPROPERTIES ('{self._property}' = '{quoted}')"
            ).collect()

    # --- reading the table ----------------------------------------------------------

    def _loaded(self) -> dict[str, str] | None:
        try:
            self._spark.sql(f"REFRESH TABLE {self._table}").collect()  # kept for 30 s
            rows = self._spark.sql(f"SHOW TBLPROPERTIES {self._table}").collect()
        except AnalysisException as error:
            if "NOT_FOUND" not in (error.getCondition() or ""):
                raise
            return None
        found = {row.key: row.value for row in rows}
        if not found.get("format", "").startswith("iceberg/"):
            raise self._of_another_format()
        return found

    def _properties(self) -> dict[str, str] | None:
        properties = self._loaded()
        base = (properties or {}).get("current-snapshot-id", "none")
        self._base = None if base == "none" else int(base)
        return properties

    def _floor(self, properties: Any) -> Floor | None:  # noqa: ANN401 - a dict
        """Only times are compared: metadata tables do not number all versions."""
        floor = super()._floor(properties)
        return floor and replace(floor, order=floor.order[-1:])

    def _snapshots(self) -> Iterator[Snapshot]:
        """The current one and those before it, as far as they have not expired.

        In most batches the first one is the floor's, and nothing more is asked.
        """
        if self._base is None:
            return
        if self._at is not None and self._at[0] != self._base:
            self._at = None
        yield Snapshot(self._base, self._base, (), None)
        rows = self._metadata("snapshots").select(
            "snapshot_id", "parent_id", "summary", _at_ms().alias("at_ms")
        )
        known = {row.snapshot_id: row for row in rows.collect()}
        found = known.get(self._base)
        while found is not None:
            attempt = attempt_in(record_in(found.summary.get(KEY)), self._name)
            self._at = found.snapshot_id, found.summary
            order = (found.at_ms,)
            yield Snapshot(found.snapshot_id, found.parent_id, order, attempt)
            found = known.get(found.parent_id)

    def _metadata(self, name: str) -> Any:  # noqa: ANN401 - a DataFrame
        return self._spark.table(f"{self._table}.{name}")


def _at_ms() -> Any:  # noqa: ANN401 - a Column
    return F.unix_millis("committed_at")
