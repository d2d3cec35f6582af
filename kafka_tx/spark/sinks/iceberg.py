"""An Iceberg table as ``transactions.table_writes`` sees it.

An append is one commit, which Iceberg refuses if rows were added since the look. Every
other statement writes into a branch, which is published in one commit if nothing at all
was committed since the look. The attempt is in the summary of the append's snapshot, or
beside the published branch in a property of the table. Snapshots expire, so appends
write the property, too, every ten seconds; before that, former metadata tells of them.
"""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from kafka_tx.errors import ConfigError
from kafka_tx.logs import event_log
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.sinks.formats import Batch, full_name
from kafka_tx.transactions.table_writes import (
    Commit,
    Floor,
    OvertakenError,
    Snapshot,
    attempt_in,
    last_written,
    record_of,
)

OWN_OPTIONS = (
    "snapshot-property.kafka_tx",
    "isolation-level",
    "validate-from-snapshot-id",
    "branch",
)
_KEY = "kafka_tx"
_MAIN = "main"
_FLOOR_S = 10.0
"""How old the property may be that says up to where a table has the sink's batches."""
_COULD_NOT = (
    "org.apache.iceberg.exceptions.ValidationException",
    "org.apache.iceberg.exceptions.CommitFailedException",
    "java.lang.IllegalArgumentException",
)
"""What Iceberg raises where the table is not as it was seen; nothing is written."""

logger = event_log(__name__)

_floors: dict[tuple[str, str], float] = {}
"""When this program wrote the floor of a sink last."""


