"""An Iceberg table as ``sinks.table_writes`` sees it.

An append is made in a transaction of Iceberg's, and every other statement on a branch.
One commit makes its rows a version of the table, and is refused if there was any other
commit since the last attempt was read. The attempt is in the summary of the append's
snapshot, and in a property of the table, which outlives snapshots.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.table_writes import (
    KEY,
    Commit,
    Floor,
    OvertakenError,
    Snapshot,
    attempt_in,
    floor_in,
    last_written,
    record_in,
    record_of,
    warn_of_rollback,
)
from kafka_tx.spark.sinks.conflicts import overtaken
from kafka_tx.spark.sinks.formats import Batch, active_session, full_name, quoted

OWN_OPTIONS = (
    "snapshot-property.kafka_tx",
    "isolation-level",
    "validate-from-snapshot-id",
    "branch",
)
_MAIN = "main"
COULD_NOT = (
    "org.apache.iceberg.exceptions.ValidationException",
    "org.apache.iceberg.exceptions.CommitFailedException",
    "java.lang.IllegalArgumentException",
)
"""Errors of Iceberg if the table has changed since it was read; nothing is written."""


class IcebergSink(ABC):
    """One batch for an Iceberg table (driver); a subclass knows how to read it."""

    def __init__(self, batch: Batch) -> None:
        self._batch, self._df, self._name = batch, batch.df, batch.name
        self._spark = self._df.sparkSession
        with self._active():
            self._catalog, *self._path = full_name(self._spark, batch.table)
        self._table = quoted([self._catalog, *self._path])
        self._base: int | None = None

    @property
    def sink(self) -> tuple[str, str]:
        """The table with its full name, and the name of the sink."""
        return self._table, self._name

    @property
    def what(self) -> str:
        """The table in words."""
        return f"table {self._table} (sink '{self._name}')"

    def stored(self, given: TransactionAttempt) -> TransactionAttempt:
        """As of ``SinkTable``; what is written later builds on the version seen here.

        Raises:
            ConfigError: It is no Iceberg table, or its writes go to a branch.
        """
        properties = self._properties()
        if properties is None:
            return last_written((), None)
        self._check_main(properties)
        floor = self._floor(properties)
        found = last_written(self._snapshots(), floor)
        if floor is not None and found.txid < floor.attempt.txid < given.txid:
            warn_of_rollback(self.what, given)
        return found

    @abstractmethod
    def commit(self) -> Commit:
        """As of ``SinkTable``; nothing of a snapshot that has expired."""

    def check_stored(self, stored: TransactionAttempt) -> None:  # noqa: B027 - nothing to do
        """As of ``SinkTable``: ``stored`` leaves out what was rolled back."""

    def has_rows(self) -> bool:
        """As of ``SinkTable``."""
        return not self._df.isEmpty()

    @abstractmethod
    def write(self, attempt: TransactionAttempt) -> bool:
        """As of ``SinkTable``."""

    @abstractmethod
    def _properties(self) -> Any:  # noqa: ANN401 - a map, of Java's or Python's
        """Read the table: set ``_base``, return the properties; None: there is none."""

    @abstractmethod
    def _loaded(self) -> Any:  # noqa: ANN401 - of Iceberg, or its properties
        """The table as it is now; None where there is none."""

    @abstractmethod
    def _snapshots(self) -> Iterator[Snapshot]:
        """The one that ``_properties`` has seen last, and those before it."""

    def _active(self) -> AbstractContextManager[None]:
        """Let catalogs find the settings of the session of the batch."""
        return nullcontext()

    def _make(self) -> None:
        empty = self._df.limit(0).writeTo(self._table).using("iceberg")
        if self._batch.partition_by:
            first, *others = map(F.col, self._batch.partition_by)
            empty.partitionedBy(first, *others)
        try:
            empty.create()
        except (Py4JJavaError, PySparkException):
            if self._loaded() is None:
                raise  # no other driver was faster

    def _of_another_format(self) -> ConfigError:
        legal = "an Iceberg table, or a name without a table"
        return ConfigError.illegal("table", self._table, legal)

    def _record(self, attempt: TransactionAttempt, **more: object) -> str:
        return json.dumps(record_of(self._name, attempt) | more)

    def _floor(self, properties: Any) -> Floor | None:  # noqa: ANN401 - as of _properties
        return floor_in(properties.get(self._property), self._name)

    def _raised(self, attempt: TransactionAttempt, number: int, order: Any) -> str:  # noqa: ANN401
        return self._record(attempt, snapshot=number, order=order)

    @property
    def _property(self) -> str:
        return f"{KEY}.{self._name}"

    def _check_main(self, properties: Any) -> None:  # noqa: ANN401 - as of _properties
        """Refuse a session whose writes Iceberg takes aside."""
        if (properties.get("write.wap.enabled") or "").lower() != "true":
            return
        for option in ("spark.wap.id", "spark.wap.branch"):
            value = self._spark.conf.get(option, None)
            if value is not None:
                raise ConfigError(
                    f"{self.what} has write.wap.enabled=true, and the session has"
                    f" {option}={value}: Iceberg would keep the batch out of the table,"
                    " and its txid, too. Nothing was written. Unset it in the session"
                    " of the query",
                    option=option,
                    value=value,
                )


class _InJvm(IcebergSink):
    """Reads the table by Iceberg's own classes, in a classic session."""

    def __init__(self, batch: Batch) -> None:
        self._jvm: Any = batch.df.sparkSession._jvm
        super().__init__(batch)
        self._at: Any = None
        self._seen: Any = None
        self._has_committed = False

    def commit(self) -> Commit:
        place = "" if self._seen is None else self._seen.location()
        if self._at is None:
            return Commit(location=place)
        return commit_of(int(self._at.snapshotId()), self._at.summary(), place)

    # --- reading the table ----------------------------------------------------------

    def _properties(self) -> Any:  # noqa: ANN401 - of Java
        if self._has_committed:
            self._has_committed = False
            table = self._seen
            table.refresh()
        else:
            table = self._seen = self._loaded()
        self._base = None if table is None else _number(table.currentSnapshot())
        return None if table is None else table.properties()

    def _loaded(self) -> Any:  # noqa: ANN401 - of Iceberg
        with self._active():
            catalog, identifier = self._place()
            catalog.invalidateTable(identifier)  # it keeps tables for 30 s
            try:
                found = catalog.loadTable(identifier)
            except AnalysisException as error:
                if "NOT_FOUND" not in (error.getCondition() or ""):
                    raise
                return None
        if not found.getClass().getName().startswith("org.apache.iceberg."):
            raise self._of_another_format()
        table = found.table()
        table.refresh()  # another thread may have loaded it before the last commit
        return table

    def _place(self) -> tuple[Any, Any]:
        """Spark's catalog, and the table's identifier in it."""
        *namespace, name = self._path
        strings = self._spark.sparkContext._gateway.new_array(
            self._jvm.java.lang.String, len(namespace)
        )
        for number, part in enumerate(namespace):
            strings[number] = part
        connector = self._jvm.org.apache.spark.sql.connector.catalog
        state = self._spark._jsparkSession.sessionState()
        catalog = state.catalogManager().catalog(self._catalog)
        return catalog, connector.Identifier.of(strings, name)

    def _snapshots(self) -> Iterator[Snapshot]:
        """The current one and those before it; ``_at`` is the last one taken.

        Those that have expired are in former metadata, of which a table keeps 100: they
        tell whether a table that was rolled back still has the floor's version.
        """
        table = self._seen
        found, metadata = table.currentSnapshot(), table.operations().current()
        former = self._former(table.io(), metadata.previousFiles())
        while found is not None:
            parent = found.parentId()
            attempt = attempt_in(record_in(found.summary().get(KEY)), self._name)
            self._at = found
            yield Snapshot(found.snapshotId(), parent, _order(found), attempt)
            found = None if parent is None else metadata.snapshot(parent)
            while found is None and parent is not None:
                metadata = next(former, None)
                if metadata is None:
                    break
                found = metadata.snapshot(parent)
        self._at = None

    def _former(self, io: Any, files: Any) -> Iterator[Any]:  # noqa: ANN401 - of Iceberg
        """The table's former metadata, the newest first, as far as files exist."""
        for number in range(files.size() - 1, -1, -1):
            place = io.newInputFile(files.get(number).file())
            if place.exists():
                yield self._jvm.org.apache.iceberg.TableMetadataParser.read(place)

    def _active(self) -> AbstractContextManager[None]:
        return active_session(self._spark)


