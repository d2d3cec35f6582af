"""A Delta table as ``sinks.table_writes`` sees it.

Each commit holds a transaction identifier of Delta's, ``kafka_tx.<sink>.<numbering>``
with the txid as version, and the whole attempt in its ``userMetadata``. The identifier
stays in the table for good, and Delta refuses a second commit of it. The attempt is in
the table's log, which Delta cleans up after 30 days: without it, only numbering and
txid are compared.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import tee
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from kafka_tx.errors import ConfigError, StateLostError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.delta_rollbacks import (
    Actions,
    Rollback,
    commit_info,
    has_txid,
    rolled_back_since,
)
from kafka_tx.sinks.table_writes import (
    KEY,
    NEVER,
    RETENTION,
    Commit,
    OvertakenError,
    attempt_in,
    check_replaced,
    record_in,
    record_of,
    warn_of_rollback,
)
from kafka_tx.spark.sinks import delta_append
from kafka_tx.spark.sinks.conflicts import conflict_in, overtaken
from kafka_tx.spark.sinks.formats import Batch, is_path

OWN_OPTIONS = ("txnappid", "txnversion", "usermetadata")
_SESSION = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}
_DEFAULT = RETENTION.replace("delta.", "spark.databricks.delta.properties.defaults.")
"""The option of a session for the tables that are made in it."""
_FILES = ("numFiles", "numTargetFilesAdded", "numAddedFiles")
"""Files that a commit has added: of an append, a MERGE, an UPDATE or DELETE."""
_ROWS = ("numOutputRows", "numUpdatedRows", "numCopiedRows")
"""Rows in these files: of an append or MERGE, or the sum for an UPDATE or DELETE."""
COULD_NOT = "io.delta.exceptions."
"""Errors of Delta if the table has changed since it was read; nothing is written."""
_SPENT = "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS"
"""Delta took the txid from the session, and a second statement asks for one."""
_FORGOTTEN = 100
"""Commits to search if Delta knows no txid, or no longer knows it."""
FARTHEST = 1_000
"""Commits to search for an attempt: 5 s on a local disk, at a start."""


@dataclass(slots=True)
class Found:
    """The last commit of one numbering of a sink.

    Attributes:
        attempt: Only txid and numbering where its log is gone.
        version: Of the table; None where its log is gone.
        metrics: Of the commit, as Delta counts them.
    """

    attempt: TransactionAttempt
    version: int | None = None
    when_ms: int = 0
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Seen:
    """The known commits of a sink, up to ``version``."""

    version: int
    last: dict[str, Found] = field(default_factory=dict)


_seen: dict[tuple[str, str, str], _Seen] = {}
"""By path, id of the table, and sink."""


class DeltaSink(ABC):
    """One batch for a Delta table (driver); a subclass knows how to read its log."""

    def __init__(self, batch: Batch) -> None:
        self._batch, self._df = batch, batch.df
        self._table, self._name = batch.table, batch.name
        self._spark = self._df.sparkSession
        self._found: Found | None = None
        self._is_first_read = False

    @property
    def sink(self) -> tuple[str, str]:
        """The name of the table in this session, and the name of the sink."""
        return self._table, self._name

    @property
    def what(self) -> str:
        """The table in words."""
        return f"table '{self._table}' (sink '{self._name}')"

    def stored(self, given: TransactionAttempt) -> TransactionAttempt:
        """As of ``SinkTable``.

        Raises:
            ConfigError: It is no Delta table, or one that forgets transactions.
            StateLostError: It was replaced under this owner.
        """
        found = self._found = self._last(given)
        if found is None:
            return NEVER
        is_later = self._is_first_read and given.txid > found.attempt.txid
        rollback = self._rollback_of(found) if is_later else None
        if rollback is not None and not rollback.is_unknown:
            check_replaced(self, given, rollback)
            warn_of_rollback(self.what, given)
        return found.attempt

    def commit(self) -> Commit:
        """As of ``SinkTable``; Delta names the same number differently by statement."""
        if self._found is None:
            return Commit()
        metrics = self._found.metrics
        files = [metrics[name] for name in _FILES if name in metrics]
        rows = [metrics[name] for name in _ROWS if name in metrics]
        return Commit(
            self._found.version,
            int(files[0]) if files else None,
            sum(map(int, rows)) if rows else None,
            self._location(),
        )

    def check_stored(self, stored: TransactionAttempt) -> None:
        """As of ``SinkTable``: Delta keeps the txid of rows that it has taken back."""
        found = self._last(stored)
        rollback = None if found is None else self._rollback_of(found)
        if rollback is not None:
            raise self._rolled_back(stored, rollback)

    def _rollback_of(self, found: Found) -> Rollback | None:
        """The version that removed a commit's rows; None: the rows are there."""
        if found.version is None:
            return None
        return rolled_back_since(found.version, *self._history())

    @abstractmethod
    def _last(self, given: TransactionAttempt) -> Found | None:
        """The last commit of the numbering, or else of the newest one."""

    @abstractmethod
    def _history(self) -> tuple[int, Actions]:
        """The newest version, and what reads the log of a version."""

    def _location(self) -> str:
        """Address of the table; empty: unknown."""
        return ""

    def has_rows(self) -> bool:
        """As of ``SinkTable``."""
        return not self._df.isEmpty()

    @abstractmethod
    def write(self, attempt: TransactionAttempt) -> bool:
        """As of ``SinkTable``."""

    def _identity(self, attempt: TransactionAttempt) -> dict[str, str]:
        return {
            "txnAppId": self._sink_of(attempt),
            "txnVersion": str(attempt.txid),
            "userMetadata": json.dumps({KEY: record_of(self._name, attempt)}),
        }

    def _sink_of(self, attempt: TransactionAttempt) -> str:
        return f"{self._prefix}{attempt.numbering}"

    @property
    def _target(self) -> str:
        return f"delta.`{self._table}`" if is_path(self._table) else self._table

    @property
    def _prefix(self) -> str:
        return f"{KEY}.{self._name}."

    def _commit(self, info: Mapping[str, Any], version: int) -> Found | None:
        """A commit of this sink; None: it is another one, or its log is gone."""
        record = record_in(info.get("userMetadata")).get(KEY)
        attempt = attempt_in(record, self._name)
        if attempt is None:
            return None
        metrics = info.get("operationMetrics") or {}
        return Found(attempt, version, int(info.get("timestamp", 0)), metrics)

    def _append(self, df: Any, mode: str, identity: Mapping[str, str]) -> None:  # noqa: ANN401
        """Append; Delta looks for the txid in a job over all of the table's log."""
        writer = (
            df.write.format("delta").mode(mode).partitionBy(*self._batch.partition_by)
        )
        writer = writer.options(**self._batch.options).options(**identity)
        save = writer.save if is_path(self._table) else writer.saveAsTable
        with overtaken(COULD_NOT):
            save(self._table)

    def _of_another_format(self) -> ConfigError:
        legal = "a Delta table, or a name or path without a table"
        return ConfigError.illegal("table", self._table, legal)

    def _forgets(self, after: str) -> ConfigError:
        return ConfigError(
            f"{self.what} forgets transactions after {after}, so that a batch"
            " that comes again later would be written twice. Nothing was written."
            f" ALTER TABLE … UNSET TBLPROPERTIES ('{RETENTION}')",
            option="table",
            value=self._table,
        )

    def _check_default(self) -> None:
        """Refuse to make a table that forgets transactions."""
        after = self._spark.conf.get(_DEFAULT, None)
        if after is not None:
            raise ConfigError(
                f"{self.what} would be made, and would forget transactions after"
                f" {after}, so that a batch that comes again later would be written"
                f" twice: the session has the option {_DEFAULT}. Nothing was written."
                " Make the table without this property first, or unset the option",
                option=_DEFAULT,
                value=after,
            )

    def _rolled_back(
        self, stored: TransactionAttempt, rollback: Rollback
    ) -> StateLostError:
        newest, _ = self._history()
        others = _of_others(rollback.version + 1, newest)
        undo = (
            "take that version back with RESTORE TABLE … TO VERSION AS OF"
            f" {rollback.version - 1}, and start again.{others}"
        )
        anew = (
            "give the sink a new name (`sink=`) for good, and start again: the batch is"
            " written under it. Batches before it stay out."
        )
        ways = (anew, undo) if others or rollback.is_replacement else (undo, anew)
        if rollback.is_unknown:
            done = "if they are there, mark the batch as done: `kafka-tx skip`."
            ways = f"look for them first. If they are not there, {anew}", done
        return StateLostError(
            f"{self.what}: {rollback}. The rows of txid {stored.txid} {rollback.fate},"
            " and Delta still counts it, so this replay would leave them out. Nothing"
            f" was written now. Either {ways[0]} Or {ways[1]}",
            store=self._table,
            id=self._name,
        )


