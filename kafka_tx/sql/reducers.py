"""From the rows of a batch to one row for each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import add
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from kafka_tx.errors import ConfigError
from kafka_tx.sql.values import to_column

Named = Literal["sum", "count", "max", "min", "last"]
Reducer = Named | Callable[[Any, Any], Any]
"""How a key's rows become its value; a callable gets the value so far (None: absent)
and one row's value, and returns the new value, None to remove the key."""

NAMED: tuple[str, ...] = get_args(Named)

MERGES: dict[str, Callable[[Any, Any], Any]] = {
    "sum": add,
    "max": max,
    "min": min,
    "last": lambda _, given: given,
}
"""How two values of one key become one."""

_INT64_MAX = 2**63 - 1


def check_reducer(reducer: object, value_type: pa.DataType) -> None:
    """Refuse what is no reducer, or none for such values; raises ConfigError."""
    if not callable(reducer) and reducer not in NAMED:
        raise ConfigError.illegal(
            "reducer",
            reducer,
            f"{', '.join(NAMED)}, or a function (value so far, row's value) -> value",
        )
    if reducer in ("sum", "count") and not pa.types.is_primitive(value_type):
        legal = f"max, min, last or a function in a map of {value_type} values"
        raise ConfigError.illegal("reducer", reducer, legal)


def rows_of(
    given: pa.Table | pa.RecordBatch,
    key_type: pa.DataType,
    value_type: pa.DataType,
    *,
    has_values: bool = True,
) -> pa.Table:
    """Columns ``key`` and ``value`` in the map's types; raises ConfigError."""
    table = given if isinstance(given, pa.Table) else pa.Table.from_batches([given])
    wanted = {"key": key_type} | ({"value": value_type} if has_values else {})
    columns = {name: _column(table, name, kind) for name, kind in wanted.items()}
    if columns["key"].null_count:
        raise ConfigError.illegal(
            "key", None, "a value in every row", "Leave out rows without a key."
        )
    return pa.table(columns)


def one_row_each(rows: pa.Table, reducer: Named) -> pa.Table:
    """One row for each key, keys ascending: neighbours in the database come together.

    Null values count for ``last`` alone, where they remove the key.
    """
    if reducer == "count":
        found = rows.group_by("key").aggregate([([], "count_all")])
        return _sorted(found.rename_columns(["key", "value"]))
    if reducer == "last":
        keep_nulls = pc.ScalarAggregateOptions(skip_nulls=False)
        grouped = rows.group_by("key", use_threads=False)
        found = grouped.aggregate([("value", "last", keep_nulls)])
        return _sorted(found.rename_columns(["key", "value"]))
    if rows["value"].null_count:
        rows = rows.filter(pc.is_valid(rows["value"]))
    if reducer == "sum" and _could_overflow(rows["value"]):
        return _sorted(_sum_exactly(rows))
    found = rows.group_by("key").aggregate([("value", reducer)])
    return _sorted(found.rename_columns(["key", "value"]))


def folded(
    rows: Iterable[tuple[Any, Any]],
    current: dict[Any, Any],
    change: Callable[[Any, Any], Any],
) -> dict[Any, Any]:
    """Every key's value after its rows in order; None where it was removed."""
    values = dict(current)
    touched = {}
    for key, given in rows:
        values[key] = touched[key] = change(values.get(key), given)
    return touched


def _column(table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    if name not in table.column_names:
        found = ", ".join(table.column_names)
        raise ConfigError.illegal("table", found, f"columns with one named '{name}'")
    return to_column(table, name, kind)


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.sort_by("key").select(["key", "value"])


def _could_overflow(values: pa.ChunkedArray) -> bool:
    if not pa.types.is_integer(values.type) or not len(values):
        return False
    bounds = pc.min_max(values).as_py()
    most = max(abs(bounds["min"]), abs(bounds["max"]))
    return bool(most * len(values) > _INT64_MAX)


def _sum_exactly(rows: pa.Table) -> pa.Table:
    pairs = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
    sums = folded(pairs, {}, lambda so_far, given: (so_far or 0) + given)
    for key, value in sums.items():
        if abs(value) > _INT64_MAX:
            raise ConfigError.illegal(
                "value", value, f"sums of 64 bits; key {key!r} has more"
            )
    return pa.table(
        {
            "key": pa.array(sums.keys(), rows["key"].type),
            "value": pa.array(sums.values(), pa.int64()),
        }
    )