class IcebergAppend(_InJvm):
    """Appends the batch."""

    _files: Sequence[Any] = ()
    """Data files of this batch that an earlier try has written, in no version yet."""
    _layout: tuple[Any, ...] = ()
    """Of the table that they were written for, as that try has changed it."""

    def write(self, attempt: TransactionAttempt) -> bool:
        """As of ``SinkTable``; the next try uses the files again if they still fit."""
        if self._base is None:
            self._seen = self._made()
        table = self._seen
        transaction = table.newTransaction()  # reads the table anew
        staged = transaction.table()
        self._check_main(staged.properties())  # a catalog sets some as a table is made
        before = staged.operations().current()
        if _number(staged.currentSnapshot()) != self._base:
            raise OvertakenError("the table has another version now")
        self._stage(transaction, attempt)
        head = staged.currentSnapshot()
        is_staged = _number(head) != self._base
        if not is_staged or head.summary().get("added-data-files") is None:
            return False
        raised = self._raised(attempt, head.snapshotId(), _order(head))
        transaction.updateProperties().set(self._property, raised).commit()
        try:
            with overtaken(*COULD_NOT[:2]):  # not tried again inside Iceberg
                table.operations().commit(before, staged.operations().current())
        except OvertakenError:
            self._files = list(head.addedDataFiles(staged.io()))
            self._layout = _layout(staged)
            raise
        self._has_committed = True
        return True

    def _made(self) -> Any:  # noqa: ANN401 - of Iceberg
        if self._loaded() is None:
            self._make()
        return self._loaded()

    def _stage(self, transaction: Any, attempt: TransactionAttempt) -> None:  # noqa: ANN401
        """Add a snapshot with the rows to the transaction."""
        kept = f"snapshot-property.{KEY}"
        options = {**self._batch.options, kept: self._record(attempt)}
        if not self._files or self._layout != _layout(transaction.table()):
            self._run(transaction, options)
            return
        append = transaction.newAppend()
        for file in self._files:
            append.appendFile(file)
        for name, value in options.items():
            if name.startswith("snapshot-property."):
                append.set(name.removeprefix("snapshot-property."), value)
        append.commit()

    def _run(self, transaction: Any, options: Mapping[str, str]) -> None:  # noqa: ANN401
        """Let Spark write the rows, as ``writeTo(...).append()`` does."""
        option, sql = self._jvm.scala.Option.apply, self._jvm.org.apache.spark.sql
        staged = self._jvm.org.apache.iceberg.spark.source.StagedSparkTable(transaction)
        with self._active():
            relation = sql.execution.datasources.v2.DataSourceV2Relation.create(
                staged, *map(option, self._place())
            )
            plan = sql.catalyst.plans.logical.AppendData.byName(
                relation,
                self._df._jdf.logicalPlan(),
                self._jvm.PythonUtils.toScalaMap(options),
            )
            sql.classic.Dataset.ofRows(self._spark._jsparkSession, plan)