class IcebergSink(ABC):
    """One batch for an Iceberg table (driver)."""

    def __init__(self, batch: Batch) -> None:
        self._batch, self._df, self._name = batch, batch.df, batch.name
        self._spark = self._df.sparkSession
        self._jvm: Any = self._spark._jvm
        with self._active():
            catalog, *self._path = full_name(self._spark, batch.table)
        self._catalog = catalog
        self._table = _quoted([catalog, *self._path])
        self._base: int | None = None
        self._at: Any = None
        self._location = ""

    @property
    def sink(self) -> tuple[str, str]:
        """The table with its full name, and the name of the sink."""
        return self._table, self._name

    @property
    def what(self) -> str:
        """The table in words."""
        return f"table {self._table} (sink '{self._name}')"

    def stored(self, given: TransactionAttempt) -> TransactionAttempt:  # noqa: ARG002
        """As of ``SinkTable``; what is written later builds on the version seen here.

        Raises:
            ConfigError: It is no Iceberg table, or its writes go to a branch.
        """
        table = self._loaded()
        if table is None:
            self._base = self._at = None
            return last_written((), None)
        self._check_main(table)
        self._base = _number(table.currentSnapshot())
        self._location = table.location()
        return last_written(self._snapshots(table), self._floor(table))

    def commit(self) -> Commit:
        """As of ``SinkTable``; nothing of a snapshot that has expired."""
        if self._at is None:
            return Commit(location=self._location)
        summary = self._at.summary()
        files, rows = (
            summary.get(f"added-{what}") for what in ("data-files", "records")
        )
        number, place = int(self._at.snapshotId()), self._location
        return Commit(number, int(files or 0), int(rows or 0), place)

    def check_kept(self, stored: TransactionAttempt) -> None:  # noqa: B027 - nothing to do
        """As of ``SinkTable``: what was rolled back is not counted by ``stored``."""

    @abstractmethod
    def write(self, attempt: TransactionAttempt) -> bool:
        """As of ``SinkTable``."""

    def _record(self, attempt: TransactionAttempt, **more: object) -> str:
        return json.dumps(record_of(self._name, attempt) | more)

    # --- reading the table ----------------------------------------------------------

    def _loaded(self) -> Any:  # noqa: ANN401 - of Iceberg
        """The table as it is now; None where there is none."""
        *namespace, name = self._path
        strings = self._spark.sparkContext._gateway.new_array(
            self._jvm.java.lang.String, len(namespace)
        )
        for number, part in enumerate(namespace):
            strings[number] = part
        connector = self._jvm.org.apache.spark.sql.connector.catalog
        identifier = connector.Identifier.of(strings, name)
        with self._active():
            state = self._spark._jsparkSession.sessionState()
            catalog = state.catalogManager().catalog(self._catalog)
            catalog.invalidateTable(identifier)  # it keeps tables for 30 s
            try:
                found = catalog.loadTable(identifier)
            except AnalysisException as error:
                if "NOT_FOUND" not in (error.getCondition() or ""):
                    raise
                return None
        if not found.getClass().getName().startswith("org.apache.iceberg."):
            legal = "an Iceberg table, or a name without a table"
            raise ConfigError.illegal("table", self._table, legal)
        table = found.table()
        table.refresh()  # another thread may have loaded it before the last commit
        return table

    def _snapshots(self, table: Any) -> Iterator[Snapshot]:  # noqa: ANN401
        """The current one and those before it; ``_at`` is the last one that was taken.

        Those that have expired are in former metadata, of which a table keeps 100.
        """
        found, metadata = table.currentSnapshot(), table.operations().current()
        former = self._former(table.io(), metadata.previousFiles())
        while found is not None:
            parent = found.parentId()
            attempt = attempt_in(_parsed(found.summary().get(_KEY)), self._name)
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
        """What the table's metadata was, the newest first; files may be gone."""
        for number in range(files.size() - 1, -1, -1):
            place = io.newInputFile(files.get(number).file())
            if place.exists():
                yield self._jvm.org.apache.iceberg.TableMetadataParser.read(place)

    def _floor(self, table: Any) -> Floor | None:  # noqa: ANN401 - of Iceberg
        record = _parsed(table.properties().get(self._property))
        attempt = attempt_in(record, self._name)
        if record is None or attempt is None:
            return None
        return Floor(attempt, int(record["snapshot"]), tuple(record["order"]))

    def _raised(self, attempt: TransactionAttempt, snapshot: Any) -> str:  # noqa: ANN401
        return self._record(
            attempt, snapshot=snapshot.snapshotId(), order=_order(snapshot)
        )

    @property
    def _property(self) -> str:
        return f"{_KEY}.{self._name}"

    def _check_main(self, table: Any) -> None:  # noqa: ANN401 - of Iceberg
        """Refuse a session whose writes Iceberg takes aside."""
        if table.properties().get("write.wap.enabled") != "true":
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

    @contextmanager
    def _active(self) -> Iterator[None]:
        """Let catalogs find the settings of the session of the batch."""
        sessions = self._jvm.SparkSession
        former = sessions.getActiveSession()
        sessions.setActiveSession(self._spark._jsparkSession)
        try:
            yield
        finally:
            if former.isDefined():
                sessions.setActiveSession(former.get())
            else:
                sessions.clearActiveSession()


class IcebergAppend(IcebergSink):
    """Appends the batch."""

    def write(self, attempt: TransactionAttempt) -> bool:
        """As of ``SinkTable``: an overwrite of no rows, which is checked as such."""
        if self._base is None and self._loaded() is None:
            self._make()
        if self._is_empty():
            return False
        writer = self._df.writeTo(self._table).options(**self._batch.options)
        writer.option(f"snapshot-property.{_KEY}", self._record(attempt))
        writer.option("isolation-level", "serializable")
        if self._base is not None:
            writer.option("validate-from-snapshot-id", str(self._base))
        with _overtaken("org.apache.iceberg."):
            writer.overwrite(F.lit(False))
        self._raise_floor(attempt)
        return True

    def _is_empty(self) -> bool:
        """Whether there are no rows, where it costs little or is likely.

        To ask computes a part of the batch again, unless it is cached. It is likely
        where the sink's last append, which ``stored`` has seen, had none.
        """
        kept = self._df.storageLevel
        had_none = self._at is not None and "added-data-files" not in self._at.summary()
        is_asked = kept.useMemory or kept.useDisk or had_none
        return is_asked and self._df.isEmpty()

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

    def _raise_floor(self, attempt: TransactionAttempt) -> None:
        """Note the attempt where it outlives its snapshot; not in each second."""
        now = time.monotonic()
        if now - _floors.get(self.sink, -_FLOOR_S) < _FLOOR_S:
            return
        try:
            table = self._loaded()
            found = next(s for s in self._snapshots(table) if s.attempt == attempt)
            raised = self._raised(attempt, table.snapshot(found.number))
            table.updateProperties().set(self._property, raised).commit()
        except (Py4JError, PySparkException, StopIteration) as error:
            logger.warning(
                "the floor of %s stays where it was: %s",
                *(self.what, error),
                attempt=attempt,
            )
            return
        _floors[self.sink] = now


