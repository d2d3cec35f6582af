"""Results of ``for_each_transaction`` that count once: maps, tables, Delta."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from kafka_tx.config import LEGAL_ATTEMPT, check_id, check_kind
from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.tables import append_rows
from kafka_tx.transactions.admission import check_mode
from kafka_tx.transactions.second_writes import only_write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafka_tx.sql.maps import NonTransactionalMap
    from kafka_tx.sql.reducers import Reducer


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
    _check_attempt(attempt)
    if not hasattr(state, "update"):
        legal = "a TransactionalMap, OpaqueMap or NonTransactionalMap"
        raise ConfigError.illegal("state", state, legal)
    if order is not None and reducer != "last":
        raise ConfigError.illegal("order", order, "None, except with reducer 'last'")
    keys = F.col(key).alias("key")
    if callable(reducer) or (reducer == "last" and order is None):
        rows = df.select(keys, F.col(value).alias("value"))
    elif reducer == "count":
        rows = df.groupBy(keys).agg(F.count("*").alias("value"))
    elif reducer == "last":
        rows = df.groupBy(keys).agg(F.max_by(value, order).alias("value"))
    elif reducer in {"sum", "max", "min"}:
        merged = getattr(F, reducer)(value)
        rows = df.groupBy(keys).agg(merged.alias("value"))
    else:
        rows = df.select(keys)  # the map names what is legal
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
        table: Made from the columns of ``df`` where it is missing.
        opaque: For ``tx.mode=opaque``: rows also get a column ``txid``, and a replay
            replaces the rows of the earlier attempt.

    Returns:
        False if the txid was there already, so that nothing was written.

    Raises:
        OutOfOrderError: A later txid is stored.
        FencedError: A newer owner has written; opaque: or a later attempt.
        AnotherNumberingError: The table counts the txids of another numbering.
        ReplayDiffersError: The txid is there from other records.
        ConfigError: The name is not legal or of another kind, a column's type has no
            counterpart, the attempt is opaque and ``opaque`` is not given, or the batch
            was appended to the table already.
        StateGivenUpError: The database did not answer for too long; the batch may be
            replayed.
        StateError: The database refuses.
    """
    _check_attempt(attempt)
    return append_rows(url, table, attempt, df.toArrow(), opaque=opaque)


def delta_options(tx_id: str, attempt: TransactionAttempt) -> dict[str, str]:
    """Options of ``df.write.format("delta")`` that make Delta skip a replayed batch.

    They follow the txid, which goes on in a new checkpoint; Spark's batch id begins
    again there, and Delta would skip new batches as old ones. What a txid held when it
    was written first is what counts, so use it with a transactional source. Delta
    knows neither owners nor records: a driver that was overtaken can still write the
    txid that it is at, which holds the same records.

    Raises:
        ConfigError: ``tx_id`` is no legal ``tx.id``, or the attempt is opaque.
    """
    _check_attempt(attempt)
    check_mode(attempt, "a table that Delta skips replays of")
    return {
        "txnAppId": f"kafka_tx.{check_id(tx_id)}",
        "txnVersion": str(attempt.txid),
    }


def _check_attempt(attempt: object) -> None:
    check_kind("attempt", attempt, TransactionAttempt, LEGAL_ATTEMPT)
