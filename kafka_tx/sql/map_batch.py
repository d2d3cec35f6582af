"""What a batch writes into a map, inside one database transaction."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from kafka_tx.errors import ConfigError
from kafka_tx.sql.map_table import MapTable
from kafka_tx.sql.merge import chunks, merge_rows
from kafka_tx.sql.reducers import (
    Reducer,
    check_reducer,
    folded,
    one_row_each,
    rows_of,
)


class MapBatch:
    """The writes of one attempt; several of them, to the same key too, add up.

    Given by ``map.batch(attempt)``. What is written is seen by ``get`` at once and by
    others after the ``with`` block; an error inside it leaves nothing of the batch.

    Attributes:
        is_counted: Transactional and an earlier attempt has committed: nothing here
            writes, and ``get`` finds the state with the batch in it.
    """

    def __init__(
        self,
        connection: sa.Connection,
        to: MapTable,
        txid: int,
        *,
        is_counted: bool = False,
    ) -> None:
        self.is_counted = is_counted
        self._connection = connection
        self._to = to
        self._txid = txid
        self._wrote = sha256()

    @property
    def digest(self) -> str:
        """What was asked for so far, in short: two writers' batches differ in it."""
        return self._wrote.hexdigest()

    def update(
        self, table: pa.Table | pa.RecordBatch, reducer: Reducer = "sum"
    ) -> None:
        """Count rows in; as ``map.update``."""
        check_reducer(reducer)
        kinds = self._to.key_type, self._to.value_type
        rows = rows_of(table, *kinds, has_values=reducer != "count")
        if not callable(reducer):
            rows = one_row_each(rows, reducer)
        self._note(rows)
        if self.is_counted:
            return
        if callable(reducer):
            self._change(rows, reducer)
            return
        if reducer == "last" and rows["value"].null_count:
            gone = rows.filter(rows["value"].is_null())
            self._remove(gone["key"].to_pylist())
            rows = rows.filter(rows["value"].is_valid())
        if reducer == "count":
            rows = rows_of(rows, *kinds)
        self._merge(rows, "sum" if reducer == "count" else reducer)

    def put(self, table: pa.Table | pa.RecordBatch) -> None:
        """Set keys to values; a key's last row counts, null removes the key."""
        self.update(table, "last")

    def remove(self, keys: Iterable[Any]) -> None:
        """Remove keys; those that are not there are no error."""
        gone = sorted(set(keys))
        self._wrote.update(repr((len(gone), gone[:1], gone[-1:])).encode())
        if not self.is_counted:
            self._remove(gone)

    def _remove(self, gone: list[Any]) -> None:
        if not gone:
            return
        if self._to.is_opaque:  # a replay may need the value again
            nothing = pa.nulls(len(gone), self._to.value_type)
            keys_ = _array("key", gone, self._to.key_type)
            self._merge(pa.table({"key": keys_, "value": nothing}), "last")
            return
        table = self._to.table
        for some in chunks(gone):
            self._connection.execute(sa.delete(table).where(table.c.key.in_(some)))

    def get(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """The values of those keys that are there, with what this batch wrote."""
        return values_of(self._connection, self._to, keys)

    def _note(self, rows: pa.Table) -> None:
        """Cheap, and enough: rows that go to different tasks have different keys."""
        keys, values = rows["key"], rows["value"]
        ends = (keys[0].as_py(), keys[-1].as_py()) if len(rows) else ()
        is_exact = pa.types.is_integer(values.type)  # sums of floats go by their order
        total = pc.sum(pc.cast(values, pa.decimal128(38))).as_py() if is_exact else None
        self._wrote.update(repr((len(rows), ends, total)).encode())

    def _change(self, rows: pa.Table, reducer: Any) -> None:  # noqa: ANN401 - callable
        keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
        current = self.get(dict.fromkeys(keys))
        changed = folded(zip(keys, values, strict=True), current, reducer)
        self._remove([key for key, value in changed.items() if value is None])
        kept = sorted((k, v) for k, v in changed.items() if v is not None)
        keys_ = _array("key", [k for k, _ in kept], self._to.key_type)
        values_ = _array("value", [v for _, v in kept], self._to.value_type)
        self._merge(pa.table({"key": keys_, "value": values_}), "last")

    def _merge(self, rows: pa.Table, merge: str) -> None:
        merge_rows(self._connection, self._to, rows, merge, self._txid)


def values_of(
    connection: sa.Connection, to: MapTable, keys: Iterable[Any]
) -> dict[Any, Any]:
    """The values of those keys that are there."""
    found: dict[Any, Any] = {}
    columns = to.table.c
    for some in chunks(list(keys)):
        rows = connection.execute(
            sa.select(columns.key, columns.value).where(
                columns.key.in_(some), columns.value.is_not(None)
            )
        )
        found.update((key, value) for key, value in rows)
    return found


def revert(connection: sa.Connection, to: MapTable, txid: int) -> None:
    """Take back everything that an earlier attempt of ``txid`` wrote.

    Also what the replay will not touch. Looks at the whole table, once for a replay.
    """
    columns = to.table.c
    ours = columns.txid == txid
    connection.execute(sa.delete(to.table).where(ours, columns.previous.is_(None)))
    connection.execute(
        sa.update(to.table).where(ours).values(value=columns.previous, txid=txid - 1)
    )


def forget_removed(connection: sa.Connection, to: MapTable) -> None:
    """Delete what earlier transactions removed: no replay asks for it any more."""
    connection.execute(sa.delete(to.table).where(to.table.c.value.is_(None)))


def _array(name: str, values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ConfigError(
            f"a {name} does not fit: {error}. The map's {name}s are {kind}",
            option=name,
        ) from None
