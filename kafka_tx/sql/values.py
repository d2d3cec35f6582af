"""The values that maps and tables take: the same on each database.

A value that a database cannot hold, or would change, is refused with its column and
row before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from math import isfinite, isinf, isnan
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import exc, types
from sqlalchemy.types import TypeEngine

from kafka_tx.errors import ConfigError
from kafka_tx.sql.mysql import MYSQL

_WITHOUT_NAN = {"sqlite", *MYSQL}
"""SQLite stores NULL instead."""
LONGEST_MYSQL_KEY = 1024
"""Bytes that the index of a map has room for."""

_US_PER_DAY = 86_400_000_000
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Of the years 1 to 9999, which Python and all databases have."""
_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SHOWN = 40


def check_values(rows: pa.Table, dialect: str) -> None:
    """Refuse what the database cannot hold as it is; raises ConfigError."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        check_column(name, column, dialect)


def check_column(name: str, column: pa.ChunkedArray, dialect: str) -> None:
    """As ``check_values``, for one column."""
    kind = column.type
    if _is_text(kind):
        check_text(name, column)
    elif pa.types.is_floating(kind):
        if dialect in _WITHOUT_NAN:
            _check_floats(name, column, dialect)
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        _check_years(name, column)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def check_map(rows: pa.Table, dialect: str) -> None:
    """As ``check_values``, for keys and values of a map, which have no NaN either."""
    if "value" in rows.column_names and pa.types.is_floating(rows["value"].type):
        _check_numbers(rows["key"], rows["value"])
    check_values(rows, dialect)
    if dialect in MYSQL:
        _check_mysql_keys(rows["key"])


def _check_numbers(keys: pa.ChunkedArray, values: pa.ChunkedArray) -> None:
    found = pc.is_nan(values)
    if pc.any(found).as_py():
        row = pc.index(found, pa.scalar(value=True)).as_py()
        shown = f"NaN, for key {_short(keys[row].as_py())}"
        raise _refused("value", row, shown, "maps hold numbers", "Leave such rows out")


def _short(key: Any) -> str:  # noqa: ANN401 - of any map
    return repr(key[:_SHOWN] if isinstance(key, str | bytes) else key)


def check_text(name: str, column: pa.ChunkedArray) -> None:
    """Refuse text that is not UTF-8, or has a zero byte; ``column`` may be binary."""
    try:
        column.cast(pa.large_string()).validate(full=True)
        if not pc.any(pc.match_substring(column, "\0")).as_py():
            return
    except pa.ArrowInvalid:
        pass
    for row, raw in enumerate(column.cast(pa.large_binary()).to_pylist()):
        if raw is not None and (why := _fault(raw)):
            raise _refused(
                name,
                row,
                raw[:_SHOWN],
                f"text is UTF-8 without zero bytes, and this {why}",
                "In the query, make_valid_utf8(…) replaces what is not UTF-8, and"
                " replace(…, char(0), '') a zero byte. If a map is to count Kafka's"
                " keys as they are, make it with key=bytes and give it the column"
                " without string(…)",
            )


def _fault(raw: bytes) -> str:
    try:
        return "has a zero byte" if "\0" in raw.decode() else ""
    except UnicodeDecodeError as error:
        return f"is not UTF-8 at byte {error.start}"


def _check_floats(name: str, column: pa.ChunkedArray, dialect: str) -> None:
    tests: list[tuple[str, Callable[[Any], Any]]] = [("NaN", pc.is_nan)]
    if dialect in MYSQL:
        tests.append(("an infinity", pc.is_inf))
    for what, is_so in tests:
        found = is_so(column)
        if pc.any(found).as_py():
            row = pc.index(found, pa.scalar(value=True)).as_py()
            raise _refused(
                name,
                row,
                what,
                f"{dialect} has no such number",
                f"Write null instead, for example nanvl({name}, null), or leave such"
                " rows out",
            )


def _check_years(name: str, column: pa.ChunkedArray) -> None:
    kind = column.type
    is_days = pa.types.is_date32(kind)
    per_s = 10**3 if pa.types.is_date64(kind) else _PER_S[getattr(kind, "unit", "s")]
    numbers = column.cast(pa.int32() if is_days else pa.int64()).cast(pa.int64())
    first, last = (
        at // _US_PER_DAY if is_days else at * per_s // 10**6
        for at in (_FIRST_US, _LAST_US)
    )
    is_beyond = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    if pc.any(is_beyond).as_py():
        row = pc.index(is_beyond, pa.scalar(value=True)).as_py()
        raise _refused(
            name,
            row,
            f"{numbers[row].as_py()} {'days' if is_days else kind} since 1970",
            "databases have times of the years 1 to 9999",
            "Leave such rows out, or write the number itself",
        )


def check_fits(
    rows: pa.Table, columns: Mapping[str, TypeEngine[Any]], dialect: str
) -> None:
    """Refuse what the columns of a table, made by others, would round or cut.

    Databases themselves refuse numbers and texts that are too large, but cut blanks.
    """
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name not in columns:
            continue
        kept = _as_kept(column, columns[name], dialect)
        if kept is column:
            continue
        changed = pc.fill_null(pc.not_equal(column, kept), False)
        if pa.types.is_floating(column.type):  # NaN is kept, and no NaN is equal
            changed = pc.and_not(changed, pc.fill_null(pc.is_nan(column), False))
        if pc.any(changed).as_py():
            row = pc.index(changed, pa.scalar(value=True)).as_py()
            value, why = column[row].as_py(), f"the column is {columns[name]}"
            shown = _short(value) if isinstance(value, str | bytes) else f"{value}"
            by_kind: dict[type, str] = {str: "use rtrim", bytes: "use rpad"}
            how = by_kind.get(type(value), "round")
            advice = f"Change the type of the column, or {how} in the query"
            raise _refused(name, row, shown, f"{why} and would change it", advice)


def _as_kept(
    column: pa.ChunkedArray, kind: TypeEngine[Any], dialect: str
) -> pa.ChunkedArray:
    """The values that a column makes of these; the same where the database refuses."""
    if dialect == "sqlite":
        return _as_kept_by_sqlite(column, kind)
    if pa.types.is_timestamp(column.type):
        return _times_as_kept(column, kind, dialect)
    if _is_bytes(column.type) or _is_text(column.type):
        return _text_as_kept(column, kind, dialect)
    if isinstance(kind, types.Integer):
        return _rounded(column, 0)
    if isinstance(kind, types.Float):
        # MySQL's FLOAT has 32 bits; elsewhere it may have 64
        is_short = dialect in MYSQL and isinstance(kind, types.FLOAT)
        is_short = is_short or isinstance(kind, types.REAL)
        column = _as_floats(column, pa.float32() if is_short else pa.float64())
    if isinstance(kind, types.Float | types.Numeric) and kind.scale is not None:
        return _rounded(column, kind.scale)
    return column


def _as_kept_by_sqlite(
    column: pa.ChunkedArray, kind: TypeEngine[Any]
) -> pa.ChunkedArray:
    """It keeps floats and times in columns of any type."""
    given = column.type
    if pa.types.is_integer(given) and isinstance(kind, types.Float):
        return _as_floats(column, pa.float64())
    if not pa.types.is_decimal(given) or isinstance(kind, types.String):
        return column
    texts = [None if v is None else _15_DIGITS.plus(v) for v in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.decimal256(76, given.scale))])


def _times_as_kept(
    column: pa.ChunkedArray, kind: TypeEngine[Any], dialect: str
) -> pa.ChunkedArray:
    if isinstance(kind, types.Date):
        return column.cast(pa.date32(), safe=False).cast(column.type, safe=False)
    if isinstance(kind, types.Time):  # the same time of the first day
        of_day = pc.subtract(column, pc.floor_temporal(column, unit="day"))
        return of_day.cast(pa.int64()).cast(column.type)
    digits = None
    if isinstance(kind, types.DateTime) and dialect in MYSQL:
        digits = getattr(kind, "fsp", None) or 0
    elif isinstance(kind, types.DateTime) and dialect == "postgresql":
        digits = getattr(kind, "precision", None)
    if digits is None:
        return column
    return pc.floor_temporal(column, 10 ** (6 - digits), unit="microsecond")


def _text_as_kept(
    column: pa.ChunkedArray, kind: TypeEngine[Any], dialect: str
) -> pa.ChunkedArray:
    """Without blanks that databases cut, or with zero bytes that they add."""
    if _is_bytes(column.type):
        if not isinstance(kind, types.BINARY) or not kind.length:
            return column
        values = [
            v if v is None else v.ljust(kind.length, b"\0") for v in column.to_pylist()
        ]
        return pa.chunked_array([pa.array(values, column.type)])
    if isinstance(kind, types.CHAR) and dialect in MYSQL:
        return pc.utf8_rtrim(column, " ")
    limit, length = getattr(kind, "length", None), pc.utf8_length
    if dialect in MYSQL and type(kind).__name__ in _MYSQL_TEXTS:
        limit, length = _MYSQL_TEXTS[type(kind).__name__], pc.binary_length
    if not limit:
        return column
    is_cut = pc.greater(length(column), limit)
    return pc.if_else(is_cut, pc.utf8_rtrim(column, " "), column)


_MYSQL_TEXTS = {"TINYTEXT": 2**8 - 1, "TEXT": 2**16 - 1, "MEDIUMTEXT": 2**24 - 1}
"""Bytes that they hold; they have no length in characters."""


def _as_floats(column: pa.ChunkedArray, floats: pa.DataType) -> pa.ChunkedArray:
    given = column.type
    if pa.types.is_floating(given):
        if given.bit_width <= floats.bit_width:
            return column
        return column.cast(floats, safe=False).cast(given)
    if pa.types.is_integer(given):
        return column.cast(floats, safe=False).cast(pa.decimal128(20, 0))
    if not pa.types.is_decimal(given):
        return column
    digits = _6_DIGITS if floats == pa.float32() else _15_DIGITS
    values = column.to_pylist()
    near = pa.array([None if v is None else float(v) for v in values], floats)
    kept = [
        v if v is None or v == Decimal(number) else digits.plus(v)
        for v, number in zip(values, near.to_pylist(), strict=True)
    ]
    return pa.chunked_array([pa.array(kept, pa.decimal256(76, given.scale))])


def _rounded(column: pa.ChunkedArray, scale: int) -> pa.ChunkedArray:
    given = column.type
    if pa.types.is_decimal(given) and scale < given.scale:
        return pc.round(column, scale)
    if not pa.types.is_floating(given):
        return column
    # Arrow's own `round` changes some numbers of few digits
    rounded = [None if v is None else round(v, scale) for v in column.to_pylist()]
    return pa.chunked_array([pa.array(rounded, given)])


_6_DIGITS, _15_DIGITS = Context(prec=6), Context(prec=15)
"""What a float and a double keep of any decimal. In SQLite each column that is not of
text has doubles."""


def _check_mysql_keys(keys: pa.ChunkedArray) -> None:
    if pa.types.is_integer(keys.type):
        return
    too_long = pc.greater(pc.binary_length(keys), LONGEST_MYSQL_KEY)
    if pc.any(too_long).as_py():
        row = pc.index(too_long, pa.scalar(value=True)).as_py()
        size = pc.binary_length(keys)[row].as_py()
        what = f"{_short(keys[row].as_py())}… ({size} bytes)"
        raise _key_too_long(row, what, f"MySQL's have up to {LONGEST_MYSQL_KEY} bytes")


_KEEPS_NUMBERS = 2.0**970
"""A smaller number added to any finite one leaves it finite."""


def could_leave_numbers(values: pa.ChunkedArray) -> bool:
    """Whether a sum with one of these could be NaN or leave the range of floats."""
    if not pa.types.is_floating(values.type):
        return False
    bounds = pc.min_max(values).as_py()
    return any(abs(at or 0.0) >= _KEEPS_NUMBERS for at in bounds.values())


def check_sums(rows: pa.Table, stored: Mapping[Any, float]) -> None:
    """Refuse sums that databases cannot hold, or make NaN or null."""
    keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
    for key, given in zip(keys, values, strict=True):
        before = stored.get(key, 0)
        if not _is_stored_true(before + given, before, given):
            what = f"{given} for key {_short(key)}, which has {before}"
            why = f"their sum is {before + given}"
            if isinstance(given, int):
                why += ", which has more than 64 bits"
            raise _refused("value", None, what, why, "Leave such rows out")


def _is_stored_true(total: float, before: float, given: float) -> bool:
    """Whether the column can hold the sum, and it is no NaN or overflow."""
    if isinstance(total, int):
        return -(2**63) <= total < 2**63
    has_grown = isinf(total) and isfinite(before) and isfinite(given)
    return not (isnan(total) or has_grown)


def check_key_lengths(rows: pa.Table, error: exc.DBAPIError) -> None:
    """Name the longest key, if the database refused one for its length."""
    if getattr(error.orig, "sqlstate", "") != _TOO_LONG:
        return
    lengths = pc.binary_length(rows["key"])
    row = pc.index(lengths, pc.max(lengths)).as_py()
    what = f"{_short(rows['key'][row].as_py())}… ({lengths[row].as_py()} bytes)"
    limit = "PostgreSQL's index takes about 2,700 bytes of what it cannot compress"
    raise _key_too_long(None, what, limit) from None


_TOO_LONG = "54000"
"""PostgreSQL: a limit of the program."""


def _key_too_long(row: int | None, what: str, limit: str) -> ConfigError:
    advice = "Use a shorter key, such as sha2(key, 256), for all rows of a new map"
    return _refused("key", row, what, f"keys are indexed, and {limit}", advice)


def to_column(table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    """A column in the type of a map; raises ConfigError.

    Nothing is cast that Spark would write differently: its users compare with
    ``string(…)``.
    """
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_date(column.type):
        _check_years(name, column)
    if pa.types.is_string(kind) and _is_bytes(column.type):
        check_text(name, column)
    try:
        cast = column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(
            f"column '{name}' is {column.type}, the map holds {kind}, and it cannot be"
            f" cast: {error}",
            option=name,
            value=str(column.type),
        ) from None
    if _is_written_otherwise(column.type, kind, cast):
        first = next((one for one in cast.to_pylist() if one is not None), None)
        raise ConfigError(
            f"column '{name}' is {column.type}, and the map holds {kind}. Spark writes"
            f" such values otherwise than Arrow, which makes {first!r} of the first."
            f" Cast in the query, for example string({name}). If the map has values"
            " from before that were cast here, write them in their form",
            option=name,
            value=str(column.type),
        )
    return cast


def _is_written_otherwise(
    given: pa.DataType, kind: pa.DataType, cast: pa.ChunkedArray
) -> bool:
    if given == kind or pa.types.is_null(given):
        return False
    is_text = pa.types.is_string(kind)
    if pa.types.is_temporal(given):
        return not (is_text and pa.types.is_date(given))
    if is_text and pa.types.is_decimal(given):  # 1E-7
        return bool(pc.any(pc.match_substring(cast, "E")).as_py())
    return bool(is_text and pa.types.is_floating(given))


def array_of(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python's values in the type of a map; raises ConfigError."""
    try:
        if pa.types.is_integer(kind) and any(isinstance(v, float) for v in values):
            return pa.array(values, pa.float64()).cast(kind)  # refuses 1.5
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeError, OverflowError) as error:
        raise ConfigError(
            f"a {name} does not fit: {error}. The map's {name}s are {kind}", option=name
        ) from None


def _refused(
    column: str, row: int | None, shown: object, why: str, advice: str
) -> ConfigError:
    where = "" if row is None else f", row {row} (from 0)"
    what = shown if isinstance(shown, str) else repr(shown)
    return ConfigError(
        f"column '{column}'{where} is {what}: {why}. Nothing was written. {advice}",
        option=column,
        value=shown,
    )