class IcebergStatement(IcebergSink):
    """Lets the user's function write into a branch, and publishes the branch."""

    late: Exception | None = None
    """Nothing that the function raises comes after its commit."""

    def write(self, attempt: TransactionAttempt) -> bool:
        """As of ``SinkTable``; a statement without effect leaves the property only."""
        if self._loaded() is None:
            legal = "a table that is there: make it before the first batch"
            raise ConfigError.illegal("table", self._table, legal)
        branch = f"{self._branches}{attempt.attempt_id}"
        self._open(branch)
        with _overtaken(*_COULD_NOT[:1]):  # the branch was removed by another driver
            self._batch.statement(
                self._df, f"{self._table}.{_quoted([f'branch_{branch}'])}"
            )
        self._publish(attempt, branch)
        return True

    @property
    def _branches(self) -> str:
        """How the branches of the sink begin; the attempt's id ends their names.

        So a frozen driver writes into no branch of a newer one.
        """
        return f"{_KEY}_{self._name}_"

    def _open(self, branch: str) -> None:
        """Let the branch begin at the version that ``stored`` has seen."""
        table = self._loaded()
        with _overtaken(*_COULD_NOT):
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
        with _overtaken(*_COULD_NOT):
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
            raised = self._raised(attempt, head)
            transaction.updateProperties().set(self._property, raised).commit()
            transaction.commitTransaction()

    def _finished(self, table: Any, attempt_id: int) -> list[str]:  # noqa: ANN401
        """Branches of this attempt and of those before it."""
        pattern = re.compile(re.escape(self._branches) + r"(\d+)")
        found = map(pattern.fullmatch, list(table.refs().keySet()))
        return [one[0] for one in found if one and int(one[1]) <= attempt_id]

    def _check_target(self, table: Any, branch: str) -> None:  # noqa: ANN401
        """Refuse a function that has written into the table itself.

        Written again, its rows would be there twice.
        """
        head, current = table.snapshot(branch), table.currentSnapshot()
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
            f" CALL {_quoted([self._catalog])}.system.rollback_to_snapshot, let `write`"
            " use the name that it is called with, and start again. If another query"
            " of this program has written it, start again",
            option="write",
        )


def _number(snapshot: Any) -> int | None:  # noqa: ANN401 - of Iceberg
    return None if snapshot is None else int(snapshot.snapshotId())


def _order(snapshot: Any) -> tuple[int, int]:  # noqa: ANN401 - of Iceberg
    """Tables of format 1 number no versions."""
    return snapshot.sequenceNumber(), snapshot.timestampMillis()


def _parsed(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


@contextmanager
def _overtaken(*names: str) -> Iterator[None]:
    """Tell of commits in between: a cause of the error has a class of these names."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        cause = getattr(error, "java_exception", None) or getattr(
            error, "_origin", None
        )
        while cause is not None:
            name = cause.getClass().getName()
            if name in _COULD_NOT and name.startswith(names):
                raise OvertakenError(str(cause.getMessage())) from error
            cause = cause.getCause()
        raise


def _quoted(parts: Sequence[str]) -> str:
    return ".".join("`{}`".format(part.replace("`", "``")) for part in parts)
