"""Results of ``for_each_transaction`` that count once: maps and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from kafka_tx.clock import SystemClock
from kafka_tx.config import check_attempt, check_function, check_id
from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.admission import only_write
from kafka_tx.sinks.table_writes import (
    CommitPace,
    SinkTable,
    record_commit,
    write_batch,
)
from kafka_tx.spark.sinks import delta, formats, iceberg
from kafka_tx.spark.sinks.connect_tables import DeltaConnectAppend, IcebergConnectAppend
from kafka_tx.spark.sinks.formats import Batch
from kafka_tx.spark.versions.names import is_classic
from kafka_tx.sql.reducers import check_reducer
from kafka_tx.sql.tables import append_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafka_tx.sql.maps import NonTransactionalMap
    from kafka_tx.sql.reducers import Reducer

_pace = CommitPace()


def update_map(
    df: DataFrame,
    attempt: TransactionAttempt,
    state: NonTransactionalMap,
    *,
    key: str = "key",
    value: str = "value",
    reducer: Reducer = "sum",
    order: str | None = None,
) -> bool:
    """Count a batch into a map, from the driver; executors reduce what they can.

    ``sum``, ``count``, ``max``, ``min``, and ``last`` with ``order`` are computed on
    executors. ``last`` without ``order`` and functions bring every row to the driver,
    in the order of Spark's partitions: records of one Kafka partition keep theirs.

    Args:
        df: The batch. Rows without a key are an error: filter them.
        attempt: Of the batch. A map takes one update of it: put several into one
            ``with map.batch(attempt)``.
        state: An ``OpaqueMap`` for ``tx.mode=opaque``, else a ``TransactionalMap``.
        key: Column of the keys.
        value: Column of the values; ``count`` needs none.
        reducer: As of ``map.update``.
        order: Column by which ``last`` is the last of a key, such as ``offset`` where
            all records of a key are in one partition.

    Returns:
        False where the txid was counted already and nothing was written.

    Raises: as ``map.update``; ConfigError also for a second call for the batch and map;
        also what Spark raises.
    """
    check_attempt(attempt)
    if not hasattr(state, "update"):
        legal = "a TransactionalMap, OpaqueMap or NonTransactionalMap"
        raise ConfigError.illegal("state", state, legal)
    if order is not None and reducer != "last":
        raise ConfigError.illegal("order", order, "None, except with reducer 'last'")
    check_reducer(reducer, state.value_type)
    keys = F.col(key).alias("key")
    if callable(reducer) or (reducer == "last" and order is None):
        rows = df.select(keys, F.col(value).alias("value"))
    else:
        named = {"count": lambda _: F.count("*"), "last": lambda v: F.max_by(v, order)}
        merged = named.get(reducer, getattr(F, reducer))(value)
        rows = df.groupBy(keys).agg(merged.alias("value"))
    counted = rows.toArrow()
    what = f"map '{state.name}'"
    advice = "give the second update a map of its own, with another name"
    with only_write(state.address, attempt, what=what, option="state", advice=advice):
        return state.update(attempt, counted, "sum" if reducer == "count" else reducer)


def append_once(
    df: DataFrame,
    attempt: TransactionAttempt,
    url: str,
    table: str,
    *,
    opaque: bool = False,
) -> bool:
    """Append a batch's rows to a table of a SQL database, once (driver).

    The rows pass through the driver's memory: the txid is checked and written in the
    same database transaction as all of them.

    Args:
        df: The batch. A table takes one write of it: ``union`` what belongs together.
        attempt: Of the batch.
        url: Any SQLAlchemy URL.
        table: Made from the columns of ``df`` where it is missing; for one job.
        opaque: For ``tx.mode=opaque``: rows also get a column ``txid``, and a replay
            replaces the rows of the earlier attempt.

    Returns:
        False if the txid was there already, so that nothing was written; also if an
        earlier try of this very call did it and its answer was lost.

    Raises:
        OutOfOrderError: A later txid is stored.
        FencedError: A newer owner has written; opaque: or a later attempt.
        AnotherNumberingError: The table counts the txids of another numbering.
        ReplayDiffersError: The txid is there from other records.
        ConfigError: The name is not legal or of another kind, a column has no name, one
            of another or a type without a counterpart, the database cannot hold a
            value, the attempt is opaque and
            ``opaque`` is not given, or the attempt was appended to the table already.
        StateGivenUpError: The database did not answer or was locked for as long as it
            is tried again (``retry_for_ms`` of the URL); unknown whether the rows
            arrived; another attempt at the batch may try again.
        StateError: The database refuses: rights, path, a missing column.
    """
    check_attempt(attempt)
    return append_rows(url, table, attempt, df.toArrow(), opaque=opaque)


def append_to_table(
    df: DataFrame,
    attempt: TransactionAttempt,
    table: str,
    *,
    sink: str = "default",
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> bool:
    """Append a batch's rows to a Delta or Iceberg table, once (driver).

    Rows and attempt are one commit of the table. A replay is skipped, with the
    checkpoint or without, also where another driver is writing the same batch.
    Executors write the rows. A batch without rows needs no commit. In a replay, for
    a Delta table that is made, and with Spark Connect, Spark first looks for a row, in
    a job of its own. With Spark Connect, an Iceberg batch is computed and written again
    if others have added rows in between.

    Args:
        df: The batch. A sink takes one write of it: ``union`` what belongs together.
        attempt: Of the batch, from a transactional source.
        table: A name, whose catalog decides the format, or the path of a Delta table
            (with a ``/``); made by the first batch if missing.
        sink: Names this writer in the table. Queries that write to one table, and
            second writes of one batch, need a name each, which stays for good.
        partition_by: Columns, for a table that is made.
        options: Of the format's writer, such as ``mergeSchema``.

    Returns:
        False if the txid was there already, or if there were no rows to commit.

    Raises:
        ConfigError: The attempt is opaque or was written by an earlier call, the table
            is of another format or forgets transactions, the session lacks the format
            or the catalog, or an argument is not legal.
        OutOfOrderError: A later txid is in the table.
        FencedError: A newer owner has written.
        AnotherNumberingError: The sink counts the txids of another numbering.
        ReplayDiffersError: The txid is there from other records.
        StateLostError: The table does not hold what this program, or an earlier try at
            the batch, has written: it was made anew, or taken back by ``RESTORE``.
        StateGivenUpError: Others committed first at each of ten tries.
        pyspark.errors.PySparkException: What Spark and the format raise, such as for
            columns that do not fit; nothing of the batch is in the table.
    """
    _check_table(attempt, table, sink)
    given = dict(options or {})
    is_iceberg = formats.is_iceberg(df.sparkSession, table)
    for name in given:
        if name.lower() in (iceberg if is_iceberg else delta).OWN_OPTIONS:
            legal = "other options of the format's writer: the sink sets this one"
            raise ConfigError.illegal("options", name, legal)
    kinds: tuple[Callable[[Batch], SinkTable], ...]
    kinds = DeltaConnectAppend, IcebergConnectAppend
    if is_classic(df.sparkSession):
        kinds = delta.DeltaAppend, iceberg.IcebergAppend
    batch = Batch(df, table, sink, options=given, partition_by=partition_by)
    return _write(kinds[is_iceberg](batch), attempt)


def write_to_table(
    df: DataFrame,
    attempt: TransactionAttempt,
    table: str,
    write: Callable[[DataFrame, str], object],
    *,
    sink: str = "default",
) -> bool:
    """Run a statement on a Delta or Iceberg table, once (driver), such as a MERGE.

    Delta: the session of ``df`` carries the attempt into the commit of the statement.
    Inside ``foreachBatch`` this session is the query's own. Iceberg: the statement
    writes into a branch, which is published at the end together with the attempt.

    Args:
        df: The batch.
        attempt: Of the batch, from a transactional source.
        table: As of ``append_to_table``; the table is there.
        write: Called with ``df`` and its target as SQL names it; not called where the
            table has the batch. Runs in ``df.sparkSession``. Delta: at most one
            statement. Iceberg: any number. It is called again, ten times at most, if
            others have committed in between.
        sink: As of ``append_to_table``.

    Returns:
        False if the txid was there already, so that ``write`` was not called.

    Raises: as ``append_to_table``; ConfigError also in a session of Spark Connect, for
        a table that is missing, and for a ``write`` of several statements, or past its
        target; also what ``write`` raises. If it raises after its statement, a Delta
        table has the batch, and an Iceberg table has nothing of it.
    """
    _check_table(attempt, table, sink)
    check_function("write", write, "a function of df and the table")
    formats.check_classic(df.sparkSession)
    is_iceberg = formats.is_iceberg(df.sparkSession, table)
    kind = iceberg.IcebergStatement if is_iceberg else delta.DeltaStatement
    written = kind(Batch(df, table, sink, statement=write))
    is_new = _write(written, attempt)
    if is_new and written.late is not None:
        raise written.late
    return is_new


def _write(table: SinkTable, attempt: TransactionAttempt) -> bool:
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    is_new = write_batch(table, attempt)
    now_ms = clock.monotonic_ms()
    if is_new:
        _pace.committed(table, now_ms)
    if is_new is None:
        return False
    record_commit(table, attempt, (now_ms - began_ms) / 1000 if is_new else None)
    return is_new


def _check_table(attempt: object, table: object, sink: str) -> None:
    check_attempt(attempt)
    if not isinstance(table, str) or not table.strip():
        raise ConfigError.illegal("table", table, "the name or the path of a table")
    check_id(sink, "sink")
