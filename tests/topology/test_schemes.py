import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.topology.rows.blocks import to_rows
from kafka_tx.topology.rows.schemes import (
    FunctionScheme,
    KeyValueScheme,
    MetadataScheme,
    RawScheme,
    RecordScheme,
    StringScheme,
)

VALUES = [b"a", None, b"", b"\xff\xfe", "ü".encode()]
KEYS = [b"k", b"dead", None, b"\xff", b""]
BATCH = pa.RecordBatch.from_pydict(
    {
        "key": pa.array(KEYS, pa.binary()),
        "value": pa.array(VALUES, pa.binary()),
        "topic": ["t"] * 5,
        "partition": pa.array([3] * 5, pa.int32()),
        "offset": [10, 11, 12, 15, 16],
        "timestamp": pa.array(
            [n * 1000 for n in range(5)], pa.timestamp("us", tz="UTC")
        ),
        "timestampType": pa.array([0] * 5, pa.int32()),
    }
)


def decoded(scheme, batch=BATCH):
    made = scheme.decode(batch)
    records = None if made.records is None else made.records.to_pylist()
    return to_rows(made.rows), records


def test_the_raw_scheme_keeps_bytes_and_drops_tombstones():
    rows, records = decoded(RawScheme())

    assert rows == [(b"a",), (b"",), (b"\xff\xfe",), ("ü".encode(),)]
    assert records == [0, 2, 3, 4]


def test_the_string_scheme_replaces_what_is_no_utf_8():
    rows, _ = decoded(StringScheme())

    assert rows == [("a",), ("",), ("\ufffd\ufffd",), ("ü",)]


def test_without_tombstones_every_record_is_one_row():
    assert decoded(RawScheme(), BATCH.slice(2)) == (
        [(b"",), (b"\xff\xfe",), ("ü".encode(),)],
        None,
    )


def test_the_key_value_scheme_has_null_for_a_missing_key():
    rows, records = decoded(KeyValueScheme())

    assert rows == [("k", "a"), (None, ""), ("\ufffd", "\ufffd\ufffd"), ("", "ü")]
    assert records == [0, 2, 3, 4]


def test_keys_and_values_may_stay_bytes():
    rows, _ = decoded(KeyValueScheme(text=False))

    assert rows[0] == (b"k", b"a")
    assert KeyValueScheme(text=False).fields.types == (pa.binary(), pa.binary())


def test_metadata_is_that_of_each_rows_record():
    rows, records = decoded(MetadataScheme(RawScheme()))

    assert [row[:4] for row in rows] == [
        (b"a", "t", 3, 10),
        (b"", "t", 3, 12),
        (b"\xff\xfe", "t", 3, 15),
        ("ü".encode(), "t", 3, 16),
    ]
    assert records == [0, 2, 3, 4]


def test_metadata_follows_several_rows_of_one_record():
    dead_letters = RecordScheme(lambda record: [(c,) for c in record.topic * 2], ("c",))

    rows, records = decoded(MetadataScheme(dead_letters), BATCH.slice(0, 2))

    assert [(row[0], row[3]) for row in rows] == [("t", 10)] * 2 + [("t", 11)] * 2
    assert records == [0, 0, 1, 1]
    assert MetadataScheme(dead_letters).fields.types is None


def test_a_record_scheme_makes_no_one_or_several_rows():
    scheme = RecordScheme(
        lambda record: record.value and [(record.offset, n) for n in range(2)],
        "offset bigint, n int",
    )

    assert decoded(scheme) == (
        [(10, 0), (10, 1), (15, 0), (15, 1), (16, 0), (16, 1)],
        [0, 0, 3, 3, 4, 4],
    )


def sizes(batch):
    lengths = pc.binary_length(batch.column("value")).fill_null(-1)
    return pa.RecordBatch.from_arrays([lengths], names=["size"])


def only_large(batch):
    kept = pc.indices_nonzero(pc.greater(pc.binary_length(batch.column("value")), 1))
    return sizes(batch.take(kept)), kept


def test_a_function_scheme_works_on_whole_batches():
    assert decoded(FunctionScheme(sizes, "size int")) == (
        [(1,), (-1,), (0,), (2,), (2,)],
        None,
    )


def test_a_function_scheme_may_say_of_which_record_each_row_is():
    assert decoded(FunctionScheme(only_large, "size int")) == ([(2,), (2,)], [3, 4])


def test_a_function_that_loses_records_without_saying_so_is_refused():
    scheme = FunctionScheme(lambda batch: sizes(batch)[:2], "size int")

    with pytest.raises(ValueError, match="made 2 rows of 5 records"):
        scheme.decode(BATCH)


def test_a_function_that_makes_other_columns_is_refused():
    with pytest.raises(ConfigError, match="the columns size; legal: its declared"):
        FunctionScheme(sizes, "length int").decode(BATCH)


@pytest.mark.parametrize(
    "scheme",
    [
        RawScheme(),
        StringScheme(),
        KeyValueScheme(),
        MetadataScheme(),
        FunctionScheme(sizes, "size int"),
    ],
)
def test_schemes_travel_and_declare_what_they_make(scheme):
    again = pickle.loads(pickle.dumps(scheme))

    made = again.decode(BATCH).rows
    assert made.schema.equals(scheme.fields.schema)


def test_no_records_make_no_rows():
    for scheme in (RawScheme(), KeyValueScheme(), MetadataScheme()):
        assert to_rows(scheme.decode(BATCH.slice(0, 0)).rows) == []
    nothing = RecordScheme(lambda record: None, ("x",))
    assert nothing.decode(BATCH).rows == []
