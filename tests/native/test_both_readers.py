"""What a reader promises, asked of both: they are told apart by speed alone."""

from __future__ import annotations

import pickle
import time

import pyarrow as pa
import pytest

from integration.promptness import TRIES, promptly
from kafka_tx.record_schema import arrow_schema
from tests.native.asking import for_consumer, range_of, values_of

# --- records ------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "end"), [(0, 5), (0, 1), (4, 5), (2, 4)], ids=str)
def test_exactly_the_range_is_read(reader, topic, start, end):
    values = [b"a", b"b", b"c", b"d", b"e"]
    name = topic(*values)

    assert values_of(reader(), range_of(name, start, end)) == values[start:end]


def test_an_empty_range_asks_no_broker(reader):
    nowhere = for_consumer(bootstrap_servers="127.0.0.1:1")

    assert list(reader(nowhere).read(range_of("t", 3, 3))) == []


@pytest.mark.parametrize("include_headers", [True, False])
def test_rows_carry_everything_that_spark_has_a_column_for(
    reader, cluster, topic, include_headers
):
    name = topic(b"first")
    headers = [("h", b"1"), ("h", None), ("", b"")]
    cluster.produce(name, b"v", key=b"k", timestamp_ms=1234, headers=headers)
    cluster.produce(name, None, key=b"", timestamp_ms=-1)
    cluster.flush()

    (batch,) = reader(include_headers=include_headers).read(range_of(name, 1, 3))

    batch.validate(full=True)
    assert batch.schema == arrow_schema(include_headers)
    rows = batch.set_column(5, "timestamp", batch["timestamp"].cast(pa.int64()))
    same = {"topic": name, "partition": 0, "timestampType": 0}
    first = {"key": b"k", "value": b"v", "offset": 1, "timestamp": 1_234_000, **same}
    second = {"key": b"", "value": None, "offset": 2, "timestamp": -1_000, **same}
    if include_headers:
        first["headers"] = [{"key": key, "value": value} for key, value in headers]
        second["headers"] = None
    assert rows.to_pylist() == [first, second]


def test_batches_are_bounded_by_bytes_and_keep_the_order(reader, topic):
    size, count, batch_bytes = 1_000, 3_000, 100_000
    values = [b"%08d" % number + b"x" * (size - 8) for number in range(count)]
    name = topic(*values)

    batches = list(reader(batch_bytes=batch_bytes).read(range_of(name, 0, count)))

    assert [v for b in batches for v in b["value"].to_pylist()] == values
    # in Python the first batch is taken before the size of records is known
    assert all(batch.nbytes < 2.2 * batch_bytes for batch in batches[1:])
    assert all(batch.nbytes > 0.8 * batch_bytes for batch in batches[:-1])


def test_a_record_larger_than_a_batch_is_a_batch(reader, topic):
    large = [b"x" * 500_000, b"y" * 500_000, b"z"]
    name = topic(*large)

    assert values_of(reader(batch_bytes=10), range_of(name, 0, 3)) == large


def test_many_small_records_fill_few_batches(reader, topic):
    count = 30_000
    name = topic(*[b"x" * 20] * count)

    batches = list(reader().read(range_of(name, 0, count)))

    assert sum(batch.num_rows for batch in batches) == count
    assert len(batches) <= 3


# --- life ---------------------------------------------------------------------------


def test_closing_the_iterator_early_is_quick(reader, topic):
    name = topic(*[b"x" * 1_000] * 1_000)
    begun = [reader(batch_bytes=1).read(range_of(name, 0, 1_000)) for _ in range(TRIES)]
    for batches in begun:
        next(batches)

    promptly(lambda: begun.pop().close(), 1)

    for batches in begun:
        batches.close()


def test_the_clock_stands_still_between_two_batches(reader, topic):
    name = topic(b"a", b"b", b"c")
    batches = reader(batch_bytes=1, timeout_ms=1_500).read(range_of(name, 0, 3))

    first = next(batches)
    time.sleep(2)

    assert first["value"].to_pylist() == [b"a"]
    assert [b["value"].to_pylist() for b in batches] == [[b"b"], [b"c"]]


def test_each_range_has_a_client_of_its_own(reader, topic):
    name = topic(b"a", b"b", b"c")
    first, second = (reader().read(range_of(name, start, 3)) for start in (0, 1))

    assert next(second)["value"].to_pylist() == [b"b", b"c"]
    assert next(first)["value"].to_pylist() == [b"a", b"b", b"c"]


def test_it_can_be_pickled_after_use(reader, topic):
    name = topic(b"a")
    used = reader()
    values_of(used, range_of(name, 0, 1))

    copy = pickle.loads(pickle.dumps(used))

    assert values_of(copy, range_of(name, 0, 1)) == [b"a"]


def test_batches_outlive_the_reader(reader, topic):
    values = [b"%06d" % number for number in range(1_000)]
    name = topic(*values)

    batches = list(reader(batch_bytes=5_000).read(range_of(name, 0, len(values))))
    first_columns = [batch.column("value") for batch in batches]
    del batches

    assert [v for column in first_columns for v in column.to_pylist()] == values
