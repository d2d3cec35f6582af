"""Maps in a SQL database whose every batch counts once.

Source: Storm, TransactionalMap, OpaqueMap, NonTransactionalMap and SnapshottableMap
(deviates: the txid belongs to the whole batch, not to each key; an opaque replay takes
back every key of the earlier attempt, not only those it writes again).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.awake import kept_awake
from kafka_tx.sql.database import Database
from kafka_tx.sql.dialects import chunks
from kafka_tx.sql.map_table import MapTable, map_table
from kafka_tx.sql.merge import merge_rows
from kafka_tx.sql.progress import Progress, check_same, digest_of
from kafka_tx.sql.reducers import Reducer, check_reducer, folded, one_row_each, rows_of
from kafka_tx.sql.values import (
    array_of,
    check_key_lengths,
    check_map,
    check_sums,
    check_text,
    could_leave_numbers,
)

V = TypeVar("V")

_NO_WRITE = digest_of(sha256().hexdigest(), 0.0)
"""The digest of a batch without a call that writes."""


@dataclass(frozen=True)
class TransactionalValue(Generic[V]):
    """A value of a ``TransactionalMap``, and the last txid that is counted in it."""

    value: V | None = None
    txid: int = 0


@dataclass(frozen=True)
class OpaqueValue(Generic[V]):
    """A value of an ``OpaqueMap``, and the transaction that wrote it.

    Attributes:
        value: None: it was removed.
        previous: The value before ``txid``, from which a replay starts; None: there was
            none.
        txid: The last one that is counted in ``value``. If a replay does not write a
            key that an earlier attempt wrote, the txid before the replayed one, and
            ``value`` is ``previous`` again.
        attempt_id: Of the attempt that wrote, if ``txid`` is the map's last; else 0.
    """

    value: V | None = None
    previous: V | None = None
    txid: int = 0
    attempt_id: int = 0


class MapBatch:
    """The writes of one attempt; several of them, to the same key too, add up.

    Given by ``map.batch(attempt)``. ``get`` reads writes at once, others after the
    ``with`` block; an error inside it leaves nothing of the batch.

    Attributes:
        is_counted: Transactional and an earlier attempt has committed: nothing here
            writes, and ``get`` finds the state with the batch in it.
        stored: The digest that the same attempt has stored before; else empty.
    """

    def __init__(
        self,
        connection: sa.Connection,
        to: MapTable,
        txid: int,
        *,
        is_counted: bool = False,
        stored: str = "",
    ) -> None:
        self.is_counted = is_counted
        self.stored = stored
        self._connection = connection
        self._to = to
        self._txid = txid
        self._dialect = connection.dialect.name
        self._wrote = sha256()
        self._floats = 0.0

    @property
    def value_type(self) -> pa.DataType:
        """Of the map."""
        return self._to.value_type

    @property
    def digest(self) -> str:
        """A digest of all writes so far, different for two writers' batches."""
        return digest_of(self._wrote.hexdigest(), self._floats)

    def update(
        self, table: pa.Table | pa.RecordBatch, reducer: Reducer = "sum"
    ) -> None:
        """Count rows in; as ``map.update``."""
        check_reducer(reducer, self.value_type)
        kinds = self._to.key_type, self._to.value_type
        rows = rows_of(table, *kinds, has_values=reducer != "count")
        check_map(rows, self._dialect)
        if not callable(reducer):
            rows = one_row_each(rows, reducer)
        self._add_to_digest(rows)
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
        gone = sorted(_as_keys(keys, self._to))
        self._hash(gone=array_of("key", gone, self._to.key_type))
        if not self.is_counted:
            self._remove(gone)

    def _remove(self, gone: list[Any]) -> None:
        if not gone:
            return
        if self._to.is_opaque:  # a replay may need the value again
            nothing = pa.nulls(len(gone), self._to.value_type)
            keys_ = array_of("key", gone, self._to.key_type)
            self._merge(pa.table({"key": keys_, "value": nothing}), "last")
            return
        table = self._to.table
        for some in chunks(gone):
            self._connection.execute(sa.delete(table).where(table.c.key.in_(some)))

    def get(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """The values of those keys that are there, with what this batch wrote."""
        return values_of(self._connection, self._to, keys)

    def _add_to_digest(self, rows: pa.Table) -> None:
        """Add these rows, in any order, to the digest of all writes.

        A second try that sums floats in another order finds other last digits, and of
        a sum that cancels (1e9 + 0.1 - 1e9) only these. So floats are added up, each by
        its place and 1 + sign · log(1 + size / 1e6): ``check_same`` passes over less
        than 1e-3, and over what comes behind eight digits; over more for many floats.
        """
        rows = rows.sort_by([("key", "ascending"), ("value", "ascending")])
        values = rows["value"].drop_null()
        self._hash(keys=rows["key"], has_none=pc.is_null(rows["value"]))
        if not pa.types.is_floating(values.type):
            self._hash(values=values)
            return
        steps = pc.cumulative_sum(pa.repeat(0.6180339887498949, len(values)))
        places = pc.add(pc.subtract(steps, pc.floor(steps)), 1.0)
        signs = pc.if_else(pc.less(values, 0.0), 1.618, 1.0)
        sizes = pc.log1p(pc.divide(pc.abs(values), 1e6))
        sizes = pc.min_element_wise(sizes, 999.0)  # of infinity, too
        signed = pc.add(pc.multiply(sizes, signs), 1.0)
        all_ = pc.sum(pc.multiply(signed, places))
        self._floats += all_.as_py() or 0.0

    def _hash(self, **columns: pa.Array | pa.ChunkedArray) -> None:
        table, written = pa.table(columns).combine_chunks(), pa.BufferOutputStream()
        with pa.ipc.new_stream(written, table.schema) as stream:
            stream.write_table(table)
        self._wrote.update(written.getvalue())

    def _change(self, rows: pa.Table, reducer: Any) -> None:  # noqa: ANN401 - callable
        keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
        current = self.get(dict.fromkeys(keys))
        changed = folded(zip(keys, values, strict=True), current, reducer)
        self._remove([key for key, value in changed.items() if value is None])
        kept = sorted((k, v) for k, v in changed.items() if v is not None)
        keys_ = array_of("key", [k for k, _ in kept], self._to.key_type)
        values_ = array_of("value", [v for _, v in kept], self._to.value_type)
        self._merge(pa.table({"key": keys_, "value": values_}), "last")

    def _merge(self, rows: pa.Table, merge: str) -> None:
        check_map(rows, self._dialect)
        if merge == "sum" and could_leave_numbers(rows["value"]):
            check_sums(rows, self.get(rows["key"].to_pylist()))
        try:
            merge_rows(self._connection, self._to, rows, merge, self._txid)
        except sa.exc.DBAPIError as error:
            check_key_lengths(rows, error)
            if merge == "sum":  # in this transaction nothing can be read any more
                with self._connection.engine.connect() as other:
                    keys = rows["key"].to_pylist()
                    check_sums(rows, values_of(other, self._to, keys))
            raise


def values_of(
    connection: sa.Connection, to: MapTable, keys: Iterable[Any]
) -> dict[Any, Any]:
    """The values of those keys that are there; raises ConfigError for illegal keys."""
    found: dict[Any, Any] = {}
    columns = to.table.c
    for some in chunks(_as_keys(keys, to)):
        rows = connection.execute(
            sa.select(columns.key, columns.value).where(
                columns.key.in_(some), columns.value.is_not(None)
            )
        )
        found.update((key, value) for key, value in rows)
    return found


def _as_keys(keys: Iterable[Any], to: MapTable) -> list[Any]:
    """Each once, as the map holds it; raises ConfigError for keys of other types."""
    given = list(dict.fromkeys(keys))
    found = array_of("key", given, to.key_type)
    if pa.types.is_string(to.key_type):
        check_text("key", pa.chunked_array([found]))
    held: list[Any] = found.to_pylist()
    for key, asked in zip(held, given, strict=True):
        if key != asked:  # Arrow turns bytes into text, and text into bytes
            raise ConfigError.illegal("key", asked, f"keys of type {to.key_type}")
    return held


def revert(connection: sa.Connection, to: MapTable, txid: int) -> None:
    """Undo all writes of an earlier attempt of ``txid``.

    Also keys that the replay will not write. Reads the whole table, once for a replay.
    """
    columns = to.table.c
    ours = columns.txid == txid
    connection.execute(sa.delete(to.table).where(ours, columns.previous.is_(None)))
    connection.execute(
        sa.update(to.table).where(ours).values(value=columns.previous, txid=txid - 1)
    )


def forget_removed(connection: sa.Connection, to: MapTable) -> None:
    """Delete rows that earlier transactions removed: no replay needs them."""
    connection.execute(sa.delete(to.table).where(to.table.c.value.is_(None)))


class NonTransactionalMap:
    """A map that counts a replay again: for tests, caches and idempotent reducers.

    One table with the columns ``key`` and ``value``, made on first use. An object can
    be pickled; each process opens connections of its own. Threads may share one.

    Args:
        url: Any SQLAlchemy URL, ``sqlite:///file`` or
            ``postgresql://user:password@host/database``.
        name: Of the table.
        key: ``str``, ``int`` or ``bytes``.
        value: ``int`` (64 bits), ``float``, ``str`` or ``bytes``.

    Raises:
        ConfigError: An argument is not legal.
    """

    kind: ClassVar[str] = "plain map"

    def __init__(
        self, url: str, name: str, *, key: type = str, value: type = int
    ) -> None:
        self._given = (url, name, key, value)
        self._to = map_table(name, self.kind, key, value)
        self._database = Database(url, option="url")
        self._progress = Progress(
            self._to.metadata,
            name,
            self.kind,
            is_opaque=self._to.is_opaque,
            address=self._database.url,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._database.url!r}, {self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        url, name, key, value = self._given
        return (partial(type(self), url, name, key=key, value=value), ())

    @property
    def key_type(self) -> type:
        """``str``, ``int`` or ``bytes``."""
        return self._given[2]

    @property
    def value_type(self) -> pa.DataType:
        """Arrow's type of the values."""
        return self._to.value_type

    @property
    def name(self) -> str:
        """Of the map and its table."""
        return self._to.table.name

    @property
    def address(self) -> tuple[str, str]:
        """Which map it is: its database, without the password, and its name."""
        return self._database.url, str(self.name)

    def update(
        self,
        attempt: TransactionAttempt,
        table: pa.Table | pa.RecordBatch,
        reducer: Reducer = "sum",
    ) -> bool:
        """Count a whole batch, in one database transaction with its txid.

        Several updates of one batch belong into ``with map.batch(attempt)``: a second
        call for the same txid is a replay.

        Args:
            attempt: Of the batch.
            table: Columns ``key`` and ``value`` (``count`` needs no values), a key any
                number of times.
            reducer: ``sum``, ``count`` (rows), ``max``, ``min``: null values are left
                out; ``last``: a null value removes the key; or a function (value so far
                or None, row's value) → new value or None, called row by row.

        Returns:
            False if the txid was counted already, so that nothing was written; also if
            an earlier try of this very call did it and its answer was lost.

        Raises:
            OutOfOrderError: A later txid is stored.
            ReplayDiffersError: The same attempt has given other rows already: the map
                has two writers. A replay notices it within one process. Of n floats,
                one may differ by about 0.001 or n / 10,000 unseen (above a million by
                n * 1e-9 of its size): a sum in another order differs, too.
            FencedError: A newer owner has written; opaque: or a later attempt.
            ConfigError: Rows or reducer do not fit, a value or sum is none that all
                databases hold, or the name is of another kind.
            StateGivenUpError: The database did not answer or was locked for as long as
                it is tried again (``retry_for_ms`` of the URL). Whether the batch
                arrived is not known; the same attempt may try again.
            StateCorruptedError: The file is damaged or no database.
            StateError: The database refuses: rights, path.
        """
        return self._whole(attempt, lambda batch: batch.update(table, reducer))

    def remove(self, attempt: TransactionAttempt, keys: Iterable[Any]) -> bool:
        """Remove keys, as a batch of its own; a replay can undo it. As ``update``."""
        gone = list(keys)
        return self._whole(attempt, lambda batch: batch.remove(gone))

    @contextmanager
    def batch(self, attempt: TransactionAttempt) -> Iterator[MapBatch]:
        """Several writes of one batch, in one database transaction with its txid.

        The block may take its time; a process that is frozen in it loses the
        transaction after a minute (PostgreSQL, MariaDB). Raises: as ``update``.
        """
        entering = self._database.retried(lambda: self._entering(attempt))
        with entering as (connection, batch):
            with kept_awake(connection):
                yield batch
            self._left(connection, batch, attempt)
        self._progress.left(attempt, batch.stored or batch.digest)

    def get(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """The values of those keys that are there, as last committed.

        Raises:
            ConfigError: A key is not of the map's type.
            StateGivenUpError: The database did not answer or was locked for too long.
            StateError: The database refuses.
        """
        with self._reading() as connection:
            return values_of(connection, self._to, keys)

    def to_arrow(self) -> pa.Table:
        """All of it: columns ``key`` (ascending) and ``value``; raises as ``get``."""
        columns = self._to.table.c
        query = sa.select(columns.key, columns.value).where(columns.value.is_not(None))
        with self._reading() as connection:
            rows = connection.execute(query.order_by(columns.key)).all()
        keys, values = zip(*rows, strict=True) if rows else ((), ())
        return pa.table(
            {
                "key": pa.array(keys, self._to.key_type),
                "value": pa.array(values, self._to.value_type),
            }
        )

    def close(self) -> None:
        """Release connections. Calling it twice is harmless; a later call reopens."""
        self._database.close()

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        database, tables = self._database, self._to.metadata
        with database.retried(lambda: database.reading(tables)) as connection:
            self._progress.check_name(connection)
            yield connection

    @contextmanager
    def _entering(
        self, attempt: TransactionAttempt
    ) -> Iterator[tuple[sa.Connection, MapBatch]]:
        with self._database.writing(self._to.metadata) as connection:
            yield connection, self._entered(connection, attempt)

    def _whole(
        self, attempt: TransactionAttempt, write: Callable[[MapBatch], None]
    ) -> bool:
        """Write a whole batch in one try: a second try would count it twice."""
        with self.batch(attempt) as batch:
            write(batch)
        return not batch.is_counted

    def _entered(
        self, connection: sa.Connection, attempt: TransactionAttempt
    ) -> MapBatch:
        self._progress.check_name(connection)
        return MapBatch(connection, self._to, attempt.txid)

    def _left(
        self, connection: sa.Connection, batch: MapBatch, attempt: TransactionAttempt
    ) -> None:
        """Store nothing about the batch."""


class TransactionalMap(NonTransactionalMap):
    """A map for batches whose replay holds the same records: a replay is skipped.

    Beside ``key`` and ``value`` each row tells its last ``txid``; the last attempt of
    the whole map is a row of ``kafka_tx_progress``. One map has one writer: tasks that
    write side by side need a map (a name) each.
    """

    kind: ClassVar[str] = "transactional map"

    def entries(self, keys: Iterable[Any]) -> dict[Any, TransactionalValue[Any]]:
        """The keys' values with the last txid counted in each; raises as ``get``."""
        with self._reading() as connection:
            return {
                row["key"]: TransactionalValue(row["value"], row["txid"])
                for row in self._rows(connection, keys)
            }

    def last_attempt(self) -> TransactionAttempt:
        """The attempt that wrote last; 0:0 before the first.

        Raises: as ``get``, and ConfigError if the name is of another kind.
        """
        with self._reading() as connection:
            return self._progress.stored(connection)

    def _rows(
        self, connection: sa.Connection, keys: Iterable[Any]
    ) -> Iterator[sa.RowMapping]:
        query = sa.select(self._to.table)
        for some in chunks(_as_keys(keys, self._to)):
            found = query.where(self._to.table.c.key.in_(some))
            yield from connection.execute(found).mappings()

    def _entered(
        self, connection: sa.Connection, attempt: TransactionAttempt
    ) -> MapBatch:
        is_counted, stored = self._progress.enter(connection, attempt)
        given = connection, self._to, attempt.txid
        return MapBatch(*given, is_counted=is_counted, stored=stored)

    def _whole(
        self, attempt: TransactionAttempt, write: Callable[[MapBatch], None]
    ) -> bool:
        in_one_try = super()._whole
        return self._database.retry_policy(lambda: in_one_try(attempt, write))

    def _left(
        self, connection: sa.Connection, batch: MapBatch, attempt: TransactionAttempt
    ) -> None:
        if batch.is_counted and batch.digest == _NO_WRITE:
            return  # the block has seen that it is counted
        if batch.stored:
            check_same(self.name, attempt, batch.stored, batch.digest)
        elif not batch.is_counted:
            self._progress.remember(connection, batch.digest)


class OpaqueMap(TransactionalMap):
    """A map for batches whose replay may hold other records.

    Each row also keeps ``previous``, its value before the last txid. A replay first
    takes back all that the earlier attempt wrote. A replay without rows must do that
    too: open a batch for it.
    """

    kind: ClassVar[str] = "opaque map"

    def entries(  # type: ignore[override]
        self, keys: Iterable[Any]
    ) -> dict[Any, OpaqueValue[Any]]:
        """The keys' values, their former values, and the last transaction of each.

        A removed key is there until the next transaction, with the value None. Raises:
        as ``get``.
        """
        with self._reading() as connection:
            last = self._progress.stored(connection)
            return {
                row["key"]: OpaqueValue(
                    row["value"],
                    row["previous"],
                    row["txid"],
                    last.attempt_id if row["txid"] == last.txid else 0,
                )
                for row in self._rows(connection, keys)
            }

    def _entered(
        self, connection: sa.Connection, attempt: TransactionAttempt
    ) -> MapBatch:
        is_replay, stored = self._progress.enter(connection, attempt)
        if is_replay:
            revert(connection, self._to, attempt.txid)
        else:
            forget_removed(connection, self._to)
        return MapBatch(connection, self._to, attempt.txid, stored=stored)