def _of_others(first: int, newest: int) -> str:
    """What a ``RESTORE`` removes beside its target; empty: no version is in the way."""
    if first > newest:
        return ""
    return (
        f" This also removes what versions {first} to {newest} have changed, also those"
        " of other writers."
    )


class _InJvm(DeltaSink):
    """Reads the log by Delta's own classes, in a classic session."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._jvm: Any = self._spark._jvm
        self._opened_log: Any = None
        self._last_opened: tuple[Any, Any] = None, None
        self._has_committed = False
        self._catalog_table = self._jvm.scala.Option.empty()

    def _location(self) -> str:
        return str(self._opened_log.dataPath().toString())

    def _history(self) -> tuple[int, Actions]:
        log, snapshot = self._opened()
        return snapshot.version(), partial(self._actions, log)

    def _last(self, given: TransactionAttempt) -> Found | None:
        log, snapshot = self._last_opened = self._opened()
        if log is None:
            return None
        last = self._up_to_date(log, snapshot).last
        if given.numbering and given.numbering in last:
            return last[given.numbering]
        return max(last.values(), default=None, key=lambda c: (c.when_ms, c.attempt))

    def _opened(self) -> tuple[Any, Any]:
        """The table's log and its newest snapshot; None where there is no table."""
        log = self._log()
        if log is None:
            return None, None
        snapshot = self._newest(log)
        if snapshot.version() < 0:
            return None, None
        retention = snapshot.metadata().configuration().get(RETENTION)
        if retention.isDefined():
            raise self._forgets(retention.get())
        return log, snapshot

    def _newest(self, log: Any) -> Any:  # noqa: ANN401 - of Delta
        """The newest snapshot; after this batch's commit, the one that Delta holds."""
        if self._has_committed:
            self._has_committed = False
            return log.unsafeVolatileSnapshot()
        none = self._jvm.scala.Option.empty()
        return log.update(False, none, none)

    def _log(self) -> Any:  # noqa: ANN401 - of Delta
        if self._opened_log is None:  # found once for each batch
            self._opened_log = self._find_log()
        return self._opened_log

    def _find_log(self) -> Any:  # noqa: ANN401 - of Delta
        session = self._spark._jsparkSession
        if is_path(self._table):
            logs = self._jvm.org.apache.spark.sql.delta.DeltaLog
            return logs.forTable(session, self._table)
        try:
            found = self._in_catalog(session.sessionState())
            if found is not None:
                self._catalog_table = self._jvm.scala.Option.apply(found)
                logs = self._jvm.org.apache.spark.sql.delta.DeltaLog
                return logs.forTable(session, found)
            tables = self._jvm.io.delta.tables.DeltaTable
            table = tables.forName(session, self._table)
            leaf = table.toDF().queryExecution().analyzed().collectLeaves().head()
            self._catalog_table = leaf.catalogTable()
            return table.deltaLog()
        except AnalysisException:
            if not self._spark.catalog.tableExists(self._table):
                return None
            raise self._of_another_format() from None

    def _in_catalog(self, state: Any) -> Any:  # noqa: ANN401 - of Spark
        """Its entry in the session's own catalog, without the analysis of a query."""
        parser, catalog = state.sqlParser(), state.catalog()
        if parser.parseMultipartIdentifier(self._table).size() > 2:
            return None
        name = parser.parseTableIdentifier(self._table)
        if catalog.isTempView(name) or not catalog.tableExists(name):
            return None
        found = catalog.getTableMetadata(name)
        provider = found.provider()
        is_delta = provider.isDefined() and provider.get().lower() == "delta"
        return found if is_delta else None

    def _up_to_date(self, log: Any, snapshot: Any) -> _Seen:  # noqa: ANN401 - of Delta
        key = log.dataPath().toString(), snapshot.metadata().id(), self._name
        newest, known = snapshot.version(), _seen.get(key)
        self._is_first_read = known is None
        if known is None or not 0 <= newest - known.version <= FARTHEST:
            seen = self._read_log(log, snapshot)
        else:  # a copy: another thread may be here
            seen = _Seen(known.version, dict(known.last))
        for version in range(seen.version + 1, newest + 1):
            info, found = self._read(log, version)
            if not info:  # the log is not where it usually is
                seen = self._read_log(log, snapshot)
                break
            if found is not None:
                seen.last[found.attempt.numbering] = found
            seen.version = version
        _seen[key] = seen
        return seen

    def _read_log(self, log: Any, snapshot: Any) -> _Seen:  # noqa: ANN401 - of Delta
        newest = snapshot.version()
        seen = _Seen(newest)
        transactions = snapshot.setTransactions().iterator()
        while transactions.hasNext():
            one = transactions.next()
            numbering = one.appId().removeprefix(self._prefix)
            if one.appId().startswith(self._prefix) and "." not in numbering:
                attempt = TransactionAttempt(one.version(), 0, numbering=numbering)
                when = one.lastUpdated()
                when_ms = when.get() if when.isDefined() else 0
                seen.last[numbering] = Found(attempt, when_ms=when_ms)
        wanted = {(n, c.attempt.txid) for n, c in seen.last.items()}
        farthest = FARTHEST if wanted else _FORGOTTEN
        for version in range(newest, max(-1, newest - farthest), -1):
            _, found = self._read(log, version)
            if found is None:
                continue
            which = found.attempt.numbering, found.attempt.txid
            if which in wanted or not seen.last:
                wanted.discard(which)
                seen.last[found.attempt.numbering] = found
            if not wanted:
                break
        return seen

    def _read(self, log: Any, version: int) -> tuple[Mapping[str, Any], Found | None]:  # noqa: ANN401
        """The commit info of a version, empty: it is gone; and a commit of this sink.

        In a session that carries the identity, other statements than the one that
        writes leave its metadata, too: then no rows are there.
        """
        first, again = tee(self._actions(log, version))
        info = commit_info(first)
        found = self._commit(info, version)
        if found is None:
            return info, None
        counts = has_txid(again, self._sink_of(found.attempt), found.attempt.txid)
        return info, found if counts else None

    def _actions(self, log: Any, version: int) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401
        names = self._jvm.org.apache.spark.sql.delta.util.FileNames
        place = names.unsafeDeltaFile(log.logPath(), version)
        try:
            lines = log.store().read(place, log.newDeltaHadoopConf()).iterator()
        except Py4JJavaError:
            return
        while lines.hasNext():
            yield json.loads(lines.next())


