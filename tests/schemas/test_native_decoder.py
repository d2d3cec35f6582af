"""The decoder in C beside the one in Python, and what it is not to be given."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_tx.native.library import load
from kafka_tx.schemas.avro import parse
from kafka_tx.schemas.columns import Slot, column_of, layout
from kafka_tx.schemas.decoding import Decoder
from kafka_tx.schemas.decoding import decode as python_decoder
from kafka_tx.schemas.defaults import number
from kafka_tx.schemas.program import Op, Program
from kafka_tx.schemas.resolution import resolve
from tests.schemas.evolving import cases, encoded

_ODD = st.one_of(
    st.binary(max_size=24),
    st.integers(-(2**63), 2**63 - 1).map(number),
    st.sampled_from([b"\xff" * 9 + b"\1", b"\x80" * 12, b"\xed\xa0\x80", b"\1\2\2"]),
)
"""What is likely to be a length, a count, a text or a number that is none."""


@given(cases(), st.data())
@settings(max_examples=150)
def test_both_decoders_say_the_same_of_any_bytes(
    native: Decoder, case: Any, data: st.DataObject
) -> None:
    writer, reader = (parse(json.dumps(each)) for each in (case.writer, case.reader))
    column = column_of(reader)
    programs = [resolve(writer, column), resolve(reader, column)]
    rows: list[bytes | None] = [encoded(case.writer, value) for value in case.values]
    for each in list(rows):
        cut = data.draw(st.integers(0, len(each or b"")))
        rows.append((each or b"")[:cut] + data.draw(_ODD) + (each or b"")[cut:])
    rows += [*data.draw(st.lists(_ODD, max_size=5)), None]
    chosen = [data.draw(st.integers(-1, 1)) for _ in rows[:-1]]
    asked = (
        pa.array([b"", *rows], pa.binary())[1:],
        np.array([data.draw(st.integers(0, min(2, len(r or b"")))) for r in rows], "i"),
        np.array([*chosen, -1], np.int32),
    )

    found = native(*asked, programs, column)

    found.column.validate(full=True)
    wanted = python_decoder(*asked, programs, column)
    assert found.failures == wanted.failures
    assert _plain(found.column) == _plain(wanted.column)


def _plain(column: pa.Array) -> str:
    """Also times beyond those of Python, and numbers that are none."""
    return str(column)


def test_a_long_column_of_all_kinds_is_the_same(native: Decoder) -> None:
    """Beyond the room that a slot has at first, with nulls that begin late."""
    record = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "flag", "type": ["null", "boolean"]},
            {"name": "text", "type": ["null", "string"]},
            {"name": "numbers", "type": {"type": "array", "items": ["null", "long"]}},
            {"name": "names", "type": {"type": "map", "values": "bytes"}},
        ],
    }
    values = [
        {
            "flag": None if n % 7 == 6 and n > 300 else n % 3 == 0,
            "text": None if n % 500 == 499 else "ä" * (n % 40),
            "numbers": [None if n > 900 else i for i in range(n % 4)],
            "names": {str(i): b"v" * i for i in range(n % 3)},
        }
        for n in range(1_000)
    ]
    schema = parse(json.dumps(record))
    column = column_of(schema)
    program = resolve(schema, column)
    rows = [encoded(record, value) for value in values]
    asked = (
        pa.array([row + b"!" * (n % 11 == 0) for n, row in enumerate(rows)]),
        np.zeros(len(rows), np.int32),
        np.zeros(len(rows), np.int32),
    )

    found = native(*asked, [program], column)

    found.column.validate(full=True)
    wanted = python_decoder(*asked, [program], column)
    assert found.failures == wanted.failures
    assert found.column.equals(wanted.column)


# --- what no decoder is to be given ---------------------------------------------------

_LONG = column_of(parse('"long"'))


def _words(*words: int) -> bytes:
    return array("i", words).tobytes()


_MAP = column_of(parse('{"type": "map", "values": "null"}'))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (_LONG, ()),
        (_LONG, (Op.SKIP_LONG,)),
        (_LONG, (Op.END, Op.END)),
        (_LONG, (-1, Op.END)),
        (_LONG, (27, Op.END)),
        (_LONG, (Op.LONG, 1, 64, 1, Op.END)),
        (_LONG, (Op.LONG, -1, 64, 1, Op.END)),
        (_LONG, (Op.LONG, 0, 64, 0, Op.END)),
        (_LONG, (Op.LONG, 0, 65, 1, Op.END)),
        (_LONG, (Op.TEXT, 0, Op.END)),
        (_LONG, (Op.LONG, 0, 64)),
        (_LONG, (Op.JUMP, 0, Op.END)),
        (_LONG, (Op.JUMP, 1, Op.END)),
        (_LONG, (Op.JUMP, 3, Op.END)),
        (_LONG, (Op.UNION, 2**31 - 1, 3, Op.END)),
        (_LONG, (Op.UNION, 0, Op.END)),
        (_LONG, (Op.ENUM, 0, 1, 0, 0, Op.END)),
        (_LONG, (Op.DEFAULT, 0, 99, 4, Op.END)),
        (_LONG, (Op.DEFAULT, -1, 1, 4, Op.END)),
        (_LONG, (Op.SKIP_FIXED, -1, Op.END)),
        (_LONG, (*(Op.SKIP_BLOCKS, 1500, 1, 0) * 300, *([Op.SKIP_LONG] * 300), Op.END)),
        (_MAP, (Op.ARRAY, 0, 4, 1, Op.END)),
        (_LONG, (Op.SKIP_LONG, Op.END)),
        (_LONG, (Op.LONG, 0, 64, 1, Op.LONG, 0, 64, 1, Op.END)),
        (_MAP, (Op.MAP, 0, 3, Op.END)),
    ],
)
def test_a_program_that_is_none_is_refused(
    native: Decoder, column: Slot, words: Sequence[int]
) -> None:
    """The last three leave slots of different lengths."""
    program = Program(_words(*words), b"ab", ())
    rows = pa.array([b"\x02\x02a\x00", b"\x02\x02", b"\x02"], pa.binary())
    with pytest.raises(ValueError, match="decode_avro: the program and its column"):
        native(rows, np.zeros(3, np.int32), np.zeros(3, np.int32), [program], column)


@pytest.mark.parametrize(
    "layout_",
    [(), (3,), (12, 0), (-1, 0), (10, 0), (10, 1), (11, 2, 3, 0, 3, 0), (9, 2, 3, 0)],
)
def test_a_layout_that_is_none_is_refused(
    native: Decoder, layout_: Sequence[int]
) -> None:
    extension, _ = load()
    assert extension is not None
    values = pa.array([], pa.binary()).__arrow_c_array__()
    nothing = np.zeros(0, np.int32)
    with pytest.raises(ValueError, match="decode_avro"):
        extension.decode_avro(*values, nothing, nothing, (), _words(*layout_))


@pytest.mark.parametrize(
    ("values", "begins", "chosen"),
    [
        (pa.array(["text"]), [0], [0]),
        (pa.array([1]), [0], [0]),
        (pa.array([b"\2"]), [0, 0], [0]),
        (pa.array([b"\2"]), [0], []),
        (pa.array([b"\2"]), [2], [0]),
        (pa.array([b"\2"]), [-1], [0]),
        (pa.array([b"\2"]), [0], [1]),
        (pa.array([None], pa.binary()), [0], [0]),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    native: Decoder, values: pa.Array, begins: list[int], chosen: list[int]
) -> None:
    program = resolve(parse('"long"'), _LONG)
    with pytest.raises(ValueError, match="decode_avro"):
        native(
            values,
            np.array(begins, np.int32),
            np.array(chosen, np.int32),
            [program],
            _LONG,
        )
    assert layout(_LONG) == [3, 0]
