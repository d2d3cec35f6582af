"""An append to a Delta table by the steps of Delta's own, but for one.

Delta's writer looks for the txid itself: a Spark job over the table's whole log, for
each commit. ``DeltaSink`` knows the txids already, so this append begins its
transaction on the snapshot that was checked. Delta refuses it where another commit
of the same sink came after that snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafka_tx.spark.sinks.formats import active_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KNOWN = "4.4."
"""The line of Delta whose steps these are."""


def is_known(jvm: Any) -> bool:  # noqa: ANN401 - of py4j
    """Whether the session's Delta has these steps."""
    package = getattr(jvm.io.delta, "package$")
    return str(getattr(package, "MODULE$").VERSION()).startswith(KNOWN)


def append(
    df: DataFrame,
    log: Any,  # noqa: ANN401 - of Delta
    snapshot: Any,  # noqa: ANN401 - of Delta
    catalog_table: Any,  # noqa: ANN401 - of Spark
    options: Mapping[str, str],
    partition_by: Sequence[str],
) -> bool:
    """Append in one commit that follows ``snapshot`` (driver).

    The snapshot has no commit of this txid. ``options`` are those of the writer and of
    the identity; ``partition_by`` counts for a table that is made. Returns False where
    there were no rows, so that nothing was committed. Raises what Delta raises: nothing
    was committed then, unless an answer was lost.
    """
    spark = df.sparkSession
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    delta, python = jvm.org.apache.spark.sql.delta, jvm.PythonUtils
    given = {**options, "path": log.dataPath().toString()}
    read = delta.DeltaOptions(python.toScalaMap(given), session.sessionState().conf())
    mode = jvm.org.apache.spark.sql.SaveMode.Append
    columns = python.toSeq(list(partition_by))
    own = {n: v for n, v in options.items() if n.lower().startswith("delta.")}
    checked = delta.DeltaConfigs.validateConfigurations(python.toScalaMap(own))
    none = jvm.scala.Option.empty()
    write = delta.commands.WriteIntoDelta(
        log, mode, read, columns, checked, df._jdf, catalog_table, none, False
    )
    some = jvm.scala.Option.apply
    merges = some(True) if read.canMergeSchema() else none
    operation = getattr(delta, "DeltaOperations$Write")(
        mode, some(columns), none, read.userMetadata(), none, none, merges, none, none
    )
    transaction = log.startTransaction(catalog_table, some(snapshot))
    transaction.readTxn().addOne(options["txnAppId"])
    with _active(spark, transaction):
        done = write.writeAndReturnCommitData(transaction, session, none, False)
        if not _has_files(done.actions().iterator()):
            return False
        transaction.commitIfNeeded(done.actions(), operation, done.stringTags())
    spark.catalog.refreshByPath(given["path"])
    return True


def _has_files(actions: Any) -> bool:  # noqa: ANN401 - of Scala
    while actions.hasNext():
        if actions.next().getClass().getSimpleName() == "AddFile":
            return True
    return False


@contextmanager
def _active(spark: SparkSession, transaction: Any) -> Iterator[None]:  # noqa: ANN401
    """Let Delta's steps find their session and transaction in this thread."""
    delta: Any = spark._jvm.org.apache.spark.sql.delta
    transactions = getattr(delta, "OptimisticTransaction$")
    active = getattr(transactions, "MODULE$")
    with active_session(spark):
        active.setActive(transaction)
        try:
            yield
        finally:
            active.clearActive()