class IcebergStatement(_InJvm):
    """Lets the user's function write into a branch, and publishes the branch."""

    late: Exception | None = None
    """Nothing that the function raises comes after its commit."""

    def has_rows(self) -> bool:
        """As of ``SinkTable``: also a statement without rows is committed."""
        return True

    def write(self, attempt: TransactionAttempt) -> bool:
        """As of ``SinkTable``; a statement without effect leaves the property only."""
        if self._loaded() is None:
            legal = "a table that is there: make it before the first batch"
            raise ConfigError.illegal("table", self._table, legal)
        branch = f"{self._branches}{attempt.attempt_id}"
        self._open(branch)
        with overtaken(*COULD_NOT[:1]):  # the branch was removed by another driver
            self._batch.statement(
                self._df, f"{self._table}.{quoted([f'branch_{branch}'])}"
            )
        self._publish(attempt, branch)
        return True

    @property
    def _branches(self) -> str:
        # the attempt's id follows: a frozen driver writes into no branch of a newer one
        return f"{KEY}_{self._name}_"

    def _open(self, branch: str) -> None:
        """Let the branch begin at the version that ``stored`` has seen."""
        table = self._loaded()
        with overtaken(*COULD_NOT):
            if table.refs().containsKey(branch):
                table.manageSnapshots().removeBranch(branch).commit()
            if self._base is not None:
                table.manageSnapshots().createBranch(branch, self._base).commit()
                return
            table.manageSnapshots().createBranch(branch).commit()
        if table.currentSnapshot() is not None:  # the branch may have begun there
            raise OvertakenError("the first version of the table came in between")

    def _publish(self, attempt: TransactionAttempt, branch: str) -> None:
        """Publish the branch and record the attempt, in one commit."""
        table = self._loaded()
        with overtaken(*COULD_NOT):
            self._check_target(table, branch)
            transaction = table.newTransaction()
            if _number(transaction.table().currentSnapshot()) != self._base:
                # A branch that another driver has dropped begins anew at the newest
                # version, and could be published: with rows that are there already.
                raise OvertakenError("the table has another version now")
            change = transaction.manageSnapshots().fastForwardBranch(_MAIN, branch)
            for one in self._finished(table, attempt.attempt_id):
                change.removeBranch(one)
            change.commit()
            head = table.snapshot(branch)
            raised = self._raised(attempt, head.snapshotId(), _order(head))
            transaction.updateProperties().set(self._property, raised).commit()
            transaction.commitTransaction()

    def _finished(self, table: Any, attempt_id: int) -> list[str]:  # noqa: ANN401
        """Branches of this attempt and of those before it."""
        pattern = re.compile(re.escape(self._branches) + r"(\d+)")
        found = map(pattern.fullmatch, list(table.refs().keySet()))
        return [one[0] for one in found if one and int(one[1]) <= attempt_id]

    def _check_target(self, table: Any, branch: str) -> None:  # noqa: ANN401
        """Refuse a function that has written into the table: again, it would repeat."""
        head, current = table.snapshot(branch), table.currentSnapshot()
        if head is None:  # as it began at a version that is old enough to expire
            raise OvertakenError(f"its branch '{branch}' was removed")
        begun = self._base if self._base is not None else head.parentId()
        is_as_it_was = begun is None or head.snapshotId() == begun
        if not is_as_it_was or _number(current) == self._base:
            return
        mine = self._spark.sparkContext.applicationId
        if current.summary().get("spark.app.id") == mine:
            raise self._past_the_target(current.snapshotId())

    def _past_the_target(self, written: int) -> ConfigError:
        return ConfigError(
            f"`write` has left its target as it was, and version {written} of"
            f" {self.what} comes from this program. If `write` names the table itself:"
            " take that version back with"
            f" CALL {quoted([self._catalog])}.system.rollback_to_snapshot, let `write`"
            " use the name that it is called with, and start again. If another query"
            " of this program has written it, start again",
            option="write",
        )


def commit_of(version: int, summary: Any, location: str = "") -> Commit:  # noqa: ANN401
    """A commit by the summary of its snapshot, a map of Java's or Python's."""
    files, rows = (summary.get(f"added-{what}") for what in ("data-files", "records"))
    return Commit(version, int(files or 0), int(rows or 0), location)


def _number(snapshot: Any) -> int | None:  # noqa: ANN401 - of Iceberg
    return None if snapshot is None else int(snapshot.snapshotId())


def _order(snapshot: Any) -> tuple[int, int]:  # noqa: ANN401 - of Iceberg
    """Tables of format 1 number no versions."""
    return snapshot.sequenceNumber(), snapshot.timestampMillis()


def _layout(table: Any) -> tuple[Any, ...]:  # noqa: ANN401 - of Iceberg
    """What the files of an append must fit: a file knows its columns by number."""
    return table.uuid(), table.schema().asStruct(), table.spec()