class DeltaAppend(_InJvm):
    """Appends the batch."""

    def has_rows(self) -> bool:
        """As of ``SinkTable``: Delta may commit an append without rows, too."""
        notices = self._spark.conf.get("spark.databricks.delta.stats.collect", "true")
        is_noticed = delta_append.is_known(self._jvm) and notices.lower() != "false"
        return not is_noticed or super().has_rows()

    def write(self, attempt: TransactionAttempt) -> bool:
        """As of ``SinkTable``: one append.

        A table that is missing is made first, for the commit that makes a table by its
        name has no metadata of ours.
        """
        if self._last_opened[0] is None:
            self._check_default()
        if self._log() is None:
            self._append(self._df.limit(0), "ignore", {})
            self._log()  # refuses what another format's catalog has made of it
        log, snapshot = self._last_opened
        if log is None or not delta_append.is_known(self._jvm):
            if not self.has_rows():
                return False
            self._append(self._df, "append", self._identity(attempt))
            return True
        options = {**self._batch.options, **self._identity(attempt)}
        table, by = self._catalog_table, self._batch.partition_by
        with overtaken(COULD_NOT):
            self._has_committed = delta_append.append(
                self._df, log, snapshot, table, options, by
            )
        return self._has_committed


class DeltaStatement(_InJvm):
    """Lets the user's function run a statement in a session that has the identity.

    Delta takes it from the session for one commit only.
    """

    late: Exception | None = None
    """What the function raised after its statement was committed."""

    def has_rows(self) -> bool:
        """As of ``SinkTable``: also a statement without rows is committed."""
        return True

    def write(self, attempt: TransactionAttempt) -> bool:
        """As of ``SinkTable``; a statement without effect makes an empty commit."""
        log, before = self._opened()
        if log is None:
            legal = "a table that is there: make it before the first batch"
            raise ConfigError.illegal("table", self._table, legal)
        identity, self.late = self._identity(attempt), None
        try:
            with self._carrying(identity):
                self._batch.statement(self._df, self._target)
        except Exception as error:
            is_second = _SPENT in str(error)
            self.late = self._second(before.version()) if is_second else error
            conflict = conflict_in(error, COULD_NOT)
            if conflict and self.stored(attempt).txid < attempt.txid:
                raise OvertakenError(conflict) from error
            raise
        if self.stored(attempt).txid < attempt.txid:
            self._check_session(before.version(), attempt)
            none = self._spark.read.table(self._target).limit(0)
            self._append(none, "append", identity)
        return True

    def _check_session(self, before: int, attempt: TransactionAttempt) -> None:
        """Refuse a table that has grown, and not by commits of this session."""
        log, snapshot = self._opened()
        infos = {
            version: commit_info(self._actions(log, version))
            for version in range(before + 1, snapshot.version() + 1)
        }
        ours = {v: self._commit(info, v) for v, info in infos.items()}
        others = [
            v for v, found in ours.items() if not found or found.attempt != attempt
        ]
        if others:
            raise ConfigError(
                f"{self.what} has new versions, {others[0]} to {others[-1]},"
                " and none of them carries the attempt. The batch does not count as"
                " written. Look at them with DESCRIBE HISTORY. If they are of `write`,"
                " it used another session: take them back with RESTORE TABLE … TO"
                f" VERSION AS OF {before}, let `write` use `df.sparkSession`, and start"
                " again. If they are another writer's, and `write` changed nothing,"
                " start again. If they are of both, RESTORE would also remove what the"
                " other writer has changed: undo by hand what `write` did",
                option="write",
            )

    def _second(self, before: int) -> ConfigError:
        newest, _ = self._history()
        undo = f"with RESTORE TABLE … TO VERSION AS OF {before}."
        if newest > before + 1:
            undo = f"by hand, or {undo}{_of_others(before + 1, newest)}"
        return ConfigError(
            f"`write` has run several statements on {self.what}: the first one is"
            " committed, and Delta has refused the next. Take the first one back"
            f" {undo} Let `write` run one statement, for example one MERGE, give the"
            " sink a new name (`sink=`) for good, and start again",
            option="write",
        )

    @contextmanager
    def _carrying(self, identity: Mapping[str, str]) -> Iterator[None]:
        settings = {_SESSION[name]: value for name, value in identity.items()}
        settings[f"{_SESSION['txnVersion']}.autoReset.enabled"] = "true"
        conf = self._spark.conf
        former = {name: conf.get(name, None) for name in settings}
        try:
            for name, value in settings.items():
                conf.set(name, value)
            yield
        finally:
            for name, value in former.items():
                conf.unset(name) if value is None else conf.set(name, value)
